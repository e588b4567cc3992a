# All disks are gone (their power, their adapter): the daemon starts, says which ones it waits for, and answers; when they
# are back nothing is lost.
. "$(dirname "$0")/functions.sh"
make_disks 3 64M
write_config raid5 'size = "16 MiB";'
start_daemon
qemu-io -f raw -c 'write -P 7 0 1M' -c 'write -P 7 10M 1M' -c flush "$NBD" >/dev/null
stop_daemon
mkdir "$DIR/away"
mv "$DIR"/d[012] "$DIR/away"
launch_daemon
$CTL status >"$DIR/status" || : # not well, as its exit status says
grep -q 'no disk carries this array' "$DIR/status" || fail "the status: $(cat "$DIR/status")"
$CTL --json status | grep -q '"arrays"' || fail "no status as JSON without disks"
curl --silent --fail --unix-socket "$SOCKET" http://corbel/ >"$DIR/page" || fail "no page without disks"
grep -q '<html' "$DIR/page" || fail "the page: $(head -c 200 "$DIR/page")"
$CTL volume scrub r/v >"$DIR/out" 2>&1 && fail "a scrub of nothing"
grep -q 'no volume of a running array' "$DIR/out" || fail "the reason: $(cat "$DIR/out")"
stop_daemon
mv "$DIR"/away/d[012] "$DIR"
launch_daemon
[ "$(array_state)" = optimal ] || fail "with its disks: $($CTL array list)"
qemu-io -f raw -c 'read -P 7 0 1M' "$NBD" | grep -q 'verification failed' && fail "other bytes"
stop_daemon

# Too many go while it runs: it freezes, and the one word for all says so.
launch_daemon
for disk in d0 d1; do cp --sparse=always "$DIR/$disk" "$DIR/$disk.kept"; done
truncate -s 1M "$DIR/d0" "$DIR/d1"
qemu-io -f raw -c 'write -P 8 0 8M' -c flush "$NBD" >"$DIR/out" 2>&1 && fail "a write without disks: $(cat "$DIR/out")"
[ "$(array_state)" = frozen ] || fail "the array is '$(array_state)'"
status=0
$CTL status >"$DIR/status" || status=$?
grep -q 'health: failed' "$DIR/status" || fail "frozen: $(head -n 1 "$DIR/status")"
[ "$status" -eq 6 ] || fail "frozen, and status ends with $status"
grep -q 'then corbelctl array assemble' "$DIR/status" || fail "status does not say what to do: $(cat "$DIR/status")"
# With its disks back it is started anew, without a restart, and its clients find it again.
for disk in d0 d1; do cp --sparse=always "$DIR/$disk.kept" "$DIR/$disk"; done
$CTL array assemble r >"$DIR/out" 2>&1 || fail "assemble: $(cat "$DIR/out")"
[ "$(array_state)" = optimal ] || fail "assembled: $($CTL array list)"
qemu-io -f raw -c 'read -P 7 10M 1M' "$NBD" | grep -q 'verification failed' && fail "other bytes"
$CTL array assemble r 2>&1 | grep -q 'runs already' || fail "assembled twice"
stop_daemon
