# Zeroes are written and read back, for those who want it: in the foreground (nobody is served meanwhile, also after a
# restart), in the background, called off. What is stored stays.
. "$(dirname "$0")/functions.sh"
make_disks 4 64M
EXTRA_VOLUMES=', { name = "w"; level = "raid6"; size = "16 MiB"; }'
EXTRA_EXPORTS=', { name = "w"; volume = "r/w"; }'
write_config raid5 'size = "64 MiB"; init = "foreground"; priority = 20; max_rate = "8 MiB";'
start_daemon
held() {
    nbdinfo "$NBD" >/dev/null 2>&1 && fail "served before it is initialised"
    $CTL volume list | grep -q 'r/v: not served until it is initialised' || fail "$($CTL volume list)"
    $CTL status | grep -q '^  init of v: ' || fail "$($CTL status)"
    grep -q 'NBD export "v" is not served, because volume r/v is held: it is not initialised yet' "$LOG" || fail "the log does not say so"
    grep -q "iSCSI target $TARGET is not served, because volume r/v is held: it is not initialised yet" "$LOG" || fail "nor of the target"
}
held
nbdinfo "${NBD%v}w" >/dev/null || fail "another volume is not served"
stop_daemon
launch_daemon
held
kill_daemon
launch_daemon
held
$CTL volume rate r/v --max 0 >/dev/null
served() { nbdinfo "$NBD"; }
wait_for_long served || fail "not served when it is over: $($CTL status)"
wait_for grep -q "iSCSI target $TARGET serves 1 LUN" "$LOG" || fail "the target is not served"
$CTL --json volume list >"$DIR/out"
awk '/"init"/ {n += /none/} END {exit n != 2}' "$DIR/out" || fail "$(cat "$DIR/out")"
qemu-io -f raw -c 'read -P 0 0 64M' "$NBD" | grep -q 'verification failed' && fail "not zeroes"
$CTL volume scrub r/v >/dev/null
wait_idle
$CTL volume scrub-show r/v | grep -q ': 0 blocks' || fail "$($CTL volume scrub-show r/v)"

# In the background, beside what is stored.
random_file "$DIR/in" 5242880 1
nbdcopy --flush "$DIR/in" "${NBD%v}w"
$CTL volume pause r/w >/dev/null
$CTL volume init r/w >/dev/null || fail "volume init"
$CTL volume init r/w 2>"$DIR/out" && fail "twice"
grep -q 'being initialised already' "$DIR/out" || fail "$(cat "$DIR/out")"
$CTL volume init-stop r/w >/dev/null || fail "volume init-stop"
$CTL volume init-stop r/w 2>/dev/null && fail "called off twice"
$CTL volume init r/w >/dev/null || fail "again"
$CTL job cancel r/w >/dev/null || fail "job cancel"
$CTL job cancel r/w 2>"$DIR/out" && fail "cancelled twice"
grep -q 'there is no job on volume r/w' "$DIR/out" || fail "$(cat "$DIR/out")"
$CTL volume init r/w >/dev/null || fail "a third time"
$CTL volume resume r/w >/dev/null
wait_idle
nbdcopy "${NBD%v}w" "$DIR/back"
cmp -n 5242880 "$DIR/in" "$DIR/back" || fail "what is stored was overwritten"
$CTL volume scrub r/w >/dev/null
wait_idle
$CTL volume scrub-show r/w | grep -q ': 0 blocks' || fail "$($CTL volume scrub-show r/w)"
stop_daemon

# Without redundancy nothing tells what holds no data.
write_config raid0 'init = "background";'
"$BUILD_DIR/corbeld" -t -c "$CONFIG" >"$DIR/out" 2>&1 && fail "raid0 with init"
grep -q 'only levels with redundancy' "$DIR/out" || fail "$(cat "$DIR/out")"
