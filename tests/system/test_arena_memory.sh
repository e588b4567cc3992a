# An arena in memory that the service manager keeps (its file descriptor store): kill -9, a clean stop, a config without it.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/cache_functions.sh"
python=/usr/bin/python3
[ -x "$python" ] || python=python3
STORE=$(dirname "$0")/fd_store.py
make_disks 4 64M
source_says 0
EXTRA_TOP=$POWER
EXTRA_VOLUMES=", { name = \"w\"; level = \"raid5\"; size = \"16 MiB\";
    cache = { size = \"1 MiB\"; write = \"back\"; protection = \"battery\"; }; }"
EXTRA_EXPORTS=', { name = "w"; volume = "r/w"; }'
write_config raid5 'size = "48 MiB"; cache = { size = "16 MiB"; write = "back"; protection = "battery"; };'
"$python" "$STORE" keep "$DIR/notify" "$DIR/ask-store" >"$DIR/stored" &
PIDS=$!
wait_for [ -S "$DIR/ask-store" ]
export NOTIFY_SOCKET="$DIR/notify"
LAUNCHER="$python $STORE run $DIR/ask-store"
stored() { grep -c "^$1" "$DIR/stored" || :; }

start_daemon
expect mode safe "a healthy battery"
is outlives 'a restart of corbeld' || fail "it outlives: $(cache_field outlives)"
[ "$(stored stored)" = 2 ] || fail "not two arenas were stored: $(cat "$DIR/stored")"
for round in 1 2 3; do
    qemu-io -f raw -t writeback -c "write -P $round 0 1M" -c flush "${NBD%v}w" >/dev/null || fail "write to w"
    kill_loaded "$round"
    launch_daemon
    grep -q 'volume r/v: [1-9][0-9]* KiB of answered writes were found in its arena' "$LOG" || fail "nothing was found"
    check_flushed "round $round"
    qemu-io -f raw -c "read -P $round 0 1M" "${NBD%v}w" >"$DIR/io"
    grep -q 'verification failed' "$DIR/io" && fail "round $round: w has other bytes"
done
[ "$(stored stored)" = 2 ] || fail "others were stored, though they were found: $(cat "$DIR/stored")"
[ -z "$($CTL cache list | grep '^arena' || :)" ] || fail "arenas that nobody uses: $($CTL cache list)"

# A clean stop gives the memory back.
stop_daemon
removed() { [ "$(stored 'removed .* True')" = "$1" ]; }
wait_for removed 2 || fail "not given back: $(cat "$DIR/stored")"
launch_daemon
check_flushed "a stop"
[ "$(stored stored)" = 4 ] || fail "no new ones were stored: $(cat "$DIR/stored")"

# Its array is away: kept, shown, given up by hand.
kill_loaded 4
for i in 0 1; do mv "$DIR/d$i" "$DIR/away$i"; done
launch_daemon
id=$($CTL cache list | sed -n 's/^arena \([^ ]*\) of volume r\/v .*in corbel-arena-.*/\1/p')
[ -n "$id" ] || fail "not shown: $($CTL cache list)"
$CTL cache discard "$id" --yes >/dev/null || fail "discard"
$CTL cache discard "$id" --yes 2>/dev/null && fail "discarded twice"
wait_for removed 3 || fail "not given back: $(cat "$DIR/stored")"
for i in 0 1; do mv "$DIR/away$i" "$DIR/d$i"; done
$CTL array assemble r || fail "assemble"
nbdinfo "$NBD" >/dev/null 2>&1 && fail "served without its newest bytes"
nbdinfo "${NBD%v}w" >/dev/null || fail "w has its arena, and is not served"
$CTL cache discard r/v --yes >/dev/null || fail "discard of the volume"
nbdinfo "$NBD" >/dev/null || fail "not served"

# Nothing is dirty, but the volume needs its arena all the same: a life of the daemon in which the array is away, and that
# ends cleanly, does not lose it.
expect mode safe "an array that is back"
put_flushed 5
$CTL cache flush r/v >/dev/null || fail "cache flush"
kill_daemon
before=$(stored removed)
for i in 0 1; do mv "$DIR/d$i" "$DIR/away$i"; done
launch_daemon
stop_daemon
[ "$(stored removed)" = "$before" ] || fail "given back, though a volume needs it: $(cat "$DIR/stored")"
for i in 0 1; do mv "$DIR/away$i" "$DIR/d$i"; done
launch_daemon
check_flushed "an array that was away"
stop_daemon
wait_for removed 5 || fail "not given back: $(cat "$DIR/stored")"
