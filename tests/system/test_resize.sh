# The size of a volume in the config: apply shows what it means and does it, longer, or by force shorter; initiators that
# are connected hear of it (by iSCSI, also where the volume is another reactor's), new NBD connections see it; refused with
# numbers where there is no room. What it holds stays, across a kill.
. "$(dirname "$0")/functions.sh"
here=$(cd "$(dirname "$0")" && pwd)
python=/usr/bin/python3
[ -x "$python" ] || python=python3
export PYTHONDONTWRITEBYTECODE=1
MIB=1048576
make_disks 4 200M
EXTRA_DAEMON='reactors = 2;'
EXTRA_TARGETS=', { name = "iqn.2026-01.org.example:b"; luns = ( { lun = 0; volume = "b/v"; }, { lun = 1; volume = "r/v"; } ); }'
EXTRA_VOLUMES='/* more */'
write_config raid5 'size = "64 MiB"; cache = { size = "8 MiB"; };'
truncate -s 64M "$DIR/b0" "$DIR/b1"
sed -i "s|^arrays = (|& { name = \"b\"; disks = [ \"$DIR/b0\", \"$DIR/b1\" ]; volumes = ( { name = \"v\"; level = \"raid1\"; } ); },|" "$CONFIG"
size() { sed -i "s/size = \"[0-9]* MiB\"; cache/size = \"$1 MiB\"; cache/" "$CONFIG"; }
nbd_size() { nbdinfo --size "$NBD"; }
told() { # TARGET LUN MIB WORDS...: the config says so, corbelctl apply WORDS makes it so
    size "$3"
    target=$1 lun=$2 bytes=$(($3 * MIB))
    shift 3
    # shellcheck disable=SC2086
    "$python" "$here/resize_told.py" "$ISCSI_ADDRESS" "$target" "$lun" "$bytes" $CTL apply --yes "$@" >"$DIR/out" 2>&1 ||
        fail "to $bytes bytes, LUN $lun of $target: $(cat "$DIR/out")"
    [ "$(nbd_size)" = "$bytes" ] || fail "NBD says $(nbd_size), not $bytes"
}
refused() { # WITH WORDS...
    with=$1
    shift
    $CTL apply "$@" >"$DIR/out" 2>&1 && fail "done: $(cat "$DIR/out")"
    grep -q -- "$with" "$DIR/out" || fail "not '$with': $(cat "$DIR/out")"
    [ "$(nbd_size)" = "$now" ] || fail "the size is another"
}
start_daemon
random_file "$DIR/want" $((64 * MIB)) 5
qemu-img convert -n -f raw -O raw "$DIR/want" "$NBD" || fail "convert"

size 100
$CTL apply --dry-run >"$DIR/out" || fail "$(cat "$DIR/out")"
grep -q 'make volume r/v longer, from 64 MiB to 100 MiB, in the free space behind it$' "$DIR/out" || fail "$(cat "$DIR/out")"
[ "$(nbd_size)" = $((64 * MIB)) ] || fail "a dry run did it"
told "$TARGET" 0 100
$CTL apply --dry-run | grep -q 'everything is as the config says' || fail "$($CTL apply --dry-run)"
truncate -s 100M "$DIR/want"
cmp_all() { qemu-img compare -f raw -F raw "$NBD" "$DIR/want" >"$DIR/out" 2>&1 || fail "$1: $(cat "$DIR/out")"; }
cmp_all "longer: zeroes behind what was there"
told iqn.2026-01.org.example:b 1 300
truncate -s 300M "$DIR/want"
random_file "$DIR/more" $((200 * MIB)) 6
dd if="$DIR/more" of="$DIR/want" bs=1M seek=100 conv=notrunc 2>/dev/null
qemu-img convert -n -f raw -O raw "$DIR/want" "$NBD" || fail "convert"
kill_daemon
launch_daemon
cmp_all "after a kill"
wait_idle

# No room.
now=$((300 * MIB))
size 9000
refused 'volume v: for 8.7 GiB it needs, as raid5, 2.9 GiB on each of its 4 disks, and has ' --yes
# Shorter: only by force, and the plan says what is lost.
size 30
refused 'would lose its last 283115520 bytes, and what is on them: --force does it' --yes
$CTL apply --dry-run --force >"$DIR/out" || fail "$(cat "$DIR/out")"
grep -q 'make volume r/v shorter, from 300 MiB to 30 MiB; what is in its last 283115520 bytes is lost' "$DIR/out" || fail "$(cat "$DIR/out")"
told "$TARGET" 0 30 --force
truncate -s 30M "$DIR/want"
cmp_all "shorter"
told iqn.2026-01.org.example:b 1 25 --force
truncate -s 25M "$DIR/want"
# What is free now is another volume's; then there is none behind.
sed -i 's|/\* more \*/|, { name = "w"; level = "raid0"; size = "64 MiB"; }|' "$CONFIG"
$CTL apply --yes >"$DIR/out" 2>&1 || fail "$(cat "$DIR/out")"
now=$((25 * MIB))
size 90
refused 'volume v: for 90.0 MiB it needs, as raid5, 30.0 MiB on each of its 4 disks, and has ' --yes
size 25
cmp_all "beside another one"
# A volume that becomes shorter under a client that writes: the client sees errors, if it asks for what is not there.
size 24
fio --name=w --ioengine=nbd --uri="$NBD" --rw=randwrite --bs=16k --iodepth=16 --size=25M --time_based --runtime=4 >"$DIR/fio" 2>&1 &
PIDS="$PIDS $!"
fio_pid=$!
sleep 1
$CTL apply --yes --force >"$DIR/out" 2>&1 || fail "$(cat "$DIR/out")"
wait "$fio_pid" || grep -q 'error' "$DIR/fio" || fail "fio: $(cat "$DIR/fio")"
PIDS=
[ "$(nbd_size)" = $((24 * MIB)) ] || fail "NBD says $(nbd_size)"
kill -0 "$PID" || fail "the daemon ended"
stop_daemon
launch_daemon
[ "$(nbd_size)" = $((24 * MIB)) ] || fail "after a restart NBD says $(nbd_size)"
[ "$(array_state)" = optimal ] || fail "$($CTL status)"
stop_daemon
