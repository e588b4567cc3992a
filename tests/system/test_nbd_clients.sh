# Data written by one NBD client is read back right by others: qemu-img, qemu-io, nbdcopy, nbdinfo, over TCP and Unix.
. "$(dirname "$0")/functions.sh"
make_disks 6 96M
write_config raid6 'size = "128 MiB";'
start_daemon
random_file "$DIR/in" 134217728 1
qemu-img convert -n -f raw -O raw "$DIR/in" "$NBD"
qemu-img compare -f raw -F raw "$DIR/in" "$NBD" >/dev/null || fail "qemu-img compare"
nbdcopy --connections=4 "$NBD_UNIX" "$DIR/out"
cmp "$DIR/in" "$DIR/out" || fail "nbdcopy read other bytes than qemu-img wrote"
random_file "$DIR/in2" 134217728 2
nbdcopy --flush --connections=4 --requests=64 "$DIR/in2" "$NBD"
qemu-img convert -n -f raw -O raw "$NBD" "$DIR/out"
cmp "$DIR/in2" "$DIR/out" || fail "qemu-img read other bytes than nbdcopy wrote"

info=$(nbdinfo "$NBD")
for line in 'export-size: 134217728' 'is_read_only: false' 'can_flush: true' 'can_fua: true' 'can_trim: true' 'can_zero: true' \
    'can_multi_conn: true' 'block_size_minimum: 512' 'block_size_maximum: 33554432' 'structured'; do
    echo "$info" | grep -q "$line" || fail "nbdinfo does not show '$line': $info"
done
nbdinfo --list "nbd://$NBD_ADDRESS" | grep -q 'test volume' || fail "the export is not listed"
nbdinfo "nbd://$NBD_ADDRESS/nothere" >/dev/null 2>/dev/null && fail "an unknown export was opened"

qemu-io -f raw -c 'write -P 0x5a 65536 196608' -c 'write -f -P 0xa5 512 1024' -c 'read -P 0x5a 65536 196608' \
    -c 'read -P 0xa5 512 1024' -c 'write -z 131072 65536' -c 'read -P 0 131072 65536' -c 'discard 65536 65536' \
    -c 'read -P 0 65536 65536' -c 'flush' "$NBD" >"$DIR/io" 2>&1 || fail "qemu-io: $(cat "$DIR/io")"
grep -qi 'fail' "$DIR/io" && fail "qemu-io: $(cat "$DIR/io")"
wait_idle
stop_daemon
