# What the service manager is told: ready only when it serves, the watchdog, reload, stop.
. "$(dirname "$0")/functions.sh"
make_disks 3 64M
write_config raid5 'size = "16 MiB";'
python=/usr/bin/python3
[ -x "$python" ] || python=python3
cat >"$DIR/listen.py" <<'EOF'
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
while True:
    print(s.recv(4096).decode().replace("\n", " "), flush=True)
EOF
"$python" "$DIR/listen.py" "$DIR/notify" >"$DIR/told" &
PIDS=$!
wait_for [ -S "$DIR/notify" ]
export NOTIFY_SOCKET="$DIR/notify" WATCHDOG_USEC=200000
start_daemon
told() { grep -q "$1" "$DIR/told"; }
wait_for told 'READY=1' || fail "not told that it is ready"
wait_for told 'WATCHDOG=1' || fail "no watchdog"
kill -HUP "$PID"
wait_for told 'RELOADING=1' || fail "not told of the reload"
count() { [ "$(grep -c 'READY=1' "$DIR/told")" -ge 2 ]; }
wait_for count || fail "not told that the reload is over"
stop_daemon
wait_for told 'STOPPING=1' || fail "not told of the stop"
