# A volume with a cache: hits, what a flush means by protection, a power source that changes its mind, kill -9, a stop.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/cache_functions.sh"

# with_cache CACHE_SETTINGS: the volume's cache; `power` is a command whose exit status stands in a file
with_cache() {
    write_config raid5 "size = \"64 MiB\"; cache = { $1 };"
}
dirty() { [ "$(cache_field cache_dirty_bytes)" -gt 0 ]; }
put() { qemu-io -f raw -t "$3" -c "write -P $1 $2 1M" "$NBD" >/dev/null || fail "write of $1"; }
has() { qemu-io -f raw -c "read -P $1 $2 1M" "$NBD" >/dev/null || fail "other bytes than $1 at $2: $3"; }
python=/usr/bin/python3
[ -x "$python" ] || python=python3
make_disks 4 64M
EXTRA_TOP=$POWER
source_says 0

# Mistakes in the config have a line.
EXTRA_TOP_KEPT=$EXTRA_TOP
EXTRA_TOP=
with_cache 'size = "16 MiB"; write = "back"; protection = "battery";'
"$BUILD_DIR/corbeld" -t -c "$CONFIG" 2>"$DIR/err" && fail "battery without a power source was taken"
grep -q 'protection.*no power source' "$DIR/err" || fail "battery without a source: $(cat "$DIR/err")"
with_cache 'size = "4 KiB";'
"$BUILD_DIR/corbeld" -t -c "$CONFIG" 2>"$DIR/err" && fail "a cache of a page was taken"
grep -q 'size.*64 KiB' "$DIR/err" || fail "too small a cache: $(cat "$DIR/err")"
EXTRA_TOP=$EXTRA_TOP_KEPT

# Through: reads hit, nothing is ever dirty.
with_cache 'size = "16 MiB";'
start_daemon
put 0x11 0 writeback
has 0x11 0 "through"
has 0x11 0 "through, again"
[ "$(cache_field hits)" -gt 0 ] || fail "no read was a hit"
# One after the other: read ahead, and used.
stop_daemon
launch_daemon
seq 0 4 1020 | sed 's/.*/read -P 0x11 &k 4k/' | qemu-io -f raw "$NBD" >"$DIR/out" || fail "$(cat "$DIR/out")"
[ "$(cache_field ahead_bytes)" -ge 524288 ] && [ "$(cache_field ahead_used_bytes)" -ge 524288 ] ||
    fail "of a MiB, $(cache_field ahead_bytes) were read ahead and $(cache_field ahead_used_bytes) used"
$CTL cache list | grep -q '^r/v .* [0-9][0-9]* % *[1-9][0-9]* %$' || fail "no share of hits and of read-ahead: $($CTL cache list)"
is cache_dirty_bytes 0 || fail "dirty in a cache that writes through"
stop_daemon

# Back, with nothing behind it: a flush is a flush. What was flushed outlives kill -9.
with_cache 'size = "16 MiB"; write = "back"; protection = "none";'
launch_daemon
expect mode none "write-back without protection"
expect volatile true "initiators must flush"
put 0x22 0 writeback
qemu-io -f raw -c flush "$NBD" >/dev/null
is cache_dirty_bytes 0 || fail "dirty after a flush: $(cache_field cache_dirty_bytes)"
kill_daemon
launch_daemon
has 0x22 0 "flushed, then kill -9"
put 0x23 1M writeback
$CTL cache flush r/v >/dev/null || fail "cache flush"
is cache_dirty_bytes 0 || fail "dirty after cache flush"
stop_daemon
launch_daemon
has 0x23 1M "after a stop"
stop_daemon

