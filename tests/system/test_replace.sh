# Another disk in the place of one that is out of service, by its path; refused where it must be. And in the place of one
# that serves on while it is copied, under fio's eyes, in a volume with redundancy and in one without.
. "$(dirname "$0")/functions.sh"
make_disks 4 64M
truncate -s 64M "$DIR/n0" "$DIR/elsewhere"
truncate -s 32M "$DIR/n1"
truncate -s 66M "$DIR/n2"
EXTRA_TOP="disks = [ \"$DIR/n*\" ];"
write_config raid6 'size = "32 MiB";'
start_daemon
wait_idle
random_file "$DIR/in" 33554432 1
nbdcopy --flush "$DIR/in" "$NBD"
refused() { # sentence, then the operands
    sentence=$1
    shift
    $CTL disk replace "$@" >"$DIR/out" 2>&1 && fail "not refused: disk replace $*"
    grep -q "$sentence" "$DIR/out" || fail "disk replace $*: $(cat "$DIR/out")"
}
refused 'too few' r/1 "$DIR/n1"
$CTL disk fail r/1 >/dev/null
refused 'not among' r/1 "$DIR/elsewhere"
refused 'in slot 2 of array r' r/1 "$DIR/d2"
refused 'too few' r/1 "$DIR/n1"
mke2fs -q "$DIR/n0" 2>/dev/null
refused 'holds .*ext2' r/1 "$DIR/n0"
refused 'no disk of a running array' r/7 "$DIR/n0"
$CTL disk replace r/1 "$DIR/n0" --force >/dev/null || fail "by force"
wait_idle
$CTL disk fail r/3 >/dev/null
$CTL disk replace "$DIR/d3" "$DIR/n2" >/dev/null || fail "a larger disk"
wait_idle
[ "$(array_state)" = optimal ] || fail "$($CTL status)"

# A spare that was put into a slot by hand is no spare any more.
truncate -s 64M "$DIR/n4"
$CTL disk add-spare "$DIR/n4" >/dev/null || fail "add-spare"
$CTL disk list | grep 'spare' | grep -q "$DIR/n4" || fail "no spare: $($CTL disk list)"
$CTL array pause r >/dev/null
$CTL disk replace r/0 "$DIR/n4" >/dev/null || fail "by a spare"
taken() {
    $CTL disk list | grep 'spare' | grep -q n4 && fail "$1: a spare as well: $($CTL disk list)"
    ! $CTL disk remove "$DIR/n4" >"$DIR/out" 2>&1 || fail "$1: let go of: $(cat "$DIR/out")"
}
taken "while it is copied"
$CTL array resume r >/dev/null
in_place() { $CTL disk list | grep '^r/0 ' | grep -q "n4"; }
wait_for_long in_place || fail "by a spare: $($CTL status)"
taken "in its place"
wait_idle

# Called off: the old disk stays, and the new one can be used again.
$CTL job cancel r/2 2>/dev/null && fail "nothing was called off"
truncate -s 64M "$DIR/n3"
for by in r/2 "$DIR/d2" "$DIR/n3"; do
    $CTL array pause r >/dev/null
    wait_for $CTL disk replace r/2 "$DIR/n3" || fail "disk replace before $by" # once the one before has been let go of
    $CTL job cancel r/v 2>"$DIR/out" && fail "called off by the volume"
    grep -q 'call that off by its slot' "$DIR/out" || fail "$(cat "$DIR/out")"
    $CTL job cancel "$by" >/dev/null || fail "job cancel $by"
    gone() { ! $CTL status | grep -q 'replace of' && $CTL disk list | grep '^r/2 ' | grep -q "$DIR/d2"; }
    wait_for gone || fail "job cancel $by: $($CTL status)"
done
$CTL array resume r >/dev/null
$CTL volume scrub r/v >/dev/null
wait_idle
$CTL volume scrub-show r/v | grep -q ': 0 blocks' || fail "$($CTL volume scrub-show r/v)"
stop_daemon
launch_daemon
[ "$(array_state)" = optimal ] || fail "after a restart: $($CTL array list)"
nbdcopy "$NBD" "$DIR/back"
cmp -n 33554432 "$DIR/in" "$DIR/back" || fail "the volume changed"
stop_daemon

replaced() { # slot, path
    $CTL disk list | grep "^r/$1 " | grep -q "$2"
}
for level in raid5 jbod; do
    rm -f "$DIR"/d? "$DIR"/n? "$DIR"/elsewhere
    make_disks 3 96M
    truncate -s 96M "$DIR/n0" "$DIR/n1"
    write_config $level 'size = "64 MiB";'
    start_daemon
    wait_idle
    fio --name=$level --ioengine=nbd --uri="$NBD_UNIX" --rw=randrw --bsrange=512-128k --bs_unaligned=0 --blockalign=512 \
        --size=64m --io_size=256m --rate=20m --iodepth=8 --verify=crc32c --verify_fatal=1 --verify_dump=0 \
        --verify_state_save=0 --output="$DIR/fio.$level" &
    FIO=$!
    PIDS=$FIO
    wrote() { $CTL session list --json | grep -q '"written_bytes": [1-9]'; }
    wait_for wrote || fail "$level: no writes: $($CTL session list --json)"
    $CTL disk replace r/0 "$DIR/n0" >/dev/null || fail "$level: disk replace"
    refused 'in use\|is replacing' r/0 "$DIR/n0"
    wait_for_long replaced 0 "$DIR/n0" || fail "$level: $($CTL status)"
    [ "$(array_state)" = optimal ] || fail "$level: $($CTL status)"
    wait "$FIO" || fail "$level: fio: $(tail -n 20 "$DIR/fio.$level")"
    PIDS=
    nbdcopy "$NBD" "$DIR/before"
    $CTL disk replace "$DIR/n0" "$DIR/n1" >/dev/null || fail "$level: disk replace at rest"
    wait_for_long replaced 0 "$DIR/n1" || fail "$level: $($CTL status)"
    dd if=/dev/zero of="$DIR/n0" bs=1M count=96 conv=notrunc status=none
    stop_daemon
    launch_daemon
    [ "$(array_state)" = optimal ] || fail "$level: after a restart: $($CTL array list)"
    nbdcopy "$NBD" "$DIR/after"
    cmp "$DIR/before" "$DIR/after" || fail "$level: the volume changed"
    stop_daemon
done
