# Peers that hold pages, and too few descriptors: others are served, and nothing spins.
. "$(dirname "$0")/functions.sh"
make_disks 3 96M
EXTRA_DAEMON='memory = "48 MiB";' write_config raid5 'size = "128 MiB";'
start_daemon
wait_idle
python=/usr/bin/python3
[ -x "$python" ] || python=python3
timeout 60 "$python" "$(dirname "$0")/limits.py" "$DIR/nbd.sock" >"$DIR/limits" 2>&1 || fail "$(cat "$DIR/limits")"
qemu-io -f raw -c 'write -P 5 0 16M' -c 'read -P 5 0 16M' "$NBD" >"$DIR/io" 2>&1 || fail "afterwards: $(cat "$DIR/io")"
grep -q 'verification failed' "$DIR/io" && fail "afterwards: $(cat "$DIR/io")"
cat "$DIR/limits"

# An include that is a folder is a mistake, and no reason for a running daemon to end.
cp "$CONFIG" "$DIR/good.conf"
echo "@include \"$DIR\"" >"$CONFIG"
$CTL apply --yes >"$DIR/out" 2>&1 && fail "an included folder was accepted"
grep -q "$CONFIG:1:1: @include: $DIR cannot be read" "$DIR/out" || fail "included folder: $(cat "$DIR/out")"
kill -0 "$PID" 2>/dev/null || fail "an included folder ended the daemon"
cp "$DIR/good.conf" "$CONFIG"
stop_daemon

# With no descriptor left the control socket waits instead of filling the log.
: >"$LOG"
prlimit --nofile=64 "$BUILD_DIR/corbeld" -c "$CONFIG" 2>"$LOG" &
PID=$!
wait_for daemon_ready || fail "not ready with 64 descriptors"
timeout 60 "$python" "$(dirname "$0")/limits.py" "$DIR/nbd.sock" "$SOCKET" "$PID" >"$DIR/limits" 2>&1 || fail "$(cat "$DIR/limits")"
[ "$(grep -c 'Too many open files' "$LOG")" -le 50 ] || fail "the log is full of 'Too many open files'"
$CTL status >/dev/null || fail "no status after the descriptors came back"
cat "$DIR/limits"
stop_daemon
