# An array over three machines, each of which serves its disk by NBD. One is killed under load: the load goes on without
# an error; it comes back, joins by itself, and catches up. Then it stalls instead, and is not there at a start.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/remotes.sh"

state_is() { [ "$(array_state)" = "$1" ]; }
whole() { state_is optimal && no_jobs; }

load() { # seconds
    fio --name=load --ioengine=nbd --uri="$NBD_UNIX" --bs=4k-64k --rw=randrw --iodepth=8 --size=48m --verify=crc32c \
        --verify_fatal=1 --verify_backlog=64 --verify_state_save=0 --time_based --runtime="$1" --fsync=16 \
        --output="$DIR/fio.out" >/dev/null 2>&1 &
    FIO=$!
    PIDS="$PIDS $FIO"
}
load_over() { # when
    wait "$FIO" || fail "$1: fio: $(tail -n 20 "$DIR/fio.out")"
    grep -q 'err= 0' "$DIR/fio.out" || fail "$1: fio: $(cat "$DIR/fio.out")"
}
scrub_clean() { # when
    $CTL scrub r/v >/dev/null || fail "$1: scrub"
    wait_idle
    [ "$(status_field mismatches)" = 0 ] || fail "$1: the scrub found $(status_field mismatches)"
}

for name in a b c; do
    make_remote "$name" 128M
    start_remote "$name"
done
DISKS="\"$NBD_a\", \"$NBD_b\", \"$NBD_c\""
write_config raid5 'size = "96 MiB";'
start_daemon
state_is optimal || fail "'$(array_state)' when created: $($CTL array list)"
$CTL disk list | grep -q "$NBD_b" || fail "disk list: $($CTL disk list)"

# One machine dies under load, and comes back.
load 6
sleep 2
kill_remote b
wait_for state_is degraded || fail "'$(array_state)' without b"
start_remote b
wait_for_long whole || fail "b did not come back: $($CTL status; tail -n 5 "$LOG")"
load_over "killed"
grep -q "slot 1.*caught up" "$LOG" || fail "b was not caught up"
scrub_clean "killed"

stop_daemon
stop_remotes
