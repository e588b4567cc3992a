# A cache whose flushes go to a log on disks of its own (protection = "journal"): kill -9, disks that are away, blank or another's.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/cache_functions.sh"
make_disks 4 64M
EXTRA_VOLUMES=', { name = "w"; level = "raid5"; size = "16 MiB"; }'
EXTRA_EXPORTS=', { name = "w"; volume = "r/w"; }'
with_log() { write_config raid5 "size = \"48 MiB\"; cache = { size = \"16 MiB\"; write = \"back\"; protection = \"journal\"; journal = [ $1 ]; };"; }
# Too large to be full, and emptied, before it is looked at.
blank() { rm -f "$1" && truncate -s 256M "$1"; }
served() { nbdinfo "$NBD" >/dev/null 2>&1; }
logged() { grep -q "$1" "$LOG" || fail "the log has no: $1"; }
L0="\"$DIR/log0\"" L1="\"$DIR/log1\""

# One disk: what was flushed is there after kill -9, though the array did not have it.
blank "$DIR/log0"
with_log "$L0"
start_daemon
expect mode logged "a log"
is volatile true || fail "initiators need not flush"
is claimed true || fail "not claimed"
$CTL cache list | grep -q "^    $DIR/log0: active" || fail "$($CTL cache list)"
kill_loaded 1
launch_daemon
logged 'volume r/v: [1-9][0-9]* blocks were written from its log'
check_flushed "kill -9"
expect mode logged "again"

# It is away: held, until it is back.
kill_loaded 2
mv "$DIR/log0" "$DIR/kept"
launch_daemon
served && fail "served without its log"
nbdinfo "${NBD%v}w" >/dev/null || fail "another volume is not served"
logged 'volume r/v is held: its newest bytes are in log .*, of which no device is here'
$CTL cache list | grep -q '^r/v is held' || fail "$($CTL cache list)"
$CTL cache discard r/v >"$DIR/told" && fail "discard without --yes"
grep -q '^this would be given up: all writes to volume r/v' "$DIR/told" || fail "$(cat "$DIR/told")"
# Another, blank one in its place changes nothing.
blank "$DIR/log0"
$CTL reload >/dev/null
served && fail "served with a blank log"
mv "$DIR/kept" "$DIR/log0"
$CTL reload >/dev/null
served || fail "not served: $($CTL cache list)"
check_flushed "the log was away"

# Given up; a blank disk is formatted then.
kill_loaded 3
blank "$DIR/log0"
launch_daemon
served && fail "served without its log"
$CTL cache discard r/v --yes | grep -q '^given up: all writes' || fail "discard"
served || fail "not served"
expect mode logged "a new log"
put_flushed 4
kill_daemon
launch_daemon
check_flushed "a new log"

# A clean stop leaves no claim.
stop_daemon
mv "$DIR/log0" "$DIR/kept"
launch_daemon
served || fail "held after a clean stop"
check_flushed "a clean stop"
expect mode through "no log"
stop_daemon

# Two that hold the same: either is enough, and each is believed only if it has all.
blank "$DIR/log0"
blank "$DIR/log1"
with_log "$L0, $L1"
launch_daemon
expect mode logged "two disks"
kill_loaded 5
mv "$DIR/log0" "$DIR/old"
launch_daemon
served || fail "one of two is enough: $($CTL cache list)"
check_flushed "the second one"
put_flushed 6
kill_daemon
mv "$DIR/log1" "$DIR/kept"
mv "$DIR/old" "$DIR/log0"
launch_daemon
served && fail "the one that missed something was believed"
mv "$DIR/kept" "$DIR/log1"
$CTL reload >/dev/null
served || fail "not served: $($CTL cache list)"
check_flushed "both are back"
kill_loaded 7
mv "$DIR/log1" "$DIR/kept"
launch_daemon
served || fail "the first one counts again: $($CTL cache list)"
check_flushed "the first one"
stop_daemon

# What stands on a disk is not overwritten.
mkswap "$DIR/kept" >/dev/null 2>&1 || fail "mkswap"
cp "$DIR/kept" "$DIR/copy"
with_log "\"$DIR/kept\""
launch_daemon
expect mode through "something stands there"
$CTL cache list | grep -q "$DIR/kept holds data of another kind (swap" || fail "$($CTL cache list)"
put_flushed 8
stop_daemon
cmp "$DIR/kept" "$DIR/copy" || fail "it was overwritten"
cp "$DIR/d0" "$DIR/member"
with_log "\"$DIR/member\""
launch_daemon
$CTL cache list | grep -q "$DIR/member belongs to array r" || fail "$($CTL cache list)"
check_flushed "through"
stop_daemon
# Nor is a log, by an array.
EXTRA_VOLUMES='' EXTRA_EXPORTS=''
DISKS="\"$DIR/log0\", \"$DIR/e1\", \"$DIR/e2\""
truncate -s 256M "$DIR/e1" "$DIR/e2"
write_config raid5
launch_daemon
$CTL apply --yes >"$DIR/apply.out" 2>&1 && fail "an array was created over a log"
grep -q 'the log of the cache over volume r/v' "$DIR/apply.out" || fail "$(cat "$DIR/apply.out")"
stop_daemon

# Another history: what was flushed without a disk is not written to it, and is still there for the disk that went on.
rm -f "$DIR"/d[0-9] "$DIR"/log[01]
make_disks 2 64M
blank "$DIR/log0"
write_config raid1 "size = \"48 MiB\"; cache = { size = \"16 MiB\"; write = \"back\"; protection = \"journal\"; journal = [ $L0 ]; };"
start_daemon
expect mode logged "two disks"
wait_idle
$CTL disk fail r/1 >/dev/null || fail "disk fail"
sleep 2.5 # each second the log hears of it
kill_loaded 10
mv "$DIR/d0" "$DIR/away0"
launch_daemon
[ "$(array_state)" = degraded ] || fail "it does not run with the other disk: $($CTL status)"
served && fail "served with what was logged without this disk"
logged 'volume r/v is held: its newest bytes are in log .*, of which no device is here: the log on .*log0 is of another history'
kill_daemon
mv "$DIR/d1" "$DIR/away1"
mv "$DIR/away0" "$DIR/d0"
launch_daemon
[ "$(array_state)" = degraded ] || $CTL array assemble r --force >/dev/null || fail "assemble: $($CTL status)"
served || fail "not served: $($CTL cache list)"
check_flushed "the disk that went on"
stop_daemon
