# Disks that shrink, come back from yesterday, are held by another process, or are full: the array tells the truth and
# every byte that was acknowledged is there.
. "$(dirname "$0")/functions.sh"
command -v flock >/dev/null || fail "flock is missing"

same() { # file, when
    nbdcopy "$NBD" "$DIR/out"
    cmp "$1" "$DIR/out" || fail "$2: other bytes"
}

# A member put back to the state of an earlier stop.
make_disks 4 64M
write_config raid5 'size = "96 MiB";'
start_daemon
random_file "$DIR/a" 100663296 1
nbdcopy --flush "$DIR/a" "$NBD"
wait_idle
stop_daemon
cp --sparse=always "$DIR/d2" "$DIR/yesterday"
launch_daemon
random_file "$DIR/b" 100663296 2
nbdcopy --flush "$DIR/b" "$NBD"
stop_daemon
cp --sparse=always "$DIR/yesterday" "$DIR/d2"
launch_daemon
[ "$(array_state)" = degraded ] || fail "a disk from yesterday was taken as current"
grep -q 'd2 is stale' "$LOG" || fail "the log does not name the stale disk"
same "$DIR/b" "with a disk from yesterday"
$CTL disk online r/2 >/dev/null || fail "disk online of the stale disk"
wait_idle
[ "$(array_state)" = optimal ] || fail "not optimal after the rebuild"

# A file cut short under the daemon is not made longer again, with zeroes where data was.
truncate -s 2M "$DIR/d1"
random_file "$DIR/a" 100663296 3
nbdcopy --flush "$DIR/a" "$NBD" || fail "a write with a disk cut short"
grep -q 'd1 has shrunk to 2097152 bytes' "$LOG" || fail "the log does not tell of the shrunk disk"
[ "$(stat -c %s "$DIR/d1")" = 2097152 ] || fail "the shrunk file grew"
[ "$(array_state)" = degraded ] || fail "the array is '$(array_state)', not degraded, after a disk shrank"
same "$DIR/a" "with a disk cut short"
$CTL disk online r/1 >"$DIR/out" 2>&1 && fail "a disk that is too small was taken"
grep -q 'd1 has 2097152 bytes' "$DIR/out" || fail "too small: $(cat "$DIR/out")"
truncate -s 64M "$DIR/d1"
$CTL disk online r/1 >/dev/null || fail "disk online of the mended disk"
wait_idle
stop_daemon

# A disk that another process lets go of soon is waited for; the holder is there before the daemon starts.
mkfifo "$DIR/held"
flock -F "$DIR/d3" sh -c 'echo >"$0"; exec sleep 0.5' "$DIR/held" &
PIDS=$!
read -r _ <"$DIR/held"
launch_daemon
PIDS=
launched=$(array_state)
[ "$launched" = optimal ] || fail "a disk that was held for a moment left the array '$launched'"
stop_daemon

# One that is not let go of counts as missing, and the reason is shown; when it is free again it comes back.
hold() { # disk...: until $PIDS are killed
    for d in "$@"; do
        flock -F "$DIR/$d" sh -c 'echo >"$0"; exec sleep 60' "$DIR/held" &
        PIDS="$PIDS $!"
        until read -r _ <"$DIR/held"; do :; done # the writer before may be about to close it only now
    done
}
release() {
    for p in $PIDS; do
        kill "$p"
        wait "$p" 2>/dev/null || :
    done
    PIDS=
}
hold d3
launch_daemon
[ "$(array_state)" = degraded ] || fail "a held disk left the array '$(array_state)'"
grep -q 'd3 cannot be used as a disk: in use' "$LOG" || fail "the log does not tell of the held disk"
same "$DIR/a" "with a held disk"
release
$CTL disk online r/3 >/dev/null || fail "disk online of a disk that was held"
wait_idle
[ "$(array_state)" = optimal ] || fail "not optimal after a disk was held"
stop_daemon

# So does one that shrank while the daemon was away.
truncate -s 63M "$DIR/d2"
launch_daemon
[ "$(array_state)" = degraded ] || fail "a shrunk disk left the array '$(array_state)'"
grep -q 'd2 .* has shrunk to 66060288 bytes, 1048576 too few' "$LOG" || fail "the log does not tell of the shrunk disk"
same "$DIR/a" "with a disk that shrank while the daemon was away"
truncate -s 64M "$DIR/d2"
$CTL disk online r/2 >/dev/null || fail "disk online of the disk that had shrunk"
wait_idle
stop_daemon

# Too many held: not started, nothing written, and apply does not say "done".
sums=$(cat "$DIR"/d? | cksum)
hold d1 d3
launch_daemon
$CTL apply --yes >"$DIR/out" 2>&1 && fail "apply said that a held array was started: $(cat "$DIR/out")"
grep -q 'd3 cannot be used as a disk: in use' "$DIR/out" || fail "the held disk: $(cat "$DIR/out")"
stop_daemon
[ "$sums" = "$(cat "$DIR"/d? | cksum)" ] || fail "something was written to disks of an array that was not started"
release
