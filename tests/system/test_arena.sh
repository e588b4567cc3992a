# Dirty data that outlives corbeld in an arena: kill -9, an arena that is away, damaged or another's, an array that is away.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/cache_functions.sh"
make_disks 4 64M
source_says 0
EXTRA_TOP=$POWER
EXTRA_VOLUMES=', { name = "w"; level = "raid5"; size = "16 MiB"; }'
EXTRA_EXPORTS=', { name = "w"; volume = "r/w"; }'
ARENA=$DIR/arenas/r.v.arena
mkdir "$DIR/arenas"
with_arena() { write_config raid5 "size = \"48 MiB\"; cache = { size = \"16 MiB\"; write = \"back\"; protection = \"battery\"; arena = \"$1\"; };"; }
status_is() { result=0; $CTL status >"$DIR/status" || result=$?; [ "$result" = "$1" ] || fail "status ends with $result, not $1: $(cat "$DIR/status")"; }
served() { nbdinfo "$NBD" >/dev/null 2>&1; }
logged() { grep -q "$1" "$LOG" || fail "the log has no: $1"; }

# kill -9: everything that was answered is there, a folder gives each volume its file.
with_arena "$DIR/arenas"
start_daemon
expect mode safe "a healthy battery and an arena"
is claimed true || fail "not claimed"
is outlives 'a restart of corbeld' || fail "it outlives: $(cache_field outlives)"
is where "$ARENA" || fail "it is in $(cache_field where)"
kill_loaded 1
launch_daemon
logged 'volume r/v: [1-9][0-9]* KiB of answered writes were found in its arena'
check_flushed "kill -9"
expect mode safe "safe again"
status_is 0

# A second one cannot take the file.
sed "s|$DIR/control.sock|$DIR/other.sock|; s|$DIR/nbd.sock|$DIR/other-nbd.sock|; s|\"$DIR/d|\"$DIR/none|g" "$CONFIG" >"$DIR/other.conf"
if flock -n "$ARENA" true; then fail "the arena is not locked"; fi

# The arena is away: the volume is held, the other one served; nothing is given up without being told to.
kill_loaded 2
mv "$ARENA" "$DIR/kept"
launch_daemon
served && fail "served without its newest bytes"
nbdinfo "${NBD%v}w" >/dev/null || fail "another volume is not served"
logged "volume r/v is held: its newest bytes are in arena .*, which is not here: $ARENA: No such file"
logged 'NBD export "v" is not served, because volume r/v is held'
status_is 6
grep -q '^r/v is held, not served: its newest bytes are in arena' "$DIR/status" || fail "$(cat "$DIR/status")"
$CTL cache list | grep -q '^r/v is held' || fail "$($CTL cache list)"
result=0
$CTL cache discard r/v >"$DIR/told" || result=$?
[ "$result" = 3 ] || fail "discard without --yes ends with $result"
grep -q '^this would be given up: all writes to volume r/v' "$DIR/told" || fail "$(cat "$DIR/told")"
served && fail "discarded without --yes"
$CTL cache discard r/w --yes 2>"$DIR/told" && fail "a volume that is not held was discarded"
$BUILD_DIR/corbelctl rescue "$DIR"/d[0-3] 2>"$DIR/told" | grep -q '^# its newest bytes are not on its disks' || fail "rescue says nothing"
grep -q 'volume r/v: its newest bytes are in an arena or a log' "$DIR/told" || fail "rescue: $(cat "$DIR/told")"
# It is back.
mv "$DIR/kept" "$ARENA"
$CTL reload >/dev/null
served || fail "its arena is back, and it is not served: $($CTL cache list)"
check_flushed "the arena was away"
status_is 0

# It is there, and something is in the way: what that is is told.
kill_daemon
flock --no-fork "$ARENA" sleep 60 &
LOCKER=$!
PIDS="$PIDS $LOCKER"
wait_for sh -c "! flock -n '$ARENA' true"
launch_daemon
logged "which is not here: $ARENA is in use by another process"
served && fail "served without its newest bytes"
kill "$LOCKER"
wait "$LOCKER" 2>/dev/null || :
$CTL reload >/dev/null
served || fail "nothing is in the way any more, and it is not served: $($CTL cache list)"
check_flushed "the arena was in use"
printf 'not an arena, but somebody has a use for it' >"$DIR/text"
kill_daemon
mv "$ARENA" "$DIR/kept"
cp "$DIR/text" "$ARENA"
launch_daemon
logged "which is not here: $ARENA holds something that is no arena"
cmp "$DIR/text" "$ARENA" || fail "it was written over"
mv "$DIR/kept" "$ARENA"
$CTL reload >/dev/null
check_flushed "something else was in its place"

# Given up.
kill_loaded 3
rm "$ARENA"
launch_daemon
served && fail "served without its newest bytes"
$CTL cache discard r/v --yes | grep -q '^given up: all writes' || fail "discard"
served || fail "discarded, and not served"
status_is 0
put_flushed 4
kill_daemon
launch_daemon
check_flushed "after a discard"

