# The daemon is stopped for longer than a disk may take, in the middle of writes, as by a machine that is paused: it goes on
# where it was, and no disk is lost.
. "$(dirname "$0")/functions.sh"
make_disks 1 96M
write_config jbod
start_daemon
fio --name=load --ioengine=nbd --uri="$NBD_UNIX" --size=60m --rw=randwrite --bs=64k --iodepth=32 --verify=crc32c \
    --do_verify=0 --verify_state_save=0 --time_based --runtime=12 --output="$DIR/fio.out" >/dev/null 2>&1 &
FIO=$!
PIDS=$FIO
sleep 1
kill -STOP "$PID"
sleep 9
kill -CONT "$PID"
wait "$FIO" || fail "fio: $(tail -n 20 "$DIR/fio.out")"
grep -q 'did not run for 9 s' "$LOG" || fail "the pause is not in the log: $(cat "$LOG")"
[ "$(array_state)" = optimal ] || fail "'$(array_state)' after the pause: $(tail -n 3 "$LOG")"
stop_daemon
