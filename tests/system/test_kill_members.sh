# kill -9 under load, again and again, and every few restarts a member that is gone when the daemon comes back, replaced by
# a blank disk and rebuilt before the next one goes. What was flushed is there, and every block under load is one that was
# written there, whole: fio's checksums are good. In `make check` a few loops a level; `make soak-kill LOOPS=200`.
. "$(dirname "$0")/functions.sh"
LOOPS=${LOOPS:-12}   # of all levels together
EVERY=${EVERY:-4}    # restarts from one removal to the next
LEVELS=${LEVELS:-raid6 raid5 raid1}
BLOCKS='--ioengine=nbd --bs=4k --offset=8m --size=8m --verify=crc32c --verify_fatal=1 --verify_dump=0 --verify_state_save=0'

# Checksums of all blocks under load, and the bytes that were flushed.
verify() { # when
    fio --name=verify $BLOCKS --uri="$NBD_UNIX" --rw=read --iodepth=16 --output="$DIR/fio.verify" >/dev/null 2>&1 ||
        fail "$level loop $loop, $1: fio: $(tail -n 20 "$DIR/fio.verify")"
    grep -q 'err= 0' "$DIR/fio.verify" || fail "$level loop $loop, $1: fio: $(cat "$DIR/fio.verify")"
    qemu-img convert -f raw -O raw "$NBD" "$DIR/out"
    cmp -n 4194304 "$DIR/flushed" "$DIR/out" || fail "$level loop $loop, $1: flushed bytes are not there"
}

put_flushed() { # seed
    random_file "$DIR/flushed" 4194304 "$1"
    qemu-io -f raw -c "write -s $DIR/flushed 0 4194304" -c flush "$NBD" >/dev/null || fail "$level loop $loop: write"
}

kill_under_load() {
    fio --name=load $BLOCKS --uri="$NBD_UNIX" --do_verify=0 --rw=randwrite --norandommap --time_based --runtime=60 --iodepth=16 \
        --randseed="$loop" --output="$DIR/fio.load" >/dev/null 2>&1 &
    FIO=$!
    PIDS=$FIO
    sleep "0.$((loop * 37 % 60 + 15))"
    put_flushed "$loop"
    kill_daemon
    wait "$FIO" 2>/dev/null || :
    PIDS=
}

# The member is gone; a blank disk takes its place.
replace() { # disk
    [ "$(array_state)" = degraded ] || fail "$level loop $loop: '$(array_state)' without d$1: $($CTL array list)"
    verify "without d$1"
    rm -f "$DIR/gone"
    truncate -s 48M "$DIR/d$1"
    $CTL disk online "$DIR/d$1" >"$DIR/out.ctl" 2>&1 || fail "$level loop $loop: online: $(cat "$DIR/out.ctl")"
    wait_idle
    [ "$(array_state)" = optimal ] || fail "$level loop $loop: '$(array_state)' after the rebuild of d$1"
    verify "rebuilt d$1"
    removals=$((removals + 1))
}

removals=0
loop=0
for level in $LEVELS; do
    rm -f "$DIR"/d*
    disks=5
    [ "$level" != raid1 ] || disks=2
    make_disks "$disks" 48M
    write_config "$level" 'size = "24 MiB";'
    start_daemon
    fio --name=fill $BLOCKS --uri="$NBD_UNIX" --do_verify=0 --rw=write --iodepth=16 --end_fsync=1 --output="$DIR/fio.fill" >/dev/null 2>&1 ||
        fail "$level: fill: $(cat "$DIR/fio.fill")"
    end=$((loop + LOOPS / $(echo "$LEVELS" | wc -w)))
    while [ "$loop" -lt "$end" ]; do
        loop=$((loop + 1))
        kill_under_load
        victim=$((loop / EVERY % disks))
        turn=$((loop % EVERY))
        [ "$turn" != 0 ] || mv "$DIR/d$victim" "$DIR/gone" # degraded and not clean: no --force is needed
        launch_daemon
        if [ "$turn" = 0 ]; then
            replace "$victim"
        else
            verify "after a kill"
        fi
    done
    wait_idle
    stop_daemon
done
echo "$loop kills, $removals members replaced"
