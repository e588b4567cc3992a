# Data written by one NBD client is read back right by others: qemu-img, qemu-io, qemu-nbd, nbdcopy, nbdinfo, nbdsh, fio, nbd-client; over IPv4,
# IPv6 and Unix sockets, in clear, and by TLS with certificates and with a shared key. All is compared byte by byte.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/nbd_functions.sh"
make_disks 6 64M
NBD_LISTEN='127.0.0.1:0", "[::1]:0'
write_config raid6 'size = "48 MiB";'
make_certificates
mkdir "$DIR/tls"
cp "$DIR/ca.pem" "$DIR/tls/ca-cert.pem"
cp "$DIR/psk" "$DIR/tls/keys.psk"
start_daemon
BYTES=50331648
listens() { $CTL status | sed -n "s/^nbd listens on \($1.*\)/\1/p" | sed -n "$2p"; }
NBD6="nbd://$(listens '\[::1\]' 1)/v"
TLS4=$(listens 127 2)
TLS6=$(listens '\[::1\]' 2)
[ -n "$TLS6" ] || fail "it does not listen on IPv6"
CLEAR="$NBD $NBD6 $NBD_UNIX nbd+unix:///v?socket=$DIR/allow.sock"
SECRET="nbds://$TLS4/v?tls-certificates=$DIR/tls nbds://carol@$TLS6/v?tls-psk-file=$DIR/psk nbds+unix://carol@/v?socket=$DIR/allow.sock&tls-psk-file=$DIR/psk"

same_as() { # FILE URI: what a client reads
    qemu-img compare -f raw -F raw "$1" "$2" >"$DIR/compare" 2>&1 || fail "qemu-img compare $2: $(cat "$DIR/compare")"
    nbdcopy --connections=4 --requests=64 "$2" "$DIR/out"
    cmp "$1" "$DIR/out" || fail "nbdcopy reads other bytes by $2"
}

# Written by one client on one listener, read by all on all.
random_file "$DIR/in1" $BYTES 1
random_file "$DIR/in2" $BYTES 2
qemu-img convert -n -f raw -O raw -W -m 8 "$DIR/in1" "$NBD"
for uri in $CLEAR; do same_as "$DIR/in1" "$uri"; done
for uri in $SECRET; do
    nbdcopy --connections=4 --requests=64 "$uri" "$DIR/out" && cmp "$DIR/in1" "$DIR/out" || fail "nbdcopy reads other bytes by $uri"
done
nbdcopy --flush --connections=4 --requests=64 "$DIR/in2" "${SECRET%% *}"
qemu-img convert -n -f raw -O raw "$NBD_UNIX" "$DIR/out"
cmp "$DIR/in2" "$DIR/out" || fail "qemu-img read other bytes than nbdcopy wrote"

patterns() { # CACHE IMAGE
    cache=$1
    shift
    qemu-io -t "$cache" -c 'write -P 0x5a 65536 196608' -c 'write -f -P 0xa5 512 1024' -c 'read -P 0x5a 65536 196608' \
        -c 'read -P 0xa5 512 1024' -c 'write -z 131072 65536' -c 'read -P 0 131072 65536' -c 'write -z -u 262144 65536' \
        -c 'discard 65536 65536' -c 'read -P 0 65536 65536' -c 'write -P 0x33 1000 3000' -c 'read -P 0x33 1000 3000' -c flush "$@"
}
for uri in $CLEAR $SECRET; do
    nbdinfo --json "$uri" >"$DIR/info" || fail "nbdinfo $uri"
    for line in '"export-size": 50331648' '"is_read_only": false' '"can_flush": true' '"can_fua": true' '"can_trim": true' '"can_zero": true' \
        '"can_multi_conn": true' '"can_cache": true' '"can_df": true' '"can_fast_zero": true' '"block_size_minimum": 512' '"block_size_maximum": 33554432' \
        '"structured": true' '"description": "test volume"'; do
        grep -q "$line" "$DIR/info" || fail "nbdinfo $uri does not show $line: $(cat "$DIR/info")"
    done
    PATH=/usr/bin:$PATH URI=$uri nbdsh -c 'exec(open("'"$(dirname "$0")"'/nbd_shell.py").read())' >"$DIR/shell" 2>&1 || fail "nbdsh $uri: $(tail -n 5 "$DIR/shell")"
done
for uri in $CLEAR; do
    fio --name=v --ioengine=nbd --uri="$uri" --rw=randrw --bsrange=512-256k --blockalign=512 --size=8m --iodepth=32 --verify=crc32c --verify_fatal=1 \
        --verify_dump=0 --verify_state_save=0 --output="$DIR/fio" || fail "fio $uri: $(tail -n 5 "$DIR/fio")"
    qemu-img info --output=json "$uri" | grep -q "\"virtual-size\": $BYTES" || fail "qemu-img info $uri"
    for cache in none writeback writethrough directsync unsafe; do
        patterns "$cache" -f raw "$uri" >"$DIR/io" 2>&1 || fail "qemu-io -t $cache $uri: $(cat "$DIR/io")"
        ! grep -qi 'fail' "$DIR/io" || fail "qemu-io -t $cache $uri: $(cat "$DIR/io")"
    done
done
x509="tls-creds-x509,id=t,endpoint=client,dir=$DIR/tls"
psk="tls-creds-psk,id=t,endpoint=client,dir=$DIR/tls,username=carol"
for uri in "$x509 host=127.0.0.1,port=${TLS4##*:}" "$psk host=::1,port=${TLS6##*:}" "$psk path=$DIR/allow.sock"; do
    image="driver=nbd,${uri#* },export=v,tls-creds=t"
    patterns writeback --object "${uri%% *}" --image-opts "$image" >"$DIR/io" 2>&1 || fail "qemu-io $image: $(cat "$DIR/io")"
    ! grep -qi 'fail' "$DIR/io" || fail "qemu-io $image: $(cat "$DIR/io")"
    qemu-img convert --object "${uri%% *}" --image-opts "$image" -O raw "$DIR/out" && nbdcopy "$NBD" "$DIR/out2" && cmp "$DIR/out" "$DIR/out2" ||
        fail "QEMU reads other bytes by $image"
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
qemu-img create -q -f qcow2 "$NBD" 40M
qemu-io -f qcow2 -c 'write -q -P 0x11 0 8M' -c 'discard -q 1M 1M' "$NBD" >"$DIR/io" || fail "qemu-io in qcow2: $(cat "$DIR/io")"
qemu-img check -q -f qcow2 "$NBD" || fail "qemu-img check"
# What was discarded whole, or never written, is a hole.
nbdcopy --flush --connections=4 "$DIR/in2" "$NBD"
qemu-io -f raw -c 'discard 16M 16M' "$NBD" >/dev/null
nbdinfo --map --totals "$NBD" | grep -q '^ *16777216 .*hole,zero' || fail "the discarded 16 MiB are no hole: $(nbdinfo --map "$NBD")"
dd if=/dev/zero of="$DIR/in2" bs=1M seek=16 count=16 conv=notrunc 2>/dev/null
for uri in "$NBD" "$NBD6" "$NBD_UNIX"; do same_as "$DIR/in2" "$uri"; done
wait_idle
$CTL status >"$DIR/status" || fail "not healthy at the end: $(cat "$DIR/status")"
stop_daemon
