# Data written by one NBD client is read back right by others: qemu-img, qemu-io, qemu-nbd, nbdcopy, nbdinfo, nbdsh, fio, nbd-client; over IPv4,
# IPv6 and Unix sockets. All is compared byte by byte.
. "$(dirname "$0")/functions.sh"
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
make_disks 6 96M
NBD_LISTEN='127.0.0.1:0", "[::1]:0'
write_config raid6 'size = "128 MiB";'
start_daemon
BYTES=134217728
NBD6="nbd://$($CTL status | sed -n 's/^nbd listens on \(\[::1\].*\)/\1/p')/v"
[ "$NBD6" != nbd:///v ] || fail "it does not listen on IPv6"

same_as() { # FILE URI: what a client reads
    qemu-img compare -f raw -F raw "$1" "$2" >"$DIR/compare" 2>&1 || fail "qemu-img compare $2: $(cat "$DIR/compare")"
    nbdcopy --connections=4 --requests=64 "$2" "$DIR/out"
    cmp "$1" "$DIR/out" || fail "nbdcopy reads other bytes by $2"
}

# Written by one client on one listener, read by all on all.
random_file "$DIR/in1" $BYTES 1
random_file "$DIR/in2" $BYTES 2
qemu-img convert -n -f raw -O raw -W -m 8 "$DIR/in1" "$NBD"
for uri in "$NBD" "$NBD6" "$NBD_UNIX"; do same_as "$DIR/in1" "$uri"; done
nbdcopy --flush --connections=4 --requests=64 "$DIR/in2" "$NBD6"
qemu-img convert -n -f raw -O raw "$NBD_UNIX" "$DIR/out"
cmp "$DIR/in2" "$DIR/out" || fail "qemu-img read other bytes than nbdcopy wrote"

patterns() { # CACHE URI
    qemu-io -f raw -t "$1" -c 'write -P 0x5a 65536 196608' -c 'write -f -P 0xa5 512 1024' -c 'read -P 0x5a 65536 196608' \
        -c 'read -P 0xa5 512 1024' -c 'write -z 131072 65536' -c 'read -P 0 131072 65536' -c 'write -z -u 262144 65536' \
        -c 'discard 65536 65536' -c 'read -P 0 65536 65536' -c 'write -P 0x33 1000 3000' -c 'read -P 0x33 1000 3000' -c flush "$2"
}
for uri in "$NBD" "$NBD6" "$NBD_UNIX"; do
    nbdinfo --json "$uri" >"$DIR/info" || fail "nbdinfo $uri"
    for line in '"export-size": 134217728' '"is_read_only": false' '"can_flush": true' '"can_fua": true' '"can_trim": true' '"can_zero": true' \
        '"can_multi_conn": true' '"can_cache": true' '"can_df": true' '"can_fast_zero": true' '"block_size_minimum": 512' '"block_size_maximum": 33554432' \
        '"structured": true' '"description": "test volume"'; do
        grep -q "$line" "$DIR/info" || fail "nbdinfo $uri does not show $line: $(cat "$DIR/info")"
    done
    qemu-img info --output=json "$uri" | grep -q "\"virtual-size\": $BYTES" || fail "qemu-img info $uri"
    for cache in none writeback writethrough directsync unsafe; do
        patterns "$cache" "$uri" >"$DIR/io" 2>&1 || fail "qemu-io -t $cache $uri: $(cat "$DIR/io")"
        ! grep -qi 'fail' "$DIR/io" || fail "qemu-io -t $cache $uri: $(cat "$DIR/io")"
    done
    PATH=/usr/bin:$PATH URI=$uri nbdsh -c 'exec(open("'"$(dirname "$0")"'/nbd_shell.py").read())' >"$DIR/shell" 2>&1 || fail "nbdsh $uri: $(tail -n 5 "$DIR/shell")"
    fio --name=v --ioengine=nbd --uri="$uri" --rw=randrw --bsrange=512-256k --blockalign=512 --size=24m --iodepth=32 --verify=crc32c --verify_fatal=1 \
        --verify_dump=0 --verify_state_save=0 --output="$DIR/fio" || fail "fio $uri: $(tail -n 5 "$DIR/fio")"
done
nbdinfo --list "nbd://$NBD_ADDRESS" | grep -q 'test volume' || fail "the export is not listed"
nbdinfo --list "nbd+unix:///?socket=$DIR/nbd.sock" | grep -q 'export="v"' || fail "the export is not listed on the Unix socket"
nbdinfo "nbd://$NBD_ADDRESS/nothere" >/dev/null 2>/dev/null && fail "an unknown export was opened"
nbd-client -l 127.0.0.1 "${NBD_ADDRESS##*:}" >"$DIR/list" 2>&1 && grep -qx 'v: test volume' "$DIR/list" || fail "nbd-client -l: $(cat "$DIR/list")"
nbd-client -l ::1 "$(echo "$NBD6" | sed 's/.*:\([0-9]*\).*/\1/')" >"$DIR/list" 2>&1 && grep -qx 'v: test volume' "$DIR/list" || fail "nbd-client -l by IPv6: $(cat "$DIR/list")"
qemu-nbd -L -b 127.0.0.1 -p "${NBD_ADDRESS##*:}" | grep -q "export: 'v'" || fail "qemu-nbd -L"

# What another server reads and writes here as a client.
nbdcopy --flush "$DIR/in1" "$NBD"
qemu-nbd -f raw -t -k "$DIR/again.sock" --shared=8 "$NBD" &
AGAIN=$!
PIDS=$AGAIN
wait_for test -S "$DIR/again.sock" || fail "qemu-nbd on top of an export"
same_as "$DIR/in1" "nbd+unix:///?socket=$DIR/again.sock"
nbdcopy --flush --connections=4 "$DIR/in2" "nbd+unix:///?socket=$DIR/again.sock"
kill "$AGAIN"
wait "$AGAIN" || fail "qemu-nbd on top of an export ended badly"
PIDS=
same_as "$DIR/in2" "$NBD"

# An image with a table of its own, in the export.
qemu-img create -q -f qcow2 "$NBD" 64M
qemu-io -f qcow2 -c 'write -q -P 0x11 0 8M' -c 'discard -q 1M 1M' "$NBD" >"$DIR/io" || fail "qemu-io in qcow2: $(cat "$DIR/io")"
qemu-img check -q -f qcow2 "$NBD" || fail "qemu-img check"
# What was discarded whole, or never written, is a hole.
nbdcopy --flush --connections=4 "$DIR/in2" "$NBD"
qemu-io -f raw -c 'discard 64M 32M' "$NBD" >/dev/null
nbdinfo --map --totals "$NBD" | grep -q '^ *33554432 .*hole,zero' || fail "the discarded 32 MiB are no hole: $(nbdinfo --map "$NBD")"
dd if=/dev/zero of="$DIR/in2" bs=1M seek=64 count=32 conv=notrunc 2>/dev/null
for uri in "$NBD" "$NBD6" "$NBD_UNIX"; do same_as "$DIR/in2" "$uri"; done
wait_idle
$CTL status >"$DIR/status" || fail "not healthy at the end: $(cat "$DIR/status")"
stop_daemon
