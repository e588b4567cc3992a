"""Raw peers for test_hostile.sh: hostile.py NBD_ADDRESS ISCSI_ADDRESS TARGET NBD_SOCKET

Each case is a function; after each one a fresh, well-behaved client must be served at once."""
import os, random, socket, struct, sys, time

nbd_host, nbd_port = sys.argv[1].rsplit(":", 1)
iscsi_host, iscsi_port = sys.argv[2].rsplit(":", 1)
target, unix_path = sys.argv[3], sys.argv[4]

OPT = 0x49484156454F5054


def connect(port, host="127.0.0.1"):
    s = socket.create_connection((host, int(port)), timeout=10)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def exactly(s, n):
    data = b""
    while len(data) < n:
        part = s.recv(n - len(data))
        if not part:
            raise EOFError("closed after %d of %d bytes" % (len(data), n))
        data += part
    return data


def closed(s, seconds=10):
    """Read until the peer closes."""
    s.settimeout(seconds)
    try:
        while s.recv(65536):
            pass
        return True
    except (ConnectionResetError, BrokenPipeError):
        return True
    except socket.timeout:
        return False


def option(number, data=b"", length=None):
    return struct.pack(">QII", OPT, number, len(data) if length is None else length) + data


def nbd_greet(flags=3):
    s = connect(nbd_port)
    magic, opts, server_flags = struct.unpack(">QQH", exactly(s, 18))
    assert magic == 0x4E42444D41474943 and opts == OPT and server_flags == 3
    s.sendall(struct.pack(">I", flags))
    return s


def nbd_reply(s):
    magic, number, kind, length = struct.unpack(">QIII", exactly(s, 20))
    assert magic == 0x3E889045565A9, hex(magic)
    return number, kind, exactly(s, length)


def nbd_go(name=b"v"):
    s = nbd_greet()
    s.sendall(option(7, struct.pack(">I", len(name)) + name + struct.pack(">H", 0)))
    while True:
        _, kind, data = nbd_reply(s)
        if kind == 1:
            return s
        assert kind == 3, hex(kind)


def request(kind, cookie, offset, length, flags=0):
    return struct.pack(">IHHQQI", 0x25609513, flags, kind, cookie, offset, length)


def simple(s):
    magic, error, cookie = struct.unpack(">IIQ", exactly(s, 16))
    assert magic == 0x67446698, hex(magic)
    return error, cookie


def fresh_clients():
    s = nbd_go()
    s.sendall(request(0, 1, 0, 512))
    assert simple(s) == (0, 1)
    exactly(s, 512)
    s.sendall(request(2, 2, 0, 0))
    assert closed(s, 5), "DISC did not close"
    s = iscsi_login()
    s.close()


def iscsi_pdu(opcode, flags, data=b"", itt=1, cmdsn=1, specific=b"\0" * 16, lun=b"\0" * 8):
    bhs = bytes([opcode, flags, 0, 0, 0]) + struct.pack(">I", len(data))[1:] + lun + struct.pack(">I", itt) + b"\0" * 28
    bhs = bytearray(bhs)
    bhs[20:20 + len(specific)] = specific
    return bytes(bhs) + data + b"\0" * (-len(data) % 4)


def login_pdu(keys, flags=0x87, isid=b"\x80\0\0\0\0\1"):
    data = b"".join(k.encode() + b"\0" for k in keys)
    bhs = bytearray(iscsi_pdu(0x43, flags, data))
    bhs[8:14] = isid
    bhs[24:28] = struct.pack(">I", 1)
    return bytes(bhs)


def iscsi_read(s):
    bhs = exactly(s, 48)
    length = struct.unpack(">I", b"\0" + bhs[5:8])[0]
    return bhs, exactly(s, length + (-length % 4))


