# The mains fail under a real upsd, with dirty data in a cache over a slow disk: jobs rest, the cache is emptied, and only
# then the command that shuts down is run; or when its time is up; or earlier than the battery is low, by the budget.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/power_functions.sh"
. "$(dirname "$0")/remotes.sh"
nut_set_up

FAR=$(free_ports 1)
serving() { nbdinfo --size "nbd://127.0.0.1:$FAR/"; }
truncate -s 128M "$DIR/far" "$DIR/d0"
python3 "$(dirname "$0")/faulty_nbd_server.py" "$FAR" "$DIR/far" f "faults=$DIR/faults" 2>"$DIR/server.log" &
SERVER=$!
PIDS="$PIDS $SERVER"
wait_for serving || fail "the server: $(cat "$DIR/server.log")"
DISKS="\"$DIR/d0\", \"nbd://127.0.0.1:$FAR/\""
slow() { echo "slow $1" >"$DIR/new" && mv "$DIR/new" "$DIR/faults"; }

# What is run tells what is dirty at that moment.
printf '#!/bin/sh\n%s --json cache list >>%s\n' "$CTL" "$DIR/low" >"$DIR/stop"
chmod 755 "$DIR/stop"
ON_LOW=$DIR/stop
RUNTIME_MIN="0 s"
VOLUME='size = "64 MiB"; cache = { size = "32 MiB"; write = "back"; protection = "battery"; };'
SETTINGS='settle = "0 s"; shutdown_time = "100 s";'
dirty_at_command() { sed -n 's/.*"cache_dirty_bytes": \([0-9]*\).*/\1/p' "$DIR/low"; }
dirty() { $CTL --json cache list | sed -n 's/.*"cache_dirty_bytes": \([0-9]*\).*/\1/p'; }
is_clean() { [ "$(dirty)" = 0 ]; }
mode_is() { $CTL --json cache list | grep -q "\"mode\": \"$1\""; }
ordered() { # of the log, since the last time: each behind the one before
    line=0
    sed -n "$seen,\$p" "$LOG" >"$DIR/part"
    for words in "$@"; do
        next=$(grep -n -- "$words" "$DIR/part" | sed -n '1s/:.*//p')
        [ -n "$next" ] && [ "$next" -gt "$line" ] || fail "the log has no '$words' where it should be: $(cat "$DIR/part")"
        line=$next
    done
}
# 256 blocks, one of each row, so that each leaves by itself; slowly.
blocks() { seq 0 64 16320 | sed "s/.*/$1 -P $2 &k 4k/"; }
write_dirt() { # what
    slow 0
    wait_for mode_is safe || fail "$1: $($CTL cache list)"
    wait_for_long is_clean || fail "$1: still dirty: $($CTL cache list)"
    seen=$(($(wc -l <"$LOG") + 1))
    rm -f "$DIR/low"
    slow 40
    blocks write 1 | qemu-io -f raw -t writeback "$NBD" >/dev/null || fail "$1: write"
}
scrub_waits() { [ "$(status_field waits_for)" = "$1" ]; }

ups OL
start_driver
start_upsd
write_power "nut://ups@127.0.0.1:$PORT" "$SETTINGS"
start_daemon
well
wait_idle
phase_is "on mains"
$CTL power | grep -q '^to save:  0 B dirty, needs about 0 s; 1 min 40 s to stop$' || fail "$($CTL power)"

# A scrub that lasts as long as the test.
qemu-io -f raw -c 'write -P 7 32M 32M' -c flush "$NBD" >/dev/null
wait_for_long is_clean || fail "$($CTL cache list)"
$CTL volume rate r/v --max "64 KiB" >/dev/null
$CTL volume scrub r/v >/dev/null
wait_for scrub_waits "" || fail "the scrub does not run: $($CTL status)"

# Mains off: all rests, and the cache is emptied; mains on: all goes on. No command.
write_dirt "mains off"
ups "OB DISCHRG" 90 1100
phase_is saving
wait_for scrub_waits "the mains" || fail "the scrub does not rest: $($CTL status)"
[ "$(dirty)" -gt 0 ] || fail "the disk is not slow enough for this test"
[ "$(field work_rests)" = true ] || fail "$($CTL --json power)"
[ "$(field needed_seconds)" = $(($(field destage_seconds) + 100)) ] || fail "$($CTL --json power)"
$CTL status | grep -q '^power: saving: .* dirty, needs about .* s; 1 min 40 s to stop$' || fail "$($CTL status)"
mode_is strict || fail "it absorbs on battery: $($CTL cache list)"
slow 0
phase_is saved
is_clean || fail "saved, and dirty: $($CTL cache list)"
scrub_waits "the mains" || fail "the scrub goes on: $($CTL status)"
ups OL
phase_is "on mains"
wait_for scrub_waits "" || fail "the scrub does not go on: $($CTL status)"
ordered 'power: on battery' 'the mains failed: background work rests' 'all caches are empty, and the disks flushed' \
    'the mains are back'
[ ! -e "$DIR/low" ] || fail "the machine was shut down with 1100 s left"
$CTL power | grep -q '^ .* the mains are back: background work goes on (' || fail "no steps: $($CTL power)"

# What an operator paused stays so.
$CTL volume pause r/v >/dev/null
ups OB 90 1100
phase_is saved
ups OL
phase_is "on mains"
scrub_waits paused || fail "the operator's pause: $($CTL status)"
$CTL volume resume r/v >/dev/null
wait_for scrub_waits "" || fail "$($CTL status)"

