# A RAID 6 whose journal is on a file of its own: kill -9 under load with two members gone, the file removed while the
# daemon is stopped (cleanly, and after a kill), and what apply says of disks that will not do.
. "$(dirname "$0")/functions.sh"
BLOCKS='--ioengine=nbd --bs=4k --offset=0 --size=8m --verify=crc32c --verify_fatal=1 --verify_dump=0 --verify_state_save=0'

verify() { # when
    fio --name=verify $BLOCKS --uri="$NBD_UNIX" --rw=read --iodepth=16 --output="$DIR/fio.verify" >/dev/null 2>&1 &&
        grep -q 'err= 0' "$DIR/fio.verify" || fail "$1: fio: $(tail -n 20 "$DIR/fio.verify")"
}

kill_under_load() { # seed
    fio --name=load $BLOCKS --uri="$NBD_UNIX" --do_verify=0 --rw=randwrite --norandommap --time_based --runtime=60 --iodepth=16 \
        --randseed="$1" --output="$DIR/fio.load" >/dev/null 2>&1 &
    FIO=$!
    PIDS=$FIO
    sleep "0.$(($1 * 37 % 60 + 20))"
    kill_daemon
    wait "$FIO" 2>/dev/null || :
    PIDS=
}

where() {
    $CTL --json status | python3 -c 'import json, sys; print(json.load(sys.stdin)["arrays"][0]["journal"]["where"])'
}

journal_is() { # where, when
    [ "$(where)" = "$1" ] || fail "$2: the journal is '$(where)', not '$1'"
}

create() { # journal files, in quotes and with commas
    [ -z "$PID" ] || stop_daemon
    rm -f "$DIR"/d* "$DIR"/j*
    make_disks 5 48M
    truncate -s 16M "$DIR/j0"
    truncate -s 16M "$DIR/j1"
    write_config raid6 'size = "24 MiB";'
    sed -i "s|disks = \[.*\];|& journal = [ $1 ];|" "$CONFIG"
    start_daemon
    fio --name=fill $BLOCKS --uri="$NBD_UNIX" --do_verify=0 --rw=write --iodepth=16 --end_fsync=1 --output="$DIR/fio.fill" >/dev/null 2>&1 ||
        fail "fill: $(cat "$DIR/fio.fill")"
}

# --- killed under load, and two members do not come back ---
create "\"$DIR/j0\""
journal_is 'on its own devices' 'created'
for seed in 1 2 3; do
    kill_under_load "$seed"
    [ "$seed" != 3 ] || rm "$DIR/d1" "$DIR/d3"
    launch_daemon
    verify "killed, $seed"
done
[ "$(array_state)" = degraded ] || fail "without two disks it is '$(array_state)'"
$CTL status | grep -q "^r/journal *active *$DIR/j0 (on its own devices)" || fail "status: $($CTL status)"

# --- the file is gone after a kill: refused, and by force ---
create "\"$DIR/j0\""
kill_under_load 4
mv "$DIR/j0" "$DIR/gone"
launch_daemon
[ "$(array_state)" = not ] || fail "without its journal after a kill it is '$(array_state)'"
$CTL array list | grep -q "its journal device $DIR/j0 is not there: bring it back" || fail "reason: $($CTL array list)"
kill_daemon
mv "$DIR/gone" "$DIR/j0"
launch_daemon
verify 'the file is back'
kill_under_load 5
mv "$DIR/j0" "$DIR/gone"
launch_daemon
$CTL apply --force --yes >"$DIR/out.ctl" 2>&1 || fail "by force: $(cat "$DIR/out.ctl")"
wait_idle
journal_is 'journal device lost: on the members now' 'by force'
[ "$(array_state)" = optimal ] || fail "by force it is '$(array_state)'"
grep -q 'started by force without its journal' "$LOG" || fail 'the log does not say what may be lost'
mv "$DIR/gone" "$DIR/j0" # old entries: never replayed
kill_under_load 6
launch_daemon
verify 'an old journal device is back'
journal_is 'journal device lost: on the members now' 'the old one is back'

# --- gone after a clean stop; and one of two ---
create "\"$DIR/j0\", \"$DIR/j1\""
journal_is 'on its own devices' 'two'
kill_under_load 7
rm "$DIR/j0"
launch_daemon
verify 'one of two is gone'
journal_is 'one journal device lost: the other goes on alone' 'one of two'
stop_daemon
rm "$DIR/j1"
launch_daemon
journal_is 'journal device lost: on the members now' 'after a clean stop'
verify 'both are gone'
kill_under_load 8
rm "$DIR/d0" "$DIR/d2"
launch_daemon
verify 'the journal on the members'
stop_daemon

# --- what holds something is not taken ---
create "\"$DIR/j0\""
stop_daemon
rm "$DIR"/d*
make_disks 5 48M
launch_daemon
if $CTL apply --yes >"$DIR/out.ctl" 2>&1; then fail 'a journal device of another array was taken'; fi
grep -q "disk $DIR/j0 holds the journal of array r; --force overwrites it" "$DIR/out.ctl" || fail "apply: $(cat "$DIR/out.ctl")"
