# Portal groups and IPv6, SendTargets, redirection as libiscsi follows it; LUNs and targets that come and go by a reload.
. "$(dirname "$0")/functions.sh"
python=/usr/bin/python3
[ -x "$python" ] || python=python3
make_disks 3 64M
port=$((20000 + $$ % 10000))
while grep -q ":$(printf '%04X' "$port") " /proc/net/tcp /proc/net/tcp6; do port=$((port + 1)); done
SECOND="[::1]:$port"
EXTRA_LUNS='/* more */'
EXTRA_TARGETS="
    , { name = \"$TARGET-one\"; portal_groups = [ 1 ]; luns = ( { lun = 0; volume = \"r/v\"; } ); }
    , { name = \"$TARGET-moved\"; redirect = \"$SECOND\"; luns = ( { lun = 0; volume = \"r/v\"; } ); }"
EXTRA_DAEMON='reactors = 2;'
write_config raid5 'size = "32 MiB";'
sed -i "s/drain = \"5 s\"/drain = \"2 s\"/
s/^iscsi = {/iscsi = { portal_groups = ( { tag = 2; listen = [ \"$SECOND\" ]; } );/" "$CONFIG"
start_daemon
wait_idle
iscsi-ls -s "iscsi://$SECOND/" >"$DIR/ls" 2>&1 || fail "$(cat "$DIR/ls")"
grep -q "^Target:$TARGET .*Portal:\[::1\]:$port,2" "$DIR/ls" || fail "iscsi-ls by IPv6: $(cat "$DIR/ls")"
iscsi-inq "iscsi://$ISCSI_ADDRESS/$TARGET-moved/0" >"$DIR/inq" 2>&1 || fail "libiscsi does not follow: $(cat "$DIR/inq")"
grep -q "sent from $TARGET-moved to \[::1\]:$port" "$LOG" || fail "it was not sent elsewhere"
iscsi-inq "iscsi://$SECOND/$TARGET/0" >"$DIR/inq" 2>&1 || fail "iscsi-inq by IPv6: $(cat "$DIR/inq")"
# shellcheck disable=SC2086
timeout 120 "$python" "$(dirname "$0")/portals.py" $CTL -- "$CONFIG" "$ISCSI_ADDRESS" "$SECOND" "$TARGET" || fail "see above"
"$BUILD_DIR/corbeld" -t "$CONFIG" >"$DIR/check" 2>&1 || fail "$(cat "$DIR/check")"
for wrong in 's/tag = 2/tag = 1/' 's/luns = /portal_groups = [ 3 ]; luns = /' 's/redirect = "[^"]*"/redirect = "*:3260"/'; do
    sed "$wrong" "$CONFIG" >"$DIR/wrong.conf"
    ! "$BUILD_DIR/corbeld" -t "$DIR/wrong.conf" >"$DIR/check" 2>&1 || fail "$wrong is taken"
    grep -qE 'wrong.conf:[0-9]+:[0-9]+: .*(tag|portal_groups|redirect)' "$DIR/check" || fail "$wrong: $(cat "$DIR/check")"
done
stop_daemon
