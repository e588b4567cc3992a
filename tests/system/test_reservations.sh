# Persistent reservations with APTPL outlive kill -9 with their generation, on another reactor than their array's too, and without a
# member; those without it do not.
. "$(dirname "$0")/functions.sh"
make_disks 4 96M
truncate -s 64M "$DIR/s0" "$DIR/s1"
SECOND=iqn.2026-01.org.example:second
EXTRA_DAEMON='reactors = 2;'
EXTRA_TARGETS=", { name = \"$SECOND\"; luns = ( { lun = 0; volume = \"s/w\"; }, { lun = 1; volume = \"r/v\"; } ); }"
write_config raid5 'size = "32 MiB";'
sed -i "s|^arrays = (|&{ name = \"s\"; disks = [ \"$DIR/s0\", \"$DIR/s1\" ]; volumes = ( { name = \"w\"; level = \"raid1\"; } ); },|" "$CONFIG"
start_daemon
reservations() { python3 "$(dirname "$0")/reservations.py" "$ISCSI_ADDRESS" "$@" || fail "reservations: $*"; }
reservations "$TARGET" 0 before
reservations $SECOND 1 before
wait_idle
kill_daemon
launch_daemon
reservations "$TARGET" 0 after
kill_daemon
rm "$DIR/d2"
launch_daemon
reservations "$TARGET" 0 released
reservations $SECOND 1 after
stop_daemon
launch_daemon
reservations "$TARGET" 0 released
reservations $SECOND 1 released
stop_daemon
