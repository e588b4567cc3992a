# What is counted for each session and LUN; corbelctl session list and drop, by iSCSI and NBD, on two reactors.
. "$(dirname "$0")/functions.sh"
python=/usr/bin/python3
[ -x "$python" ] || python=python3
make_disks 3 64M
EXTRA_DAEMON='reactors = 2;'
write_config raid5 'size = "32 MiB";'
sed -i 's/drain = "5 s"/drain = "2 s"/' "$CONFIG"
start_daemon
wait_idle
# shellcheck disable=SC2086
timeout 120 "$python" "$(dirname "$0")/sessions.py" $CTL -- "$ISCSI_ADDRESS" "$TARGET" "$NBD_ADDRESS" v || fail "see above"
[ "$(grep -c 'was asked to end' "$LOG")" = 3 ] || fail "the log does not tell who was asked to end"
stop_daemon
