# libiscsi's tools see the target, its LUNs and their identity; two LUNs on volumes of two levels; the identity outlives a restart.
. "$(dirname "$0")/functions.sh"
make_disks 4 96M
EXTRA_VOLUMES=', { name = "w"; level = "raid10"; size = "16 MiB"; }'
EXTRA_LUNS=', { lun = 5; volume = "r/w"; read_only = true; }'
EXTRA_TARGETS=', { name = "iqn.2026-01.org.example:second"; alias = "another"; luns = ( { lun = 1; volume = "r/w"; } ); }'
write_config raid6 'size = "32 MiB";'
start_daemon
listing=$(iscsi-ls -s "iscsi://$ISCSI_ADDRESS/")
for word in "$TARGET" 'org.example:second' 'Lun:0' 'Lun:5' 'Lun:1'; do
    echo "$listing" | grep -q -- "$word" || fail "iscsi-ls does not show $word: $listing"
done
iscsi-inq "$ISCSI" | grep -q 'Vendor:CORBEL' || fail "iscsi-inq: $(iscsi-inq "$ISCSI")"
serial() { iscsi-inq -e 1 -c 128 "$ISCSI" | sed -n 's/.*\[\(.*\)\].*/\1/p'; }
iscsi-inq -e 1 -c 131 "$ISCSI" | grep -qi 'NAA' || fail "no NAA identifier: $(iscsi-inq -e 1 -c 131 "$ISCSI")"
iscsi-readcapacity16 "$ISCSI" | grep -q 'Total size:33554432' || fail "capacity: $(iscsi-readcapacity16 "$ISCSI")"
first=$(serial)
[ -n "$first" ] || fail "no serial number"
qemu-io -f raw -c 'write 0 512' "iscsi://$ISCSI_ADDRESS/$TARGET/5" >"$DIR/io" 2>&1 && fail "a read-only LUN was written"
wait_idle
stop_daemon
launch_daemon
[ "$first" = "$(serial)" ] || fail "the serial number changed over a restart: $first, $(serial)"
stop_daemon
