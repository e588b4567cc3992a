# Another disk in the place of one that is out of service, by its path; refused where it must be.
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
refused 'in service already' r/1 "$DIR/n0"
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
$CTL volume scrub r/v >/dev/null
wait_idle
$CTL volume scrub-show r/v | grep -q ': 0 blocks' || fail "$($CTL volume scrub-show r/v)"
stop_daemon
launch_daemon
[ "$(array_state)" = optimal ] || fail "after a restart: $($CTL array list)"
nbdcopy "$NBD" "$DIR/back"
cmp -n 33554432 "$DIR/in" "$DIR/back" || fail "the volume changed"
stop_daemon