tear() { # a dirty block of the arena
    python3 - "$ARENA" >"$DIR/torn" <<'PYTHON' || fail "nothing is dirty in the arena"
import struct, sys
with open(sys.argv[1], "r+b") as f:
    image = f.read()
    headers, pages = 1024, max(struct.unpack_from("<Q", image, at + 24)[0] for at in (0, 512))
    first = -(-(headers + pages * 16) // 4096) * 4096
    header = lambda i: struct.unpack_from("<QQ", image, headers + 16 * i)
    i = next(i for i in range(pages) if header(i)[1] and header(i)[0] % (1 << 48) >= 24 << 8)
    f.seek(first + 4096 * i + 100)
    f.write(bytes([image[first + 4096 * i + 100] ^ 1]))
    print(header(i)[0] % (1 << 48) * 4096)
PYTHON
}

# Blocks that are damaged: held, told where; what is well is written when they are given up.
kill_loaded 5
tear
launch_daemon
served && fail "served with a torn block"
logged "volume r/v is held: 1 blocks of 4096 bytes in its arena are damaged, at $(cat "$DIR/torn"); the other"
$CTL cache list | grep -q "torn: the block at $(cat "$DIR/torn")" || fail "$($CTL cache list)"
$CTL cache discard r/v >"$DIR/told" && fail "discard without --yes"
served && fail "discarded without --yes"
$CTL cache discard r/v --yes >"$DIR/told" || fail "discard: $(cat "$DIR/told")"
served || fail "torn blocks were given up, and it is not served"
check_flushed "the blocks that were well"

# The arena itself is given up: the volume says that it is gone, and discarding the volume does not speak of its blocks.
kill_loaded 6
tear
launch_daemon
$CTL cache discard "$ARENA" --yes >"$DIR/told" || fail "discard of the arena: $(cat "$DIR/told")"
served && fail "served without the arena that it needs"
$CTL cache list | grep -q 'which is not here' || fail "$($CTL cache list)"
$CTL cache discard r/v --yes >"$DIR/told" || fail "discard: $(cat "$DIR/told")"
grep -q '^given up: all writes' "$DIR/told" || fail "it says: $(cat "$DIR/told")"
served || fail "given up, and not served"
put_flushed 7
stop_daemon

# A clean stop leaves no claim, and nothing in the arena.
rm "$ARENA"
launch_daemon
served || fail "held after a clean stop"
check_flushed "a clean stop"

# The array is away: its arena is kept and shown, and used when it comes.
kill_loaded 6
for i in 0 1; do mv "$DIR/d$i" "$DIR/away$i"; done
launch_daemon
$CTL cache list | grep -q "^arena .* of volume r/v is dirty: .* in $ARENA" || fail "not shown: $($CTL cache list)"
id=$($CTL cache list | sed -n 's/^arena \([^ ]*\) of volume.*/\1/p')
$CTL cache discard "$id" >"$DIR/told" && fail "discard without --yes"
grep -q 'KiB of answered writes to volume r/v' "$DIR/told" || fail "$(cat "$DIR/told")"
for i in 0 1; do mv "$DIR/away$i" "$DIR/d$i"; done
$CTL array assemble r || fail "assemble"
served || fail "not served when its array came"
check_flushed "the array was away"
[ -z "$($CTL cache list | grep '^arena' || :)" ] || fail "still pinned: $($CTL cache list)"
stop_daemon

# What is no arena is not overwritten: nothing is promised then.
echo "a letter" >"$DIR/letter"
with_arena "$DIR/letter"
launch_daemon
expect mode through "there is no arena"
$CTL cache list | grep -q "$DIR/letter holds something that is no arena" || fail "$($CTL cache list)"
put_flushed 7
[ "$(cat "$DIR/letter")" = "a letter" ] || fail "it was overwritten"
kill_daemon
with_arena "$DIR/arenas/mine"
launch_daemon
check_flushed "through"

# The config has no arena any more, and what is in it is needed: held until it has.
kill_loaded 8
with_arena none
launch_daemon
served && fail "served past its arena"
logged 'the config gives this volume no cache with an arena any more'
with_arena "$DIR/arenas/mine"
$CTL reload >/dev/null
served || fail "not served: $($CTL cache list)"
check_flushed "the config was wrong"
stop_daemon

# Memory that nobody keeps: told, and what was lost with it is not passed over.
with_arena memory
launch_daemon
expect mode safe "memory"
is outlives nothing || fail "it outlives: $(cache_field outlives)"
logged 'nothing keeps the arena of its cache when corbeld ends'
put_flushed 9
kill_daemon
launch_daemon
served && fail "served though what was promised is lost"
$CTL cache discard r/v --yes >/dev/null || fail "discard"
served || fail "not served"
stop_daemon

# Another history: the disk that was left behind must not get what was written without it.
rm -f "$DIR"/d[0-9] "$DIR"/arenas/*
make_disks 2 64M
EXTRA_VOLUMES='' EXTRA_EXPORTS=''
write_config raid1 "size = \"48 MiB\"; cache = { size = \"16 MiB\"; write = \"back\"; protection = \"battery\"; arena = \"$DIR/arenas\"; };"
start_daemon
expect mode safe "two disks"
wait_idle
$CTL disk fail r/1 >/dev/null || fail "disk fail"
sleep 2.5 # each second the arena hears of it
kill_loaded 10
mv "$DIR/d0" "$DIR/away0"
launch_daemon
[ "$(array_state)" = degraded ] || fail "it does not run with the other disk: $($CTL status)"
served && fail "served with what was written without this disk"
logged 'volume r/v is held: its newest bytes are in arena .*, which is of another history: the array went on without the disks'
kill_daemon
mv "$DIR/d1" "$DIR/away1"
mv "$DIR/away0" "$DIR/d0"
launch_daemon
[ "$(array_state)" = degraded ] || $CTL array assemble r --force >/dev/null || fail "assemble: $($CTL status)"
served || fail "not served: $($CTL cache list)"
check_flushed "the disk that went on"
stop_daemon
