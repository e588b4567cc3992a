# Degraded and not stopped cleanly: without a journal (policy bitmap) acknowledged writes may be missing, so a parity array does not start
# by itself; --force starts it and says so. A mirror starts, since nothing can be missing from it.
. "$(dirname "$0")/functions.sh"
make_disks 4 64M
EXTRA_TOP=
write_config raid5 'size = "32 MiB"; consistency = "bitmap";'
start_daemon
wait_idle
random_file "$DIR/in" 33554432 1
nbdcopy --flush "$DIR/in" "$NBD"
$CTL disk fail r/2 >/dev/null
qemu-io -f raw -c 'write -P 1 16777216 65536' -c flush "$NBD" >/dev/null
kill_daemon
launch_daemon
[ "$(array_state)" = not ] || fail "started by itself: $($CTL array list)"
grep -q 'not started' "$LOG" && grep -q 'force' "$LOG" || fail "the log does not say what to do: $(cat "$LOG")"
nbdinfo "$NBD" >/dev/null 2>&1 && fail "the volume is served"
$CTL apply --yes >"$DIR/out" 2>&1 && fail "apply started it without --force"
grep -q 'REFUSED start array r' "$DIR/out" || fail "apply: $(cat "$DIR/out")"
stop_daemon
launch_daemon
[ "$(array_state)" = not ] || fail "started by itself after a stop"
$CTL apply --yes --force >"$DIR/out" 2>&1 || fail "apply --force: $(cat "$DIR/out")"
[ "$(array_state)" = degraded ] || fail "by force: $($CTL array list)"
grep -qi 'forc' "$LOG" || fail "the log does not tell of the force: $(cat "$LOG")"
nbdcopy "$NBD" "$DIR/out.img"
cmp -n 16777216 "$DIR/in" "$DIR/out.img" || fail "bytes far from the last write changed"
stop_daemon

rm "$DIR"/d*
make_disks 2 64M
write_config raid1 'size = "32 MiB";'
start_daemon
wait_idle
nbdcopy --flush "$DIR/in" "$NBD"
$CTL disk fail r/0 >/dev/null
qemu-io -f raw -c 'write -P 1 0 65536' -c flush "$NBD" >/dev/null
kill_daemon
launch_daemon
[ "$(array_state)" = degraded ] || fail "a degraded mirror did not start: $($CTL array list)"
qemu-io -f raw -c 'read -P 1 0 65536' "$NBD" | grep -q 'verification failed' && fail "the mirror lost a flushed write"
stop_daemon
