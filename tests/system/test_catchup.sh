# A disk that was away and comes back gets the rows that it missed, and no others: taken out by hand under load, and
# missing at a start, after which it comes back without being asked for.
. "$(dirname "$0")/functions.sh"

rows_of_last_rebuild() { # "N M": rows to be done, rows of the volume
    sed -n 's/.*rebuild of volume v begins: \([0-9]*\) of \([0-9]*\) rows.*/\1 \2/p' "$LOG" | tail -n 1
}

# What was written lately counts as missing too: it may have been in the disk's cache.
is_clean() { [ "$(status_field dirty_bytes)" = 0 ] && [ "$(status_field clean)" = true ]; }
wait_clean() {
    wait_idle
    wait_for_long is_clean || fail "rows do not become clean"
}

# Few rows, in no time; and the array can do without another disk now.
caught_up() { # slot, other slot, when
    wait_idle
    [ "$(array_state)" = optimal ] || fail "$3: the array is '$(array_state)'"
    grep -q "(slot $1) is caught up and online" "$LOG" || fail "$3: slot $1 was not caught up"
    rows=$(rows_of_last_rebuild)
    if [ "${rows%% *}" -eq 0 ] || [ "${rows%% *}" -gt 48 ]; then fail "$3: $rows rows were done"; fi
    $CTL disk fail "r/$2" >/dev/null || fail "$3: disk fail"
    nbdcopy "$NBD" "$DIR/out"
    cmp "$DIR/want" "$DIR/out" || fail "$3: other bytes without slot $2"
    $CTL disk online "r/$2" >/dev/null || fail "$3: disk online"
    wait_clean
}

put() { # MiB, seed: one MiB
    random_file "$DIR/part" 1048576 "$2"
    dd if="$DIR/part" of="$DIR/want" bs=1M seek="$1" conv=notrunc status=none
    qemu-io -f raw -c "write -s $DIR/part $1M 1M" "$NBD" >/dev/null || fail "a write at $1 MiB"
}

make_disks 4 128M
write_config raid5 'size = "288 MiB";'
start_daemon
random_file "$DIR/want" 301989888 1
nbdcopy --flush "$DIR/want" "$NBD"
wait_clean

# By hand, while somebody writes.
(i=0; while [ "$i" -lt 6 ]; do put $((i * 40)) $((i + 10)); i=$((i + 1)); done) &
writer=$!
$CTL disk fail r/2 >/dev/null || fail "disk fail"
wait "$writer"
$CTL disk online r/2 >/dev/null || fail "disk online"
caught_up 2 0 "taken out by hand"

# Missing at a start.
stop_daemon
mv "$DIR/d1" "$DIR/away"
launch_daemon
[ "$(array_state)" = degraded ] || fail "without d1 the array is '$(array_state)'"
put 100 20
stop_daemon
mv "$DIR/away" "$DIR/d1"
launch_daemon
grep -q "d1 was away and is back in slot 1" "$LOG" || fail "d1 did not come back by itself"
caught_up 1 3 "missing at a start"

# The same, but the file is a copy of yesterday: all of it is rebuilt.
stop_daemon
cp --sparse=always "$DIR/d1" "$DIR/yesterday"
launch_daemon
put 50 21
stop_daemon
mv "$DIR/d1" "$DIR/away"
launch_daemon
put 60 22
stop_daemon
mv "$DIR/yesterday" "$DIR/d1"
launch_daemon
grep -q "d1 was away and is back" "$LOG" && fail "a disk from yesterday was taken in"
$CTL disk online r/1 >/dev/null || fail "disk online of a disk from yesterday"
wait_idle
rows=$(rows_of_last_rebuild)
[ "${rows%% *}" -gt 1000 ] || fail "of a disk from yesterday $rows rows were done"
$CTL disk fail r/0 >/dev/null || fail "disk fail"
nbdcopy "$NBD" "$DIR/out"
cmp "$DIR/want" "$DIR/out" || fail "other bytes at the end"
stop_daemon
