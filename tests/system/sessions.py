"""What is told of sessions, and how one is ended: sessions.py CTL... -- ISCSI_ADDRESS TARGET NBD_ADDRESS EXPORT"""
import json, socket, struct, subprocess, sys, time

from scsi_client import GOOD, CHECK, Session

split = sys.argv.index("--")
ctl, (iscsi_address, target, nbd_address, export) = sys.argv[1:split], sys.argv[split + 1:]


def run(*words):
    done = subprocess.run(ctl + list(words), capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def sessions():
    return json.loads(run("--json", "session", "list")[1])


def one(protocol, who=None):
    found = [s for s in sessions() if s["protocol"] == protocol and who in (None, s.get("initiator"))]
    assert len(found) == 1, found
    return found[0]


def wait_until(condition, why):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, why
        time.sleep(0.02)


def read16(lba, blocks):
    return struct.pack(">BBQIBB", 0x88, 0, lba, blocks, 0, 0)


def write16(lba, blocks):
    return struct.pack(">BBQIBB", 0x8A, 0, lba, blocks, 0, 0)


def exactly(s, n):
    data = b""
    while len(data) < n:
        part = s.recv(n - len(data))
        assert part, "closed"
        data += part
    return data


def nbd_client():
    """In transmission on the export."""
    host, port = nbd_address.rsplit(":", 1)
    s = socket.create_connection((host, int(port)), timeout=20)
    exactly(s, 18)
    s.sendall(struct.pack(">IQII", 3, 0x49484156454F5054, 1, len(export)) + export.encode())
    exactly(s, 10)
    return s


def nbd_request(s, command, offset, length, data=b""):
    s.sendall(struct.pack(">IHHQQI", 0x25609513, 0, command, 1, offset, length) + data)
    magic, error, _ = struct.unpack(">IIQ", exactly(s, 16))
    assert magic == 0x67446698
    return error, exactly(s, length) if command == 0 and error == 0 else b""


def async_event(session):
    """The event of the asynchronous message that must come next, and its third parameter."""
    header, _ = session._receive()
    assert header[0] == 0x32, header.hex()
    return header[36], struct.unpack(">H", header[42:44])[0]


def logout(session):
    header = bytearray(48)
    header[0:2] = b"\x46\x80"
    session.itt += 1
    struct.pack_into(">II", header, 24, session.cmdsn, session.expstatsn)
    struct.pack_into(">I", header, 16, session.itt)
    session.socket.sendall(bytes(header))
    reply, _ = session._receive()
    assert reply[0] == 0x26 and reply[2] == 0, reply.hex()


def counts():
    started = time.time()
    with Session(iscsi_address, target, name="iqn.2026-01.org.example:counted", isid=1) as s:
        before = one("iscsi", "iqn.2026-01.org.example:counted")
        assert abs(before["since"] - started) < 10, before["since"]
        for lba in range(20):
            assert s.command(read16(lba, 8), expect=4096)[0] == GOOD
        for lba in range(5):
            assert s.command(write16(lba, 8), out=bytes(4096))[0] == GOOD
        assert s.command(read16(1 << 40, 8), expect=4096)[0] == CHECK
        after = one("iscsi", "iqn.2026-01.org.example:counted")
        io, was = after["io"], before["io"]
        assert io["reads"] - was["reads"] == 21, io
        assert io["writes"] - was["writes"] == 5, io
        assert io["read_bytes"] - was["read_bytes"] == 20 * 4096, io
        assert io["written_bytes"] - was["written_bytes"] == 5 * 4096, io
        assert io["failed"] - was["failed"] == 1 and io["aborted"] == 0 and io["digest_errors"] == 0, io
        answered = io["reads"] + io["writes"] + io["others"]
        assert sum(bucket["commands"] for bucket in io["latency"]) == answered, io
        assert 0 < io["latency_p50_us"] <= io["latency_p99_us"], io
        assert [lun["lun"] for lun in after["luns"]] == [0], after["luns"]
        assert after["luns"][0]["io"] == io, "all was for LUN 0"
        table = run("session", "list")[1]
        row = next(line for line in table.splitlines() if line.startswith(after["id"] + " "))
        assert "iqn.2026-01.org.example:counted" in row and target in row, table
    wait_until(lambda: not [s for s in sessions() if s["protocol"] == "iscsi"], "the session is gone")
    with nbd_client() as s:
        assert nbd_request(s, 1, 0, 4096, bytes(4096))[0] == 0
        assert nbd_request(s, 0, 0, 8192)[0] == 0
        assert nbd_request(s, 0, 1 << 50, 512)[0] != 0
        io = one("nbd")["io"]
        assert (io["reads"], io["writes"], io["others"], io["failed"]) == (2, 1, 0, 1), io
        assert (io["read_bytes"], io["written_bytes"]) == (8192, 4096), io
    wait_until(lambda: not sessions(), "the connection is gone")
    print("commands, bytes, errors and latencies of %d commands are as they were" % answered)


def drops():
    polite = Session(iscsi_address, target, name="iqn.2026-01.org.example:polite", isid=2)
    deaf = Session(iscsi_address, target, name="iqn.2026-01.org.example:deaf", isid=3)
    other = Session(iscsi_address, target, name="iqn.2026-01.org.example:other", isid=4)
    code, out, err = run("session", "drop", one("iscsi", "iqn.2026-01.org.example:polite")["id"])
    assert code == 0 and "asked to end" in out, (code, out, err)
    event, seconds = async_event(polite)
    assert (event, seconds) == (1, 2), "a logout request, with the time there is: %d, %d" % (event, seconds)
    assert polite.command(bytes(6))[0] == GOOD, "it may still do what it has to do"
    logout(polite)
    assert polite.socket.recv(1) == b"", "and is then closed"
    start = time.monotonic()
    answer = json.loads(run("--json", "session", "drop", one("iscsi", "iqn.2026-01.org.example:deaf")["id"])[1])
    assert answer["state"] == "ending" and answer["cut_after_seconds"] == 2, answer
    assert async_event(deaf)[0] == 1 and async_event(deaf)[0] == 2
    assert deaf.socket.recv(1) == b""
    assert time.monotonic() - start > 1.5, "not before the time is over"
    assert other.command(bytes(6))[0] == GOOD, "others go on"
    client, second = nbd_client(), nbd_client()
    first = min((s for s in sessions() if s["protocol"] == "nbd"), key=lambda s: int(s["id"][4:]))
    assert run("session", "drop", first["id"])[0] == 0
    assert client.recv(1) == b"", "an NBD client with nothing under way is closed at once"
    assert nbd_request(second, 0, 0, 512)[0] == 0
    for wrong in (first["id"], "iscsi-9999", "nbd-", "vms", "iscsi-99999999999"):
        code, _, err = run("session", "drop", wrong)
        assert code == 1 and wrong in err, (wrong, code, err)
    other.socket.close()
    second.close()
    print("three sessions were ended in order: by logout, cut when the time was over, and NBD")


counts()
drops()