def iscsi_login(extra=()):
    s = connect(iscsi_port)
    s.sendall(login_pdu(["InitiatorName=iqn.2026-01.org.example:client%d" % random.randrange(1 << 30), "TargetName=" + target,
                         "SessionType=Normal", *extra]))
    bhs, _ = iscsi_read(s)
    assert bhs[0] == 0x23 and bhs[36:38] == b"\0\0", bhs.hex()
    return s


# --- the cases: NBD ---

def case_scanner_connects_and_goes():
    for _ in range(50):
        connect(nbd_port).close()
        connect(iscsi_port).close()


def case_http_on_both_ports():
    for port in (nbd_port, iscsi_port):
        s = connect(port)
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"x" * 100)
        assert closed(s, 40), port


def case_random_bytes():
    rng = random.Random(7)
    for port in (nbd_port, iscsi_port):
        for _ in range(40):
            s = connect(port)
            try:
                s.sendall(rng.randbytes(rng.randrange(1, 5000)))
            except OSError:
                pass
            s.close()


def case_unknown_client_flag():
    assert closed(nbd_greet(flags=0x80000003))


def case_option_of_4_gib():
    s = nbd_greet()
    s.sendall(option(7, b"x" * 100, length=0xFFFFFFFF))
    s.close()


def case_name_length_overflow():
    s = nbd_greet()
    s.sendall(option(7, struct.pack(">I", 0xFFFFFFFF) + b"v" + struct.pack(">H", 0)))
    _, kind, _ = nbd_reply(s)
    assert kind & 0x80000000
    s.sendall(option(3))
    while nbd_reply(s)[1] != 1:
        pass
    s.close()


def case_unknown_options_are_refused_and_skipped():
    s = nbd_greet()
    for number in (4, 9, 10, 11, 77, 0xFFFF):
        s.sendall(option(number, b"IHAVEOPT" * 5))
        _, kind, _ = nbd_reply(s)
        assert kind & 0x80000000, (number, hex(kind))
    s.close()


def case_commands_that_cannot_be():
    s = nbd_go()
    size = 32 << 20
    for kind, offset, length, flags, errors in (
            (0, size, 512, 0, (22,)), (0, size - 512, 1024, 0, (22,)), (1, size, 512, 0, (28,)), (4, size, 512, 0, (22,)),
            (6, size, 512, 0, (28,)), (9, 0, 512, 0, (22,)), (0, 2 ** 64 - 512, 1024, 0, (22,)), (0, 0, 512, 0x8000, (22,)),
            (6, 0, 512, 16, (22, 95)), (0, 0, 0xFFFFFE00, 0, (22, 75)), (7, 0, 512, 0, (22,))):
        s.sendall(request(kind, 9, offset, length, flags) + (b"z" * length if kind == 1 else b""))
        error, cookie = simple(s)
        assert error in errors and cookie == 9, (kind, offset, length, error)
    s.sendall(request(0, 10, 0, 512))
    assert simple(s) == (0, 10), "out of step"
    s.close()


def case_wrong_magic_ends_the_connection():
    s = nbd_go()
    s.sendall(b"\0" * 28)
    assert closed(s)


def case_reset_with_requests_in_flight():
    for i in range(20):
        s = nbd_go()
        s.sendall(b"".join(request(i % 2, n, n * 65536, 65536) + (b"q" * 65536 if i % 2 else b"") for n in range(32))
                  if not i % 2 else b"".join(request(0, n, n * 65536, 65536) for n in range(64)))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
    restore()


def case_half_a_write_then_silence():
    stalled = [nbd_go() for _ in range(20)]
    for s in stalled:
        s.sendall(request(1, 1, 0, 1 << 20) + b"h" * 1000)
    start = time.time()
    fresh_clients()
    assert time.time() - start < 5, "others waited for stalled writers"
    for s in stalled:
        s.close()


def case_reader_that_never_reads():
    s = nbd_go()
    s.settimeout(3)
    try:
        for n in range(2000):
            s.sendall(request(0, n, 0, 1 << 20))
    except (socket.timeout, OSError):
        pass
    fresh_clients()
    s.close()


