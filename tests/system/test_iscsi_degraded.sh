# libiscsi's conformance suite on a volume that lacks a member.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/iscsi_suite.sh"
make_disks 4 96M
write_suite_config raid5 'size = "126 MiB";'
start_daemon
wait_idle
$CTL disk fail r/1 >/dev/null || fail "disk fail"
[ "$(array_state)" = degraded ] || fail "the array is $(array_state)"
suite_paths
run_suites
check_suites
[ "$(array_state)" = degraded ] || fail "the array is $(array_state) after the suite"
stop_daemon
