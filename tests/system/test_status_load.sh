# A thousand questions about the status while fio writes and verifies: nothing fails, and no request waits for them.
. "$(dirname "$0")/functions.sh"
make_disks 4 64M
write_config raid5 'size = "48 MiB";'
start_daemon
fio --name=load --ioengine=nbd --uri="$NBD_UNIX" --rw=randrw --bs=16k --size=32m --time_based --runtime=60 --iodepth=8 \
    --verify=crc32c --verify_fatal=1 --verify_dump=0 --verify_state_save=0 --max_latency=10s --output="$DIR/fio" >/dev/null 2>&1 &
FIO=$!
PIDS=$FIO
curl --silent --fail --show-error --unix-socket "$SOCKET" "http://corbel/api/v1/status?n=[1-1000]" >"$DIR/answers" || fail "curl: $?"
answers=$(grep -c '"arrays"' "$DIR/answers") || :
[ "$answers" -ge 1000 ] || fail "$answers answers to 1000 questions"
kill -0 "$FIO" 2>/dev/null || fail "fio ended: $(tail -n 20 "$DIR/fio")"
kill -INT "$FIO"
wait "$FIO" || :
PIDS=
grep -q 'err= 0' "$DIR/fio" || fail "fio: $(cat "$DIR/fio")"
[ "$(array_state)" = optimal ] || fail "the array is '$(array_state)'"
stop_daemon