def case_stalled_negotiations():
    stalled = [nbd_greet() for _ in range(100)]
    start = time.time()
    fresh_clients()
    assert time.time() - start < 5
    for s in stalled:
        s.close()


# --- the cases: iSCSI ---

def case_first_pdu_is_no_login():
    for opcode in (0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x3F):
        s = connect(iscsi_port)
        s.sendall(iscsi_pdu(opcode, 0x80))
        assert closed(s, 20), hex(opcode)


def case_login_without_names():
    s = connect(iscsi_port)
    s.sendall(login_pdu(["SessionType=Normal"]))
    bhs, _ = iscsi_read(s)
    assert bhs[36:38] == b"\x02\x07", bhs.hex()
    s.close()


def case_unknown_target():
    s = connect(iscsi_port)
    s.sendall(login_pdu(["InitiatorName=iqn.2026-01.org.example:c", "TargetName=iqn.2026-01.org.example:nothere"]))
    bhs, _ = iscsi_read(s)
    assert bhs[36:38] == b"\x02\x03", bhs.hex()
    s.close()


def case_login_stalls():
    stalled = []
    for _ in range(100):
        s = connect(iscsi_port)
        s.sendall(b"\x43" * 12)
        stalled.append(s)
    start = time.time()
    fresh_clients()
    assert time.time() - start < 5
    for s in stalled:
        s.close()


def case_endless_login_keys():
    s = connect(iscsi_port)
    try:
        for _ in range(3000):
            s.sendall(login_pdu(["X-%d=%s" % (n, "y" * 200) for n in range(30)], flags=0x40))
    except OSError:
        return
    assert closed(s, 20), "a login of megabytes was taken"


def case_text_without_data():
    s = iscsi_login()
    s.sendall(iscsi_pdu(0x04, 0x40, itt=2, specific=struct.pack(">III", 0xFFFFFFFF, 1, 1)))
    bhs, _ = iscsi_read(s)
    assert bhs[0] in (0x24, 0x3F), bhs.hex()
    s.close()


def case_unknown_opcode_is_rejected():
    s = iscsi_login()
    s.sendall(iscsi_pdu(0x1C, 0x80, itt=2, specific=struct.pack(">III", 0xFFFFFFFF, 1, 1)))
    bhs, _ = iscsi_read(s)
    assert bhs[0] == 0x3F, bhs.hex()
    s.close()


def scsi_write(lba, blocks, edtl, itt, cmdsn, data=b"", final=True):
    cdb = struct.pack(">BBIBHB", 0x2A, 0, lba, 0, blocks, 0) + b"\0" * 6
    return iscsi_pdu(0x01, (0x80 if final else 0) | 0x20 | 1, data, itt=itt,
                     specific=struct.pack(">III", edtl, cmdsn, 1) + cdb)


def scsi_rw(opcode, flags, lba, blocks, itt, cmdsn):
    cdb = struct.pack(">BBIBHB", opcode, 0, lba, 0, blocks, 0) + b"\0" * 6
    return iscsi_pdu(0x01, flags, itt=itt, specific=struct.pack(">III", blocks * 512, cmdsn, 1) + cdb)


def drain_attention(s, cmdsn=1):
    """TEST UNIT READY until the power-on attention is gone; returns the next CmdSN."""
    for _ in range(5):
        s.sendall(iscsi_pdu(0x01, 0x81, itt=cmdsn, specific=struct.pack(">III", 0, cmdsn, 1) + b"\0" * 16))
        bhs, _ = iscsi_read(s)
        cmdsn += 1
        if bhs[3] == 0:
            return cmdsn
    raise AssertionError("unit attention does not end")


