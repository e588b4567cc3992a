# corbelctl: plans, confirmation, exit statuses, JSON; reload; several volumes of different levels on one array.
. "$(dirname "$0")/functions.sh"
make_disks 6 96M
write_config raid6 'size = "32 MiB";'
launch_daemon
expect() { # status, words...
    want=$1
    shift
    got=0
    "$@" >"$DIR/out" 2>&1 || got=$?
    [ "$got" = "$want" ] || fail "$*: status $got, not $want: $(cat "$DIR/out")"
}
sum=$(cat "$DIR"/d* | cksum)
expect 0 $CTL status
grep -q 'corbelctl apply' "$DIR/out" || fail "status does not say what to do: $(cat "$DIR/out")"
expect 0 $CTL apply --dry-run
grep -q 'create array r on 6 disks' "$DIR/out" || fail "the plan: $(cat "$DIR/out")"
expect 3 $CTL apply </dev/null
[ "$sum" = "$(cat "$DIR"/d* | cksum)" ] || fail "something was written before it was confirmed"
expect 0 $CTL apply --yes
expect 0 $CTL apply --yes
grep -q 'as the config says' "$DIR/out" || fail "a second apply: $(cat "$DIR/out")"
wait_idle
expect 0 $CTL status
expect 0 $CTL --json volume list
grep -q '"size_bytes": 33554432' "$DIR/out" || fail "volume list: $(cat "$DIR/out")"
expect 0 $CTL --json disk list
[ "$(grep -c '"state": "online"' "$DIR/out")" = 6 ] || fail "disk list: $(cat "$DIR/out")"
expect 0 $CTL array list
expect 2 $CTL disk
grep -q "disk fail DISK" "$DIR/out" && ! grep -q "volume list" "$DIR/out" || fail "not the usage of what was meant: $(cat "$DIR/out")"
expect 2 $CTL fnord
grep -q "no command fnord" "$DIR/out" || fail "a command that there is not: $(cat "$DIR/out")"
expect 2 $CTL volume rate r/v
expect 2 $CTL disk fail "$(printf 'r/\377')"
grep -q 'UTF-8' "$DIR/out" || fail "a name that is not UTF-8: $(cat "$DIR/out")"

# A sentence that is cut within a character; names that are too long.
for prefix in "" a; do
    expect 1 $CTL array assemble "$prefix$(printf 'é%.0s' $(seq 1 254))"
    grep -q '^corbelctl: array ' "$DIR/out" || fail "a sentence that is cut: $(cat "$DIR/out")"
done
expect 1 $CTL disk online "r/$(printf '%0600d' 1)"
grep -q 'longer than' "$DIR/out" || fail "a name that is too long: $(cat "$DIR/out")"

# A disk by hand: out, and in again.
expect 1 $CTL disk online r/1
grep -q 'in service already' "$DIR/out" || fail "online of a disk in service: $(cat "$DIR/out")"
expect 0 $CTL disk fail r/1
expect 5 $CTL status
expect 0 $CTL disk online r/1
wait_for_long $CTL status || fail "not healthy after the rebuild"

# Another disk in its place: the one that is named, not the one that was there.
truncate -s 96M "$DIR/new"
DISKS=$(echo "$DISKS" | sed "s|$DIR/d1\"|$DIR/new\"|")
write_config raid6 'size = "32 MiB";'
expect 0 $CTL reload
expect 0 $CTL disk fail r/1
expect 0 $CTL disk online "$DIR/new"
wait_for_long $CTL status || fail "not healthy after the rebuild onto another disk"
expect 0 $CTL disk list
grep -q "^r/1 *online .*$DIR/new" "$DIR/out" || fail "not the disk that was named: $(cat "$DIR/out")"

