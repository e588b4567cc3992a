# Silent corruption in a member: a scrub names disk and place, a repair puts it right, and the result outlives a restart.
. "$(dirname "$0")/functions.sh"
make_disks 5 64M
write_config raid6 'size = "48 MiB"; chunk = "64 KiB";'
start_daemon
wait_idle
random_file "$DIR/in" 50331648 1
nbdcopy --flush "$DIR/in" "$NBD"

# The offset in a member file at which some bytes of the volume stand.
place_of() {
    python3 - "$DIR/in" "$1" "$2" <<'PYTHON'
import sys
image, disk, at = open(sys.argv[1], 'rb').read(), open(sys.argv[2], 'rb').read(), int(sys.argv[3])
print(disk.find(image[at:at + 4096]))
PYTHON
}

# flip DISK OFFSET LENGTH
flip() {
    python3 - "$@" <<'PYTHON'
import sys
with open(sys.argv[1], 'r+b') as disk:
    disk.seek(int(sys.argv[2]))
    old = disk.read(int(sys.argv[3]))
    disk.seek(int(sys.argv[2]))
    disk.write(bytes(byte ^ 0x5a for byte in old))
PYTHON
}

scrub() {
    $CTL volume scrub r/v "$@" >/dev/null
    wait_idle
}

scrub
$CTL volume scrub-show r/v | grep -q ': 0 blocks' || fail "nothing was wrong: $($CTL volume scrub-show r/v)"

at=12582912 # of the volume, where a chunk begins
for slot in 0 1 2 3 4; do
    place=$(place_of "$DIR/d$slot" $at)
    [ "$place" -lt 0 ] || break
done
[ "$place" -gt 0 ] || fail "the bytes are on no disk"
flip "$DIR/d$slot" "$place" 4096
scrub
$CTL volume scrub-show r/v >"$DIR/out"
grep -q "bytes $at to $((at + 4095)): wrong in slot $slot at $place, 4096 bytes: left" "$DIR/out" ||
    fail "slot $slot at $place is not named: $(cat "$DIR/out")"
grep -q ': 8 blocks' "$DIR/out" || fail "not counted: $(cat "$DIR/out")"
grep -q "wrong bytes on disk .*d$slot (slot $slot) at $place" "$LOG" || fail "the log does not tell"
[ "$(place_of "$DIR/d$slot" $at)" = -1 ] || fail "a check changed the disk"

scrub --repair
$CTL volume scrub-show r/v | grep -q '8 repaired' || fail "not repaired: $($CTL volume scrub-show r/v)"
[ "$(place_of "$DIR/d$slot" $at)" = "$place" ] || fail "the repair did not bring the bytes back"
nbdcopy "$NBD" "$DIR/back"
cmp "$DIR/in" "$DIR/back" || fail "the volume changed"

stop_daemon
start_daemon
$CTL volume scrub-show r/v | grep -q '^last: repair, .* 8 repaired' || fail "forgotten: $($CTL volume scrub-show r/v)"
scrub
$CTL volume scrub-show r/v | grep -q ': 0 blocks' || fail "still wrong: $($CTL volume scrub-show r/v)"
# A date that no calendar has, as a disk may say.
python3 - "$DIR/fake.sock" <<'PYTHON' &
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen(1)
client = server.accept()[0]
client.recv(4096)
client.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"arrays": [{"name": "r", "volumes": [{"name": "v", "scrub": {"last": '
               b'{"mode": "check", "finished": 9223372036854775807}}}]}]}')
PYTHON
PIDS=$!
wait_for test -S "$DIR/fake.sock"
"$BUILD_DIR/corbelctl" --socket "$DIR/fake.sock" volume scrub-show r/v >"$DIR/out" 2>&1 || fail "a strange date: $(cat "$DIR/out")"
grep -q '^last: check, ended at no date' "$DIR/out" || fail "a strange date: $(cat "$DIR/out")"
$CTL volume scrub r/w >/dev/null 2>&1 && fail "a volume that is not there"
$CTL volume scrub-stop r/v 2>&1 | grep -q 'not being scrubbed' || fail "there was nothing to call off"
stop_daemon
