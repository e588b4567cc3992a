# Spares: named by the config or added by hand, taken at once when a disk is lost, known after a restart; disks removed
# and forgotten.
. "$(dirname "$0")/functions.sh"
make_disks 3 64M
truncate -s 64M "$DIR/s0" "$DIR/s1"
truncate -s 32M "$DIR/small"
EXTRA_TOP="spares = [ \"$DIR/small\", \"$DIR/s0\" ]; disks = [ \"$DIR/s*\" ];"
write_config raid5 'size = "32 MiB";'
start_daemon
wait_idle
random_file "$DIR/in" 33554432 1
nbdcopy --flush "$DIR/in" "$NBD"
$CTL status | grep -q "spare .*$DIR/s0" || fail "the spare is not shown: $($CTL status)"

state_of() { $CTL disk list | awk -v slot="$1" '$1 == slot { print $2 }'; }
is_online() { [ "$(state_of "$1")" = online ]; }

# One is lost: the spare that fits takes its place.
$CTL disk remove r/1 2>&1 | grep -q 'in service' || fail "a disk in use was let go"
$CTL disk forget r/1 2>&1 | grep -q 'take it out of service first' || fail "a disk in use was forgotten"
$CTL disk fail r/1 >/dev/null
wait_for is_online r/1 || fail "no spare was taken: $($CTL status)"
wait_idle
$CTL disk list | grep 'r/1' | grep -q "$DIR/s0" || fail "the wrong spare: $($CTL disk list)"
grep -q "spare $DIR/s0 takes slot 1" "$LOG" || fail "the log does not tell"
$CTL status | grep -q "spare .*$DIR/s0" && fail "the spare is still there: $($CTL status)"

# The next loss: what is left is too small, and that is said in numbers.
$CTL disk fail r/2 >/dev/null
too_small() { grep -q "spare $DIR/small has 33554432 bytes, [0-9]* too few" "$LOG"; }
wait_for too_small || fail "the log does not say why no spare fits"
[ "$(grep -c 'too few' "$LOG")" = 1 ] || fail "said again and again"

# By hand: blank only, and only where it is found again.
printf 'not blank at all' | dd of="$DIR/foreign" conv=notrunc 2>/dev/null
truncate -s 64M "$DIR/foreign"
$CTL disk add-spare "$DIR/foreign" 2>&1 | grep -q 'not among' || fail "a spare that would be missed at the next start"
mke2fs -q "$DIR/s1" 2>/dev/null
$CTL disk add-spare "$DIR/s1" r 2>&1 | grep -q 'holds .*ext2' || fail "a file system was overwritten"
$CTL disk remove r/2 >/dev/null || fail "a failed disk is not let go"
$CTL disk forget r/2 >/dev/null || fail "a failed disk is not forgotten"
$CTL disk add-spare "$DIR/s1" nowhere 2>&1 | grep -q 'no array' || fail "an array that is not there"
rm "$DIR/s1"
truncate -s 64M "$DIR/s1"
$CTL disk add-spare "$DIR/s1" r >/dev/null || fail "a blank disk is no spare"
wait_for is_online r/2 || fail "the added spare was not taken: $($CTL status)"
wait_idle

# A spare that was added is known after a restart, by its label.
truncate -s 64M "$DIR/s2"
$CTL disk add-spare "$DIR/s2" >/dev/null || fail "add-spare"
stop_daemon
launch_daemon
$CTL status | grep -q "spare .*$DIR/s2" || fail "forgotten over the restart: $($CTL status)"
[ "$(array_state)" = optimal ] || fail "after a restart: $($CTL array list)"
nbdcopy "$NBD" "$DIR/back"
cmp -n 33554432 "$DIR/in" "$DIR/back" || fail "the volume changed"
$CTL disk remove "$DIR/s2" >/dev/null || fail "a spare is not let go"
$CTL status | grep -q "spare .*$DIR/s2" && fail "still a spare"

# Under another name a disk is the same disk: a member is not overwritten, a spare not counted twice.
ln -s "$DIR/d0" "$DIR/s3"
ln "$DIR/d0" "$DIR/s4"
for other in s3 s4; do
    $CTL disk add-spare "$DIR/$other" --force 2>&1 | grep -q 'in use' || fail "a member's label was overwritten by way of $other"
done
truncate -s 64M "$DIR/s5"
ln -s "$DIR/s5" "$DIR/s6"
$CTL disk add-spare "$DIR/s5" >/dev/null && $CTL disk add-spare "$DIR/s6" >/dev/null || fail "add-spare under two names"
[ "$($CTL status | grep -c '^[^ ]* *spare ')" = 2 ] || fail "one disk, two spares: $($CTL status)"
$CTL disk remove "$DIR/s6" >/dev/null || fail "a spare is not let go by its other name"

# By force: what is there is told and erased at once, so that it is taken when it is needed.
truncate -s 64M "$DIR/s7"
mke2fs -q -L old "$DIR/s7" 2>/dev/null
$CTL disk add-spare "$DIR/s7" --force >"$DIR/said" || fail "add-spare --force: $(cat "$DIR/said")"
grep -q 'a file system (ext2 old) was on it and is erased' "$DIR/said" || fail "not told what was erased: $(cat "$DIR/said")"
$CTL disk fail r/0 >/dev/null
wait_for is_online r/0 || fail "the spare that was added by force was not taken: $($CTL status)"
wait_idle
grep -q "spare $DIR/s7 takes slot 0" "$LOG" || fail "another spare was taken: $($CTL disk list)"
# The same with the label of an array, all four copies of it.
cp --sparse=always "$DIR/d0" "$DIR/s8"
$CTL disk add-spare "$DIR/s8" 2>&1 | grep -q 'is or was a member of array r' || fail "a label was overwritten"
$CTL disk add-spare "$DIR/s8" --force | grep -q 'a member of array r was on it' || fail "not told that it was a member"
$CTL disk fail r/1 >/dev/null
wait_for is_online r/1 || fail "the former member was not taken: $($CTL status)"
wait_idle

# An array that waits is started by its name.
$CTL array assemble r 2>&1 | grep -q 'runs already' || fail "started twice"
stop_daemon
