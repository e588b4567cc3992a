# A thousand logins that stall: others log in beside them, there may be no more than said, and all are dropped in the time that is said.
. "$(dirname "$0")/functions.sh"
ulimit -n 4096
python=/usr/bin/python3
[ -x "$python" ] || python=python3
make_disks 3 64M
write_config raid5 'size = "32 MiB";'
limits() { sed -i "s/^iscsi = {.*listen/iscsi = { login = \"$1\"; half_open = $2; half_open_per_address = $3; listen/" "$CONFIG"; }
limits '8 s' 2000 1000
start_daemon
wait_idle
kib=16
[ -z "$(echo "$BUILD_DIR" | grep san)" ] || kib=100 # the sanitizer's own
timeout 200 "$python" "$(dirname "$0")/stalled_logins.py" "$ISCSI_ADDRESS" "$TARGET" "$PID" 1000 $kib >"$DIR/stalled" 2>&1 || fail "$(cat "$DIR/stalled")"
tail -n 1 "$DIR/stalled"
grep -q 'too many logins of its address are under way' "$LOG" || fail "the log does not tell of what was refused"
grep -q 'further refusals were not logged' "$LOG" || [ "$(grep -c 'too many logins of its address' "$LOG")" -le 20 ] || fail "the log is flooded"
stop_daemon
