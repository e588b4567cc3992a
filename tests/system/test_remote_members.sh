# An array over three machines, each of which serves its disk by NBD. One is killed under load: the load goes on without
# an error; it comes back, joins by itself, and catches up. Then while nothing is written; then it is not there at a start,
# and then none is.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/remotes.sh"

for name in a b c; do
    make_remote "$name" 128M
    start_remote "$name"
done
DISKS="\"$(nbd_of a)\", \"$(nbd_of b)\", \"$(nbd_of c)\""
write_config raid5 'size = "96 MiB"; consistency = "bitmap";'

# What is on the disk of another machine is not overwritten.
truncate -s 64M "$DIR/fs"
mke2fs -q -L precious "$DIR/fs"
nbdcopy "$DIR/fs" "$(nbd_of c)"
launch_daemon
$CTL apply --yes >"$DIR/out" 2>&1 && fail "a file system was overwritten: $(cat "$DIR/out")"
grep -q "$(nbd_of c) holds a file system (ext2 precious)" "$DIR/out" || fail "apply: $(cat "$DIR/out")"
$CTL apply --yes --force >"$DIR/out" 2>&1 || fail "apply --force: $(cat "$DIR/out")"
state_is optimal || fail "'$(array_state)' when created: $($CTL array list)"
$CTL disk list | grep -q "$(nbd_of b)" || fail "disk list: $($CTL disk list)"

# One machine dies under load, and comes back.
load 6
sleep 2
kill_remote b
wait_for state_is degraded || fail "'$(array_state)' without b"
start_remote b
wait_for_long whole || fail "b did not come back: $($CTL status; tail -n 5 "$LOG")"
load_over "killed"
grep -q "slot 1.*caught up" "$LOG" || fail "b was not caught up"
scrub_clean "killed"

# It is started anew while nothing is under way: a short pause, no lost disk.
sleep 1
kill_remote a
start_remote a
qemu-io -f raw -c 'read 0 8M' "$NBD" >/dev/null || fail "a read after a pause"
state_is optimal || fail "'$(array_state)' after a pause: $(tail -n 5 "$LOG")"
grep -q "disk $(nbd_of a) is back" "$LOG" || fail "a was not found again quietly"
[ "$(grep -c 'was away and is back' "$LOG")" = 1 ] || fail "a was lost in a pause"

# It is away for longer while nobody asks: it is lost when it is back, and is caught up at once.
gone() { [ "$(grep -c "disk $(nbd_of b) is gone" "$LOG")" = 2 ]; }
is_clean() { [ "$(status_field dirty_bytes)" = 0 ] && [ "$(status_field clean)" = true ]; }
wait_for_long is_clean || fail "rows do not become clean"
kill_remote b
wait_for_long gone || fail "b is not gone: $(tail -n 5 "$LOG")"
state_is optimal || fail "'$(array_state)', and nobody has asked"
start_remote b
wait_for_long sh -c "[ \$(grep -c 'was away and is back' '$LOG') = 2 ]" || fail "b did not come back: $(tail -n 5 "$LOG")"
wait_for_long whole || fail "b is not whole: $($CTL status)"

# Not there at a start: degraded; then it is, and joins.
stop_daemon
kill_remote c
launch_daemon
state_is degraded || fail "'$(array_state)' at a start without c"
qemu-io -f raw -c 'write -P 7 1M 3M' -c flush "$NBD" >/dev/null || fail "a write without c"
start_remote c
wait_for_long whole || fail "c did not come back: $($CTL status; tail -n 5 "$LOG")"
grep -q "slot 2.*caught up" "$LOG" || fail "c was not caught up"
scrub_clean "not there at a start"

# None is there: the daemon starts, the array does not, and does when they come.
stop_daemon
for name in a b c; do kill_remote $name; done
launch_daemon
$CTL array list | grep -q 'Connection refused' || fail "without any disk: $($CTL array list)"
for name in a b c; do start_remote $name; done
wait_for state_is optimal || fail "the array did not start by itself: $($CTL array list; tail -n 5 "$LOG")"
qemu-io -f raw -c 'read -P 7 1M 3M' "$NBD_UNIX" | grep -q 'verification failed' && fail "other bytes"
stop_daemon
stop_remotes