# Low while all is dirty: the command is run behind the last byte.
write_dirt "low"
ups "OB LB" 90 1100
phase_is "saving for the last time"
[ "$(dirty)" -gt 0 ] || fail "the disk is not slow enough for this test"
[ ! -e "$DIR/low" ] || fail "the command came before the cache was empty"
phase_is "shut down"
[ "$(dirty_at_command)" = 0 ] || fail "dirty when the command was run: $(cat "$DIR/low")"
ordered 'power: low' 'the mains failed' 'the battery is low: caches are emptied for the last time' \
    'flushed: time to shut down' "power: running $ON_LOW" "power: $ON_LOW was run" 'the machine was told to stop'
ups OL
phase_is "on mains"

# A learn cycle is no failure of the mains, whatever it leaves.
write_dirt "a learn cycle"
ups "OB CAL" 90 1
power_is calibration "on battery" false
phase_is "on mains"
wait_for scrub_waits "" || fail "$($CTL status)"
ups OL
well

# Not low, but 103 s are less than the 100 s that it needs to stop and what is dirty.
write_dirt "the budget"
ups OB 90 1100
phase_is saving
ups OB 90 103
short() { grep -q 'the battery lasts no longer than is needed' "$LOG"; }
wait_for short || fail "it was not told to stop: $($CTL power)"
[ "$(field state)" = "on battery" ] || fail "the state is $(field state): this was to be the budget's work"
slow 0
phase_is "shut down"
ordered 'the mains failed' 'the battery lasts no longer than is needed' 'time to shut down' "power: $ON_LOW was run"
ups OL
phase_is "on mains"

# Nor 99 s, though nothing is dirty.
write_dirt "saved"
slow 0
wait_for_long is_clean || fail "$($CTL cache list)"
ups OB 90 100
phase_is saved
[ ! -e "$DIR/low" ] || fail "the machine was told to stop though 100 s are left"
ups OB 90 99
phase_is "shut down"
[ "$(dirty_at_command)" = 0 ] || fail "dirty when the command was run: $(cat "$DIR/low")"
ordered 'and the disks flushed (' 'the battery lasts no longer' 'flushed: time to shut down' "power: $ON_LOW was run"
ups OL
phase_is "on mains"

# No time left: the command is run with what is in the cache.
write_dirt "no time"
slow 400
ups "OB LB" 90 50
phase_is "shut down"
[ "$(dirty_at_command)" -gt 0 ] || fail "the disk is not slow enough for this test"
ordered 'caches are emptied for the last time' 'no time is left, and not all caches are empty: time to shut down' \
    "power: $ON_LOW was run"
slow 0
ups OL
phase_is "on mains"

# Nothing to run: somebody else shuts down, but all is saved. And a stop while that is under way.
ON_LOW=
reload "nut://ups@127.0.0.1:$PORT" "$SETTINGS"
write_dirt "no command"
ups "OB LB" 90 1100
phase_is "saving for the last time"
slow 0
phase_is "shut down"
ordered 'flushed: time to shut down' 'nothing is to be run: somebody else stops this machine'
is_clean || fail "$($CTL cache list)"
ups OL
phase_is "on mains"
write_dirt "a stop"
ups "OB LB" 90 1100
phase_is "saving for the last time"
stop_daemon
slow 0
launch_daemon
blocks read 1 | qemu-io -f raw "$NBD" >"$DIR/out" || fail "$(cat "$DIR/out")"
[ "$(grep -c 'read 4096/4096' "$DIR/out")" = 256 ] && ! grep -q failed "$DIR/out" || fail "other bytes than were written"
stop_daemon

# What is in a log is safe there: it need not leave, and takes no time of the battery's.
BATTERY=$VOLUME
VOLUME="size = \"64 MiB\"; cache = { size = \"32 MiB\"; write = \"back\"; protection = \"journal\"; journal = [ \"$DIR/wal\" ]; };"
truncate -s 64M "$DIR/wal"
write_power "nut://ups@127.0.0.1:$PORT" "$SETTINGS"
ups OL
launch_daemon
well
mode_is logged || fail "$($CTL cache list)"
slow 40
blocks write 2 | qemu-io -f raw -t writeback "$NBD" >/dev/null || fail "write with a log"
ups OB 90 101
phase_is saved
[ "$(dirty)" -gt 0 ] || fail "the disk is not slow enough for this test"
[ "$(field needed_seconds)" = 100 ] || fail "what is in the log takes time: $($CTL --json power)"
ups OL
slow 0
phase_is "on mains"
stop_daemon
VOLUME=$BATTERY

# Nobody can write what is dirty, for the array is frozen: time is spent on it, but not the time to stop.
end "$SERVER"
rm "$DIR/far" "$DIR/d0"
truncate -s 128M "$DIR/far" "$DIR/d0"
python3 "$(dirname "$0")/faulty_nbd_server.py" "$FAR" "$DIR/far" f "faults=$DIR/faults" 2>"$DIR/server.log" &
SERVER=$!
PIDS="$PIDS $SERVER"
wait_for serving || fail "the server: $(cat "$DIR/server.log")"
LEVEL=raid0
ON_LOW=$DIR/stop
write_power "nut://ups@127.0.0.1:$PORT" "$SETTINGS"
ups OL
start_daemon
well
write_dirt "a dead disk"
end "$SERVER"
ups "OB LB" 50 106
phase_is "shut down"
[ "$(dirty_at_command)" -gt 0 ] || fail "what was dirty went to a dead disk"
ordered 'caches are emptied for the last time' 'no time is left, and not all caches are empty' "power: $ON_LOW was run"
stop_daemon
grep -q 'closed with .* KiB that could not be written' "$LOG" || fail "the log does not tell what was left"