def case_data_out_beyond_the_command():
    s = iscsi_login(["InitialR2T=Yes", "ImmediateData=No"])
    cmdsn = drain_attention(s)
    s.sendall(scsi_write(0, 16, 8192, 50, cmdsn))
    bhs, _ = iscsi_read(s)
    assert bhs[0] == 0x31, bhs.hex()
    ttt = bhs[20:24]
    s.sendall(iscsi_pdu(0x05, 0x80, b"e" * 4096, itt=50, specific=ttt + b"\0" * 12 + struct.pack(">I", 0) + struct.pack(">I", 1 << 20)))
    try:
        bhs, _ = iscsi_read(s)
        assert bhs[0] in (0x3F, 0x21), bhs.hex()
        assert not (bhs[0] == 0x21 and bhs[3] == 0), "data beyond the command was taken"
    except (EOFError, ConnectionResetError):
        pass
    s.close()


def case_reset_with_commands_in_flight():
    for _ in range(30):
        s = iscsi_login()
        cmdsn = drain_attention(s)
        for n in range(16):
            cdb = struct.pack(">BBIBHB", 0x28, 0, n * 128, 0, 128, 0) + b"\0" * 6
            s.sendall(iscsi_pdu(0x01, 0xC1, itt=100 + n, specific=struct.pack(">III", 65536, cmdsn + n, 1) + cdb))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()


def case_write_stalls_waiting_for_data():
    stalled = []
    for n in range(10):
        s = iscsi_login(["InitialR2T=Yes", "ImmediateData=No"])
        s.sendall(scsi_write(0, 2048, 1 << 20, 60, drain_attention(s)))
        stalled.append(s)
    start = time.time()
    fresh_clients()
    assert time.time() - start < 5
    for s in stalled:
        s.close()


def large_reads():
    """A fresh client of each kind reads 4 MiB: more than the pool keeps back for small requests."""
    s = nbd_go()
    s.sendall(request(0, 1, 0, 4 << 20))
    assert simple(s) == (0, 1)
    exactly(s, 4 << 20)
    s.close()
    s = iscsi_login()
    cmdsn = drain_attention(s)
    s.sendall(scsi_rw(0x28, 0xC1, 0, 8192, 70, cmdsn))
    got = 0
    while got < 4 << 20:
        bhs, data = iscsi_read(s)
        assert bhs[0] == 0x25, bhs.hex()
        got += len(data)
    s.close()


def hold_the_pool(flags, opcode, gap):
    holders = []
    for _ in range(10):
        s = iscsi_login(["InitialR2T=Yes", "ImmediateData=No"])
        cmdsn = drain_attention(s) + gap
        s.sendall(b"".join(scsi_rw(opcode, flags, 0, 16384, 100 + n, cmdsn + n) for n in range(32)))
        holders.append(s)
    start = time.time()
    large_reads()
    assert time.time() - start < 15, "others waited %.1f s" % (time.time() - start)
    for s in holders:
        s.close()


def case_many_writes_without_data():
    hold_the_pool(0xA1, 0x2A, 0)


def case_many_reads_behind_a_gap():
    hold_the_pool(0xC1, 0x28, 1)


# --- what the attacks wrote is put back, for the comparison at the end ---

original = None


def restore():
    s = nbd_go()
    for off in range(0, 4 << 20, 1 << 20):
        s.sendall(request(1, 5, off, 1 << 20) + original[off:off + (1 << 20)])
        assert simple(s) == (0, 5)
    s.sendall(request(2, 6, 0, 0))
    closed(s, 5)


def save():
    global original
    s = nbd_go()
    data = b""
    for off in range(0, 4 << 20, 1 << 20):
        s.sendall(request(0, 5, off, 1 << 20))
        assert simple(s) == (0, 5)
        data += exactly(s, 1 << 20)
    original = data
    s.close()


save()
cases = [(name, function) for name, function in list(globals().items()) if name.startswith("case_")]
for name, function in cases:
    try:
        function()
        fresh_clients()
    except Exception as error:
        print("%s: %s: %s" % (name, type(error).__name__, error))
        raise
restore()
print("%d hostile cases" % len(cases))
