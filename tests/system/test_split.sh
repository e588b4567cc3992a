# Two halves of a mirror run apart: never merged, neither at a start nor by disk online; nothing of either half is lost.
. "$(dirname "$0")/functions.sh"
make_disks 2 64M
write_config raid1 'size = "16 MiB";'
start_daemon
wait_idle
qemu-io -f raw -c 'write -P 1 0 1M' -c flush "$NBD" >/dev/null
stop_daemon
mv "$DIR/d1" "$DIR/away"
launch_daemon
[ "$(array_state)" = degraded ] || fail "half a mirror does not start: $($CTL array list)"
qemu-io -f raw -c 'write -P 2 0 1M' -c flush "$NBD" >/dev/null
stop_daemon
mv "$DIR/d0" "$DIR/first"
mv "$DIR/away" "$DIR/d1"
launch_daemon
[ "$(array_state)" = degraded ] || fail "the other half does not start: $($CTL array list)"
qemu-io -f raw -c 'write -P 3 0 1M' -c flush "$NBD" >/dev/null

# The first half comes back while the second one runs.
mv "$DIR/first" "$DIR/d0"
sum=$(cksum <"$DIR/d0")
$CTL disk online "$DIR/d0" >"$DIR/out" 2>&1 && fail "a half that ran apart was overwritten"
grep -q "$DIR/d0 ran on without this array" "$DIR/out" || fail "disk online: $(cat "$DIR/out")"
[ "$sum" = "$(cksum <"$DIR/d0")" ] || fail "the other half was written to"
qemu-io -f raw -c 'read -P 3 0 1M' "$NBD" | grep -q 'verification failed' && fail "the running half changed"
stop_daemon

# Both are there at a start: a split brain, shown with both histories.
launch_daemon
[ "$(array_state)" = not ] || fail "a split brain started: $($CTL array list)"
$CTL array list | grep -q 'ran apart from each other' || fail "the reason: $($CTL array list)"
$CTL array list | grep -q 'corbelctl array assemble r --prefer DISK' || fail "the way out: $($CTL array list)"

# The operator prefers one half; then the other has nothing to say any more.
$CTL array assemble r --prefer "$DIR/d7" 2>/dev/null && fail "a disk that is not there was preferred"
cp "$DIR/d0" "$DIR/first"
cp "$DIR/d1" "$DIR/second"
$CTL array assemble r --prefer "$DIR/d0" >/dev/null || fail "assemble --prefer"
grep -q "the history of disk $DIR/d0 was chosen by hand" "$LOG" || fail "the choice is not in the log"
qemu-io -f raw -c 'read -P 2 0 1M' "$NBD" | grep -q 'verification failed' && fail "the other half was chosen"
$CTL array assemble r --prefer "$DIR/d1" 2>"$DIR/out" && fail "preferred while it runs"
grep -q 'there is no split brain' "$DIR/out" || fail "$(cat "$DIR/out")"
$CTL disk online "$DIR/d1" >/dev/null || fail "the half that lost is not taken"
wait_idle
[ "$(array_state)" = optimal ] || fail "not whole: $($CTL array list)"
stop_daemon
mv "$DIR/first" "$DIR/d0"
mv "$DIR/second" "$DIR/d1"

# The operator decides for the second half.
mv "$DIR/d0" "$DIR/first"
launch_daemon
qemu-io -f raw -c 'read -P 3 0 1M' "$NBD" | grep -q 'verification failed' && fail "the second half lost its write"
mv "$DIR/first" "$DIR/d0"
$CTL disk online "$DIR/d0" --force >/dev/null || fail "disk online --force"
wait_idle
$CTL disk fail r/1 >/dev/null
qemu-io -f raw -c 'read -P 3 0 1M' "$NBD" | grep -q 'verification failed' && fail "the mirror differs after the choice"
stop_daemon
