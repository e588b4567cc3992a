# Work in the background is paused, slowed down and let go on, by hand and by the config, also over a restart.
. "$(dirname "$0")/functions.sh"
make_disks 4 64M
write_config raid5 'size = "96 MiB"; chunk = "64 KiB";'
start_daemon
wait_idle
random_file "$DIR/in" 100663296 1
nbdcopy --flush "$DIR/in" "$NBD"

$CTL volume pause r/v >/dev/null
$CTL disk fail r/1 >/dev/null
random_file "$DIR/in" 100663296 2
nbdcopy --flush "$DIR/in" "$NBD"
$CTL disk online r/1 --force >/dev/null
rebuild_waits() {
    $CTL status >"$DIR/out" || : # degraded
    grep -q 'rebuild of v: .* waits: paused' "$DIR/out"
}
wait_for rebuild_waits || fail "$(cat "$DIR/out")"
$CTL job cancel r/v 2>"$DIR/out" && fail "a rebuild was called off"
grep -q 'rebuild of volume r/v is never called off' "$DIR/out" || fail "$(cat "$DIR/out")"
$CTL job cancel r/1 2>"$DIR/out" && fail "a rebuild was called off by its slot"
grep -q 'being rebuilt: that is never called off' "$DIR/out" || fail "$(cat "$DIR/out")"
$CTL job cancel r/9 2>/dev/null && fail "a job of a disk that is not there was called off"
$CTL volume rate r/v --priority 101 2>/dev/null && fail "a priority of 101"
$CTL volume rate r/v --min "2 MiB" --max "1 MiB" 2>/dev/null && fail "a maximum below the minimum"
# What corbelctl would not send: refused, and nothing is changed.
for wrong in '"priority": 4294967297' '"priority": -5' '"priority": 1e30' '"max_rate": "fast"' '"paused": "no"'; do
    code=$(curl -s -o "$DIR/answer" -w '%{http_code}' --unix-socket "$SOCKET" -X POST \
        -d "{\"volume\": \"r/v\", $wrong}" http://corbel/api/v1/volumes/jobs)
    [ "$code" = 400 ] || fail "$wrong is answered $code: $(cat "$DIR/answer")"
done
head -c 100000 /dev/zero | tr '\0' ' ' >"$DIR/long"
code=$(curl -s -o "$DIR/answer" -w '%{http_code}' --unix-socket "$SOCKET" -X POST --data-binary "@$DIR/long" \
    http://corbel/api/v1/volumes/jobs)
[ "$code" = 413 ] && grep -q '"detail": "the body is longer than 64 KiB"' "$DIR/answer" ||
    fail "a long body is answered $code: $(cat "$DIR/answer")"
rebuild_waits || fail "a wrong request let the rebuild go on"
$CTL volume rate r/w --priority 50 2>/dev/null && fail "a volume that is not there"
$CTL volume rate r/v --priority 50 --max "900 MiB" >/dev/null
stop_daemon
start_daemon
$CTL status --json >"$DIR/out" || :
grep -q '"paused": true' "$DIR/out" && grep -q '"max_rate": 943718400' "$DIR/out" || fail "forgotten: $(cat "$DIR/out")"
$CTL array resume r >/dev/null || fail "array resume"
$CTL array pause r >/dev/null || fail "array pause"
$CTL array rate r --priority 30 --max "800 MiB" >/dev/null || fail "array rate"
$CTL array rate r --priority 0 2>/dev/null && fail "a priority of 0"
$CTL array pause s 2>/dev/null && fail "an array that is not there"
$CTL status --json >"$DIR/out" || :
if grep -q '"kind": "rebuild"' "$DIR/out"; then
    grep -q '"paused": true' "$DIR/out" && grep -q '"max_rate": 838860800' "$DIR/out" || fail "$(cat "$DIR/out")"
fi
$CTL array resume r >/dev/null
wait_idle
nbdcopy "$NBD" "$DIR/back"
cmp "$DIR/in" "$DIR/back" || fail "the volume changed"
