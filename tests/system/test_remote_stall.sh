# A machine that stalls (SIGSTOP) without closing its connections: reads are had elsewhere at once, it is lost after some
# seconds, and comes back when it goes on. A daemon ends in seconds while one hangs, and starts while one does.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/remotes.sh"

for name in a b c; do
    make_remote "$name" 96M
    start_remote "$name"
done
DISKS="\"$(nbd_of a)\", \"$(iscsi_of b)\", \"$(nbd_of c)\""
write_config raid5 'size = "64 MiB"; consistency = "bitmap";'
start_daemon
random_file "$DIR/want" 33554432 1
nbdcopy --flush "$DIR/want" "$NBD"
wait_idle

for name in a b; do
    kill -STOP "$(remote_pid $name)"
    start=$(date +%s)
    nbdcopy "$NBD" "$DIR/out" || fail "a read while $name stalls"
    cmp -n 33554432 "$DIR/want" "$DIR/out" || fail "other bytes while $name stalls"
    [ $(($(date +%s) - start)) -le 12 ] || fail "a read took $(($(date +%s) - start)) s while $name stalls"
    qemu-io -f raw -c 'write -P 9 40M 1M' -c flush "$NBD" >/dev/null || fail "a write while $name stalls"
    state_is degraded || fail "'$(array_state)' while $name stalls: $($CTL array list)"
    kill -CONT "$(remote_pid $name)"
    wait_for_long whole || fail "$name did not come back: $($CTL status; tail -n 5 "$LOG")"
    scrub_clean "stalled $name"
done

# The end, and a start, while one hangs.
kill -STOP "$(remote_pid c)"
qemu-io -f raw -c 'aio_write -P 8 0 4M' "$NBD" >/dev/null 2>&1 &
PIDS="$PIDS $!"
sleep 0.5
start=$(date +%s)
stop_daemon
[ $(($(date +%s) - start)) -le 20 ] || fail "the end took $(($(date +%s) - start)) s"
start=$(date +%s)
launch_daemon
[ $(($(date +%s) - start)) -le 8 ] || fail "the start took $(($(date +%s) - start)) s"
state_is degraded || fail "'$(array_state)' at a start while c hangs"
kill -CONT "$(remote_pid c)"
wait_for_long whole || fail "c did not come back: $($CTL status; tail -n 5 "$LOG")"
scrub_clean "hanging at a start"
stop_daemon
stop_remotes
