# libiscsi's conformance suite through two portals: what must pass is listed; nothing may fail, crash or hang the daemon. See iscsi_suite.txt.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/iscsi_suite.sh"
make_disks 4 96M
write_suite_config raid5 'size = "126 MiB";' # whole rows: Sanitize.BlockErase wants all of it back
start_daemon
wait_idle
suite_paths
run_suites
check_suites
qemu-io -f raw -c 'write -P 7 0 65536' -c 'read -P 7 0 65536' "$ISCSI" >/dev/null || fail "the target does not serve after the suite"
stop_daemon
