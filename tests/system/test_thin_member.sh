# A thin disk beneath runs out of space: without redundancy writes end with 7/27/07 (NBD: no space left) and go on when there is more;
# with redundancy the disk is lost, and nobody else hears of it.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/remotes.sh"
PORT=$(free_ports 1)
URI=nbd://127.0.0.1:$PORT/
truncate -s 64M "$DIR/far"
python3 "$(dirname "$0")/faulty_nbd_server.py" "$PORT" "$DIR/far" fu "faults=$DIR/faults" 2>"$DIR/server.log" &
PIDS=$!
wait_for nbdinfo --size "$URI" || fail "the server: $(cat "$DIR/server.log")"
full() { echo "full 33554432 25165824" >"$DIR/faults"; } # not where the labels are
DISKS="\"$URI\""
write_config jbod
start_daemon
full
PYTHONDONTWRITEBYTECODE=1 python3 - "$(dirname "$0")" "$ISCSI_ADDRESS" "$TARGET" "$DIR/faults" <<'END' || fail "see above"
import os, struct, sys
sys.path.insert(0, sys.argv[1])
from scsi_client import CHECK, GOOD, Session

def write(s, lba, byte):
    return s.command(struct.pack(">BBIBHB", 0x2A, 8, lba, 0, 8, 0), byte * 4096)

with Session(*sys.argv[2:4]) as s:
    told, lba = [], 0
    for lba in range(0, 40 * 2048, 2048):
        status, _, sense = write(s, lba, b"a")
        told.append((status, sense[2:3] + sense[12:14]))
    good = told.index((CHECK, b"\x07\x27\x07"))
    assert good > 8 and set(told[:good]) == {(GOOD, b"")} and set(told[good:]) == {(CHECK, b"\x07\x27\x07")}, told
    os.unlink(sys.argv[4])
    assert write(s, lba, b"b")[0] == GOOD, "there is space again"
    assert s.command(struct.pack(">BBIBHB", 0x28, 0, lba, 0, 8, 0), expect=4096)[1] == b"b" * 4096
    assert s.command(struct.pack(">BBIBHB", 0x28, 0, (good - 1) * 2048, 0, 8, 0), expect=4096)[1] == b"a" * 4096
END
[ "$(array_state)" = optimal ] || fail "the array is $(array_state)"
full
qemu-io -f raw -c 'write 40M 4k' "$NBD" 2>&1 | grep -q 'No space left' || fail "NBD: $(qemu-io -f raw -c 'write 40M 4k' "$NBD" 2>&1)"
rm "$DIR/faults"
stop_daemon

truncate -s 0 "$DIR/far"
truncate -s 64M "$DIR/far" "$DIR/d0"
DISKS="\"$DIR/d0\", \"$URI\""
write_config raid1 'size = "48 MiB";'
start_daemon
wait_idle
full
qemu-io -f raw -c 'write -P 7 40M 1M' -c 'read -P 7 40M 1M' "$ISCSI" >"$DIR/out" 2>&1 || fail "RAID 1: $(cat "$DIR/out")"
[ "$(array_state)" = degraded ] || fail "the array is $(array_state)"
stop_daemon