# Whoever is connected when the battery goes bad is told; what they flush then is below.
with_cache 'size = "16 MiB"; write = "back"; protection = "battery"; when_bad = "flush";'
launch_daemon
expect mode safe "a healthy power source"
"$python" "$(dirname "$0")/cache_told.py" "$ISCSI_ADDRESS" "$TARGET" "$NBD_UNIX" "$DIR/ask" || fail "what initiators are told"
is cache_dirty_bytes 0 || fail "dirty after a flush on battery"
kill_daemon
launch_daemon
qemu-io -f raw -c "read -P 0x66 8M 64k" -c "read -P 0x67 9M 4k" -c "read -P 0x68 10M 64k" "$NBD" >"$DIR/out"
grep -q 'verification failed' "$DIR/out" && fail "flushed on battery, then kill -9: $(cat "$DIR/out")"
stop_daemon
source_says 0

# Battery: initiators need not flush while the source is healthy; when it is not, all that is dirty leaves.
with_cache 'size = "16 MiB"; write = "back"; protection = "battery";'
launch_daemon
expect mode safe "a healthy power source"
expect volatile false "a battery stands behind it"
put 0x33 2M writeback
has 0x33 2M "safe"
source_says 1
expect mode strict "on battery"
expect cache_dirty_bytes 0 "on battery all that is dirty leaves"
put 0x44 3M writeback
is cache_dirty_bytes 0 || fail "absorbed on battery"
kill_daemon
launch_daemon
has 0x33 2M "dirty when the mains failed"
has 0x44 3M "written on battery, then kill -9"
source_says 0
expect mode safe "mains again"
put 0x55 4M writeback
stop_daemon
launch_daemon
has 0x55 4M "a stop destages"
grep -q 'cache r/v' "$LOG" || fail "the log does not tell of the cache"
$CTL status >/dev/null

# No more may be dirty than can be saved in the run time less a minute: at 1 MiB a second, until it was measured.
stop_daemon
source_says 0 runtime=61
launch_daemon
expect mode safe "a battery with a run time"
is destage_bytes_per_second 0 || fail "a rate that nobody measured"
expect dirty_limit_bytes 1048576 "one second, at the rate assumed"
source_says 0 runtime=50
expect dirty_limit_bytes 0 "less than the margin"
source_says 0 runtime=61
expect dirty_limit_bytes 1048576 "a second again"
measured() {
    fio --name=load --ioengine=nbd --uri="$NBD_UNIX" --rw=randwrite --bs=4k --offset=16m --size=32m --io_size=16m \
        --iodepth=16 --output="$DIR/fio" && ! is destage_bytes_per_second 0
}
put 0x77 5M writeback
wait_for measured || fail "the rate is never measured"
limit_follows() {
    rate=$(cache_field destage_bytes_per_second)
    [ "$rate" -gt 0 ] && least=$((rate < 12582912 ? rate : 12582912)) && is dirty_limit_bytes $((least / 4096 * 4096))
}
wait_for limit_follows || fail "a limit of $(cache_field dirty_limit_bytes) at a rate of $(cache_field destage_bytes_per_second)"
# Caches of one array share its disks, and so the time.
stop_daemon
EXTRA_VOLUMES=', { name = "w"; level = "raid5"; size = "32 MiB"; cache = { size = "16 MiB"; write = "back"; protection = "battery"; }; }'
EXTRA_EXPORTS=', { name = "w"; volume = "r/w"; }'
with_cache 'size = "16 MiB"; write = "back"; protection = "battery";'
source_says 0 runtime=61
start_daemon
halves() { [ "$($CTL --json cache list | grep -c '"dirty_limit_bytes": 524288,')" = 2 ]; }
wait_for halves || fail "half a second each: $($CTL --json cache list)"
stop_daemon
EXTRA_VOLUMES=
EXTRA_EXPORTS=
with_cache 'size = "16 MiB"; write = "back"; protection = "battery";'
launch_daemon
source_says 0
expect dirty_limit_bytes 12582912 "a run time that is not known, and need not be"
has 0x77 5M "with a limit"
$CTL cache list | grep -q '^r/v ' || fail "cache list: $($CTL cache list)"
$CTL cache flush r/none 2>"$DIR/err" && fail "a flush of a volume that is not there"
stop_daemon
