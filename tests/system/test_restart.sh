# What was written is there after a stop, after kill -9, and the daemon says what it did.
. "$(dirname "$0")/functions.sh"
make_disks 4 96M
write_config raid5 'size = "96 MiB";'
start_daemon
random_file "$DIR/in" 100663296 1
nbdcopy --flush "$DIR/in" "$NBD"
wait_idle
stop_daemon
launch_daemon
nbdcopy "$NBD" "$DIR/out" && cmp "$DIR/in" "$DIR/out" || fail "after a stop"
grep -q 'not stopped cleanly' "$LOG" && fail "a clean stop was taken for a crash"

random_file "$DIR/in" 100663296 2
nbdcopy --flush "$DIR/in" "$NBD_UNIX"
kill_daemon
launch_daemon
grep -q 'not stopped cleanly' "$LOG" || fail "the log does not tell of the crash: $(cat "$LOG")"
nbdcopy "$NBD" "$DIR/out" && cmp "$DIR/in" "$DIR/out" || fail "after kill -9"
wait_idle
[ "$(array_state)" = optimal ] || fail "not optimal after the resync"

# Without one disk: found degraded, and the same bytes.
stop_daemon
mv "$DIR/d1" "$DIR/d1.away"
launch_daemon
[ "$(array_state)" = degraded ] || fail "not degraded without a disk"
grep -q 'd1' "$LOG" || fail "the log does not name the missing disk"
nbdcopy "$NBD" "$DIR/out" && cmp "$DIR/in" "$DIR/out" || fail "without a disk"
random_file "$DIR/in" 100663296 3
nbdcopy --flush "$DIR/in" "$NBD"
stop_daemon

# The disk returns stale: it is not read from until it has caught up, which it does by itself.
mv "$DIR/d1.away" "$DIR/d1"
launch_daemon
grep -q "disk $DIR/d1 is back and is to be caught up" "$LOG" || fail "a stale disk was taken as good"
nbdcopy "$NBD" "$DIR/out" && cmp "$DIR/in" "$DIR/out" || fail "with a stale disk present"
wait_idle
grep -q "disk $DIR/d1 (slot 1) is caught up and online" "$LOG" || fail "the stale disk did not catch up"
[ "$(array_state)" = optimal ] || fail "not optimal after the rebuild"
$CTL disk fail r/3 >/dev/null
nbdcopy "$NBD" "$DIR/out" && cmp "$DIR/in" "$DIR/out" || fail "from the rebuilt disk"
stop_daemon
