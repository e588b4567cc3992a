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
stop_daemon

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
