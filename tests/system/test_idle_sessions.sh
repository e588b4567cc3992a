# A thousand idle sessions and 64 active ones on one target: what an idle one holds, and that the active ones go on.
. "$(dirname "$0")/functions.sh"
# shellcheck disable=SC3045
ulimit -n 4096
python=/usr/bin/python3
[ -x "$python" ] || python=python3
load=$BUILD_DIR/tests/bench/load_iscsi
make_disks 3 64M
write_config raid5 'size = "32 MiB";'
sed -i 's/^iscsi = {.*listen/iscsi = { connections = 2000; ping_interval = "10 min"; listen/' "$CONFIG"
start_daemon
wait_idle
qemu-io -f raw -c 'write -q 0 32M' "$NBD" >"$DIR/fill" || fail "$(cat "$DIR/fill")"
kib=64 rounds=4 seconds=1
[ -z "$(echo "$BUILD_DIR" | grep san)" ] || kib=4000 rounds=1
timeout 400 "$python" "$(dirname "$0")/idle_sessions.py" "$ISCSI_ADDRESS" "$TARGET" "$PID" 1000 $kib $rounds \
    "$load" --uri "$ISCSI_ADDRESS" --export "$TARGET" --lun 0 --mode randread --block 4096 --depth 4 --connections 64 \
    --seconds $seconds >"$DIR/idle" 2>&1 || fail "$(cat "$DIR/idle")"
cat "$DIR/idle"
stop_daemon
