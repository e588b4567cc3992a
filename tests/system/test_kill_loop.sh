# kill -9 under writes, again and again: what was flushed is there, the array comes up, the resync makes it consistent.
# In `make check` a few rounds; `make soak` goes on for SOAK_MINUTES.
. "$(dirname "$0")/functions.sh"
make_disks 5 48M
write_config raid6 "size = \"64 MiB\"; ${VOLUME_MORE:-}"
start_daemon
end=$(($(date +%s) + ${SOAK_MINUTES:-0} * 60))
round=0
random_file "$DIR/flushed" 8388608 99
qemu-io -f raw -c "write -s $DIR/flushed 0 8388608" -c flush "$NBD" >/dev/null || fail "first write"
while [ "$round" -lt 4 ] || [ "$(date +%s)" -lt "$end" ]; do
    round=$((round + 1))
    fio --name=load --ioengine=nbd --uri="$NBD_UNIX" --rw=randwrite --bsrange=512-128k --blockalign=512 --offset=16m --size=40m \
        --time_based --runtime=20 --iodepth=16 --randseed="$round" --output="$DIR/fio" >/dev/null 2>&1 &
    FIO=$!
    PIDS=$FIO
    sleep "0.$((round * 37 % 90 + 10))"
    random_file "$DIR/flushed" 8388608 "$round"
    qemu-io -f raw -c "write -s $DIR/flushed 0 8388608" -c flush "$NBD" >/dev/null || fail "round $round: write"
    kill_daemon
    wait "$FIO" 2>/dev/null || :
    PIDS=
    launch_daemon
    qemu-img convert -f raw -O raw "$NBD" "$DIR/out"
    cmp -n 8388608 "$DIR/flushed" "$DIR/out" || fail "round $round: flushed bytes are not there"
    wait_idle
    # Consistent again: without two disks the same bytes read back.
    a=$((round % 5)) b=$(((round + 2) % 5))
    $CTL disk fail "r/$a" >/dev/null && $CTL disk fail "r/$b" >/dev/null || fail "round $round: disk fail"
    qemu-img compare -f raw -F raw "$DIR/out" "$NBD" >/dev/null || fail "round $round: reconstruction differs after the resync"
    $CTL disk online "r/$a" >/dev/null && $CTL disk online "r/$b" >/dev/null || fail "round $round: disk online"
    wait_idle
done
echo "$round rounds"
stop_daemon
