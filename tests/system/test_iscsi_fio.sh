# fio, verifying, through an iSCSI LUN. Debian's has no engine for iSCSI: QEMU's initiator stands between, and fio comes to it by NBD.
# Random and sequential, with sessions dropped and a disk failing in the middle, degraded; and another initiator reads the same.
. "$(dirname "$0")/functions.sh"
make_disks 4 96M
write_config raid5 'size = "126 MiB";'
start_daemon
wait_idle
qemu-nbd -f raw -t -k "$DIR/initiator.sock" --shared=4 --discard=unmap "$ISCSI" &
INITIATOR=$!
PIDS=$INITIATOR
wait_for test -S "$DIR/initiator.sock" || fail "qemu-nbd does not log in"

verify() { # name, further fio options
    name=$1
    shift
    fio --name="$name" --ioengine=nbd --uri="nbd+unix:///?socket=$DIR/initiator.sock" --bsrange=512-256k --bs_unaligned=0 \
        --blockalign=512 --size=120m --io_size=120m --iodepth=16 --fsync=64 --verify=crc32c --verify_fatal=1 --verify_dump=0 \
        --verify_state_save=0 --output="$DIR/fio.$name" "$@" || fail "fio $name: $(tail -n 20 "$DIR/fio.$name")"
    grep -q 'err= 0' "$DIR/fio.$name" || fail "fio $name: $(cat "$DIR/fio.$name")"
}
verify random --rw=randrw --randseed=1
verify sequential --rw=write --bs=1m --randseed=2

verify dropped --rw=randrw --randseed=3 &
FIO=$!
PIDS="$INITIATOR $FIO"
drops=0
while kill -0 "$FIO" 2>/dev/null && [ "$drops" -lt 3 ]; do
    sleep 0.5
    for session in $($CTL session list | awk -v target="$TARGET" '$0 ~ target {print $1}'); do
        $CTL session drop "$session" >/dev/null 2>&1 && drops=$((drops + 1))
    done
done
wait "$FIO" || fail "fio while sessions are dropped"
[ "$drops" -gt 0 ] || fail "no session was dropped"

verify failing --rw=randrw --randseed=4 &
FIO=$!
PIDS="$INITIATOR $FIO"
sleep 0.5
$CTL disk fail r/1 >/dev/null || fail "disk fail"
wait "$FIO" || fail "fio while a disk fails"
PIDS=$INITIATOR
[ "$(array_state)" = degraded ] || fail "the array is '$(array_state)', not degraded"
verify degraded --rw=randrw --randseed=5
qemu-img compare -f raw -F raw "nbd+unix:///?socket=$DIR/initiator.sock" "$ISCSI" >"$DIR/out" || fail "another initiator sees: $(cat "$DIR/out")"
kill "$INITIATOR"
wait "$INITIATOR" || :
PIDS=
echo "five runs of fio verified, $drops sessions dropped meanwhile"
stop_daemon
