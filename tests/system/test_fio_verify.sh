# fio writes random mixed sizes over NBD and verifies them: healthy, with a disk failing in the middle, and degraded.
. "$(dirname "$0")/functions.sh"
make_disks 5 96M
write_config raid5 'size = "192 MiB";'
start_daemon

verify() { # name, further fio options
    name=$1
    shift
    fio --name="$name" --ioengine=nbd --uri="$NBD_UNIX" --rw=randrw --bsrange=512-256k --bs_unaligned=0 --blockalign=512 \
        --size=160m --io_size=160m --iodepth=16 --verify=crc32c --verify_fatal=1 --verify_dump=0 --verify_state_save=0 \
        --output="$DIR/fio.$name" "$@" ||
        fail "fio $name: $(tail -n 20 "$DIR/fio.$name")"
    grep -q 'err= 0' "$DIR/fio.$name" || fail "fio $name: $(cat "$DIR/fio.$name")"
}
verify healthy --randseed=1
verify failing --randseed=2 &
FIO=$!
PIDS=$FIO
wait_for grep -q . "$LOG"
sleep 1
$CTL disk fail "$DIR/d2" >/dev/null || fail "disk fail"
wait "$FIO" || fail "fio while a disk fails"
PIDS=
[ "$(array_state)" = degraded ] || fail "the array is '$(array_state)', not degraded"
verify degraded --randseed=3
$CTL disk fail "$DIR/d3" >"$DIR/out" 2>&1 && fail "a second disk of a RAID 5 could be failed by hand"
grep -q 'v' "$DIR/out" || fail "the refusal does not name the volume: $(cat "$DIR/out")"
$CTL disk online "$DIR/d2" >/dev/null || fail "disk online"
wait_idle
[ "$(array_state)" = optimal ] || fail "the array is '$(array_state)', not optimal"
nbdcopy "$NBD" "$DIR/before"
$CTL disk fail r/0 >/dev/null || fail "disk fail r/0 after the rebuild"
nbdcopy "$NBD" "$DIR/after"
cmp "$DIR/before" "$DIR/after" || fail "the rebuilt disk holds other bytes than it should"
verify again --randseed=4
stop_daemon
