# A thousand questions and more about the status while fio writes and verifies: nothing fails, and no request waits for them.
. "$(dirname "$0")/functions.sh"
make_disks 4 64M
write_config raid5 'size = "48 MiB";'
start_daemon
fio --name=load --ioengine=nbd --uri="$NBD_UNIX" --rw=randrw --bs=16k --size=32m --time_based --runtime=4 --iodepth=8 \
    --verify=crc32c --verify_fatal=1 --verify_dump=0 --verify_state_save=0 --max_latency=10s --output="$DIR/fio" >/dev/null 2>&1 &
FIO=$!
PIDS=$FIO
answers=0
while kill -0 "$FIO" 2>/dev/null || [ "$answers" -lt 1000 ]; do
    curl --silent --fail --show-error --unix-socket "$SOCKET" "http://corbel/api/v1/status?n=[1-500]" >"$DIR/answers" || fail "curl: $?"
    count=$(grep -c '"arrays"' "$DIR/answers") || :
    [ "$count" -ge 500 ] || fail "$count answers to 500 questions"
    answers=$((answers + count))
done
status=0
wait "$FIO" || status=$?
PIDS=
[ "$status" -eq 0 ] || fail "fio ended with $status: $(cat "$DIR/fio")"
[ "$(array_state)" = optimal ] || fail "the array is '$(array_state)'"
stop_daemon
