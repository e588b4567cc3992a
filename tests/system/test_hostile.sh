# Peers that lie, stall and vanish: others are served meanwhile and after, and nothing is left over.
. "$(dirname "$0")/functions.sh"
make_disks 3 64M
write_config raid5 'size = "32 MiB";'
start_daemon
wait_idle
random_file "$DIR/in" 33554432 1
nbdcopy --flush "$DIR/in" "$NBD"
descriptors() { ls "/proc/$PID/fd" | wc -l; }
# Without the pool of pages (256 MiB), which keeps what was in use once.
memory() { awk '/^Size:/ {size = $2} /^Rss:/ && size < 262144 {sum += $2} END {print sum}' "/proc/$PID/smaps"; }
settled() { [ "$(descriptors)" -le "$fds" ]; }
fds=$(descriptors)
rss=$(memory)
python=/usr/bin/python3
[ -x "$python" ] || python=python3
timeout 200 "$python" "$(dirname "$0")/hostile.py" "$NBD_ADDRESS" "$ISCSI_ADDRESS" "$TARGET" "$DIR/nbd.sock" >"$DIR/hostile" 2>&1 ||
    fail "$(cat "$DIR/hostile")"
kill -0 "$PID" 2>/dev/null || fail "the daemon died"
nbdcopy "$NBD" "$DIR/out" && cmp "$DIR/in" "$DIR/out" || fail "other bytes after the attacks"
iscsi-inq "$ISCSI" >/dev/null || fail "iSCSI does not serve any more"
wait_for settled || fail "$(descriptors) descriptors, $fds before"
[ $(($(memory) - rss)) -lt 65536 ] || [ -n "$(echo "$BUILD_DIR" | grep san)" ] || fail "memory grew from $rss to $(memory) KiB"
tail -n 1 "$DIR/hostile"
stop_daemon