# More volumes, of other levels, in the space that is left; served after apply.
addresses
random_file "$DIR/in" 33554432 1
nbdcopy --flush "$DIR/in" "$NBD"
EXTRA_VOLUMES=', { name = "m"; level = "raid10"; size = "16 MiB"; }, { name = "s"; level = "raid0"; size = "48 MiB"; }, { name = "j"; level = "jbod"; slot = 2; size = "8 MiB"; }'
EXTRA_EXPORTS=', { name = "m"; volume = "r/m"; }, { name = "s"; volume = "r/s"; }, { name = "j"; volume = "r/j"; }'
write_config raid6 'size = "32 MiB";'
expect 0 $CTL reload
grep -q '^not taken over: .*use corbelctl apply' "$DIR/out" || fail "reload does not refuse new volumes: $(cat "$DIR/out")"
grep -q "^not taken over: NBD export \"m\" is not served" "$DIR/out" || fail "reload of an export without volume: $(cat "$DIR/out")"
grep -q "^taken over: NBD" "$DIR/out" && fail "reload took over what is not there: $(cat "$DIR/out")"
expect 0 $CTL --json reload
grep -q '"refused": \[' "$DIR/out" || fail "reload as JSON: $(cat "$DIR/out")"
expect 0 $CTL apply --yes
for name in m s j; do
    size=$(nbdinfo --size "nbd://$NBD_ADDRESS/$name") || fail "$name is not served"
    random_file "$DIR/$name" "$size" 7
    nbdcopy --flush "$DIR/$name" "nbd://$NBD_ADDRESS/$name"
done
for name in m s j; do
    nbdcopy "nbd://$NBD_ADDRESS/$name" "$DIR/out"
    cmp "$DIR/$name" "$DIR/out" || fail "$name reads otherwise"
done
nbdcopy "$NBD" "$DIR/out" && cmp "$DIR/in" "$DIR/out" || fail "volume v was touched"

# A change of shape is refused, and nothing is done.
write_config raid5 'size = "32 MiB";'
expect 1 $CTL apply --yes
grep -q 'not possible in this version' "$DIR/out" || fail "change of level: $(cat "$DIR/out")"
write_config raid6 'size = "32 MiB";'

# SIGHUP takes over a new export and survives a config with a mistake.
EXTRA_EXPORTS="$EXTRA_EXPORTS, { name = \"again\"; volume = \"r/v\"; read_only = true; }" EXTRA_VOLUMES="$EXTRA_VOLUMES, { name = \"late\"; level = \"raid5\"; size = \"8 MiB\"; }" write_config raid6 'size = "32 MiB";'
sed -i 's/exports = (/connections = 5; exports = (/' "$CONFIG"
kill -HUP "$PID"
wait_for grep -q 'taken over: NBD export "again"' "$LOG" || fail "SIGHUP did not add an export"
grep -q 'arrays "r".volumes "late" is new' "$LOG" || fail "SIGHUP and a new volume: $(cat "$LOG")"
grep -q 'nbd.connections is read at start' "$LOG" || fail "SIGHUP and a changed limit: $(cat "$LOG")"
nbdinfo "nbd://$NBD_ADDRESS/again" | grep -q 'is_read_only: true' || fail "the new export is not read-only"
echo 'nonsense' >"$CONFIG"
kill -HUP "$PID"
wait_for grep -q "nothing changed: $CONFIG:" "$LOG" || fail "SIGHUP with a broken config: $(cat "$LOG")"
nbdinfo "$NBD" >/dev/null || fail "a broken config stopped the service"

# What is asked while the daemon stops changes nothing any more.
write_config raid6 'size = "32 MiB";'
kill -STOP "$PID"
kill -TERM "$PID"
$CTL --json apply --yes >"$DIR/out" 2>&1 &
PIDS=$!
asked() { [ "$(grep -c "$SOCKET" /proc/net/unix)" = 2 ]; } # the listening one, and one that is not accepted yet
wait_for asked || fail "corbelctl does not connect"
kill -CONT "$PID"
stop_daemon
grep -q 'array r started' "$LOG" && fail "an array was started while the daemon stopped: $(cat "$LOG")"
launch_daemon
grep -q 'not stopped cleanly' "$LOG" && fail "the arrays were not marked clean: $(cat "$LOG")"
# An array that is taken out of the config runs on; apply has nothing to do with it.
echo "daemon = { control = \"$SOCKET\"; };" >"$CONFIG"
expect 0 $CTL reload
grep -q '^not taken over: arrays "r" is not named any more: it runs on' "$DIR/out" || fail "an array taken out: $(cat "$DIR/out")"
[ "$(array_state)" = optimal ] || fail "an array taken out: $($CTL status)"
stop_daemon
