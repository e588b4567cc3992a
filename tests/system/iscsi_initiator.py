"""An iSCSI initiator that can also send what no sane one would; what the tests iscsi_*.py are made of.

    from iscsi_initiator import *
    @case("RFC 7143, 11.18")
    def pings_come_back(rig): ...
    main()                 # theme.py ADDRESS TARGET PID [digests]

A case is a function of the rig, which opens connections and closes them after it. Behind every case a fresh, well-behaved
client must be served, and the daemon must be alive. Whatever a connection receives is checked against what holds always:
digests and padding, StatSN (counted for those PDUs that take one, 4.2.2.2), MaxCmdSN (never back, never below
ExpCmdSN - 1), no data segment longer than was declared, and Reject only if it was expected.
"""
import os, random, socket, struct, sys, time

NOP_OUT, COMMAND, TASK, LOGIN, TEXT, DATA_OUT, LOGOUT, SNACK = 0, 1, 2, 3, 4, 5, 6, 0x10
NOP_IN, RESPONSE, TASK_RESPONSE, LOGIN_RESPONSE, TEXT_RESPONSE, DATA_IN, LOGOUT_RESPONSE = range(0x20, 0x27)
R2T, ASYNC, REJECT = 0x31, 0x32, 0x3F
F, T, C, R, W, SIMPLE = 0x80, 0x80, 0x40, 0x40, 0x20, 0x01
S, UNDERFLOW, OVERFLOW = 1, 2, 4
I = 0x40  # immediate, in the first byte
NO_TAG = 0xFFFFFFFF
GOOD, CHECK, BUSY, CONFLICT, TASK_SET_FULL, TASK_ABORTED = 0, 2, 8, 0x18, 0x28, 0x40
ABORT_TASK, ABORT_TASK_SET, CLEAR_ACA, CLEAR_TASK_SET, LUN_RESET, WARM_RESET, COLD_RESET, TASK_REASSIGN = range(1, 9)
SECURITY, OPERATIONAL = 0, 4  # CSG in its place; NSG is added
TO_OPERATIONAL, TO_FULL = T | 1, T | 3
BLOCK = 512

CRC = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC[(crc ^ byte) & 0xFF]
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


assert crc32c(b"123456789") == struct.pack("<I", 0xE3069283)  # RFC 7143, appendix A.4 uses this polynomial

# Fields by name: offset, bytes. One place has several names, by the kind of PDU.
FIELDS = {"flags": (1, 1), "response": (2, 1), "reason": (2, 1), "status": (3, 1), "version_max": (2, 1), "version_min": (3, 1),
          "lun": (8, 8), "tsih": (14, 2), "itt": (16, 4), "ttt": (20, 4), "edtl": (20, 4), "ref_itt": (20, 4), "cid": (20, 2),
          "cmdsn": (24, 4), "statsn": (24, 4), "expstatsn": (28, 4), "expcmdsn": (28, 4), "maxcmdsn": (32, 4), "ref_cmdsn": (32, 4),
          "datasn": (36, 4), "r2tsn": (36, 4), "login_status": (36, 2), "event": (36, 1), "offset": (40, 4), "residual": (44, 4),
          "desired": (44, 4), "parameter3": (42, 2)}


class Pdu:
    def __init__(self, bhs, data=b"", ahs=b""):
        self.bhs, self.data, self.ahs = bytearray(bhs), data, ahs

    @property
    def opcode(self):
        return self.bhs[0] & 0x3F

    def __getattr__(self, name):
        at, size = FIELDS[name]
        return int.from_bytes(self.bhs[at:at + size], "big")

    def set(self, **fields):
        for name, value in fields.items():
            at, size = FIELDS[name]
            self.bhs[at:at + size] = value.to_bytes(size, "big")
        return self

    @property
    def pairs(self):
        """Of a text or login answer."""
        return [tuple(p.decode("latin-1").split("=", 1)) for p in self.data.split(b"\0") if p]

    @property
    def keys(self):
        assert len(dict(self.pairs)) == len(self.pairs), "a key is answered twice: %s" % self.pairs
        return dict(self.pairs)

    def __repr__(self):
        return "PDU %s, %d bytes of data: %s" % (self.bhs.hex(" ", 4), len(self.data), bytes(self.data[:32]).hex())


def pdu(opcode, flags=F, data=b"", ahs=b"", **fields):
    p = Pdu(bytes([opcode, flags]) + bytes(46), data, ahs)
    return p.set(**fields)


class Answer:
    """Of a command: Data-In put together, status, sense, residual, and all its PDUs."""
    def __init__(self, pdus):
        last = pdus[-1]
        self.pdus, self.status = pdus, last.status
        self.data = b"".join(p.data for p in pdus if p.opcode == DATA_IN)
        self.residual = (last.flags & (UNDERFLOW | OVERFLOW), last.residual)
        self.sense = self.asc = None
        if last.opcode == RESPONSE and last.data:
            size = struct.unpack(">H", last.data[:2])[0]
            assert size == len(last.data) - 2, "SenseLength %d of %d" % (size, len(last.data) - 2)
            self.sense = last.data[2:]
            fixed = self.sense[0] & 0x7E == 0x70
            self.asc = "%X/%02X/%02X" % ((self.sense[2] & 15, self.sense[12], self.sense[13]) if fixed else tuple(self.sense[1:4]))
        assert (last.status == CHECK) == (self.asc is not None), "sense comes with CHECK CONDITION, always"

    def is_good(self, residual=(0, 0)):
        assert self.status == GOOD and self.residual == residual, self
        return self

    def failed(self, asc, residual=None):
        assert self.asc == asc and (residual is None or self.residual == residual), self
        return self

    def __repr__(self):
        return "status %02X, sense %s, residual %s, %d bytes" % (self.status, self.asc, self.residual, len(self.data))


def cdb(*head):
    return bytes(head) + bytes(16 - len(head))


def rw10(opcode, lba, blocks):
    return cdb(*struct.pack(">BBIBHB", opcode, 0, lba, 0, blocks, 0))


def read10(lba, blocks):
    return rw10(0x28, lba, blocks)


def write10(lba, blocks):
    return rw10(0x2A, lba, blocks)


def inquiry(length, page=None):
    return cdb(0x12, page is not None, page or 0, length >> 8, length & 255)


READY = cdb(0)


class Connection:
    def __init__(self, rig, name=None, isid=None, address=None):
        host, port = (address or rig.address).rsplit(":", 1)
        self.rig = rig
        self.name = name or "iqn.2026-01.org.example:c%d" % random.randrange(1 << 40)
        self.isid = isid or b"\x80" + os.urandom(5)
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.header_digest = self.data_digest = False
        self.cmdsn = 1
        self.itt = 0
        self.statsn = self.maxcmdsn = None  # the next one; the highest so far
        self.segment = 8192  # what it has declared to take
        self.window = None
        self.agreed = {}
        self.unasked, self.answers_pings = [], True
        self.tsih = 0

    # --- bytes ---

    def exactly(self, n):
        data = b""
        while len(data) < n:
            part = self.socket.recv(min(n - len(data), 1 << 20))
            if not part:
                raise EOFError("closed by the target after %d of %d bytes" % (len(data), n))
            data += part
        return data

    def encode(self, p, spoil=None, length=None):
        """`spoil`: "header" or "data": its digest is wrong. `length`: what DataSegmentLength says."""
        bhs = bytearray(p.bhs)
        bhs[4] = len(p.ahs) // 4
        bhs[5:8] = (len(p.data) if length is None else length).to_bytes(3, "big")
        out = bytes(bhs) + p.ahs
        if self.header_digest:
            out += crc32c(out) if spoil != "header" else b"\x12\x34\x56\x78"
        data = bytes(p.data) + bytes(-len(p.data) % 4)
        if self.data_digest and p.data:
            data += crc32c(data) if spoil != "data" else b"\x12\x34\x56\x78"
        return out + data

    def send(self, *pdus, **how):
        self.socket.sendall(b"".join(self.encode(p, **how) for p in pdus))

    def receive(self, *opcodes, timeout=10):
        """The next PDU, which must be one of `opcodes`. What the target says of its own accord goes to `unasked`, and is
        answered if it wants that."""
        while True:
            p = self.receive_any(timeout)
            if p.opcode != NOP_IN or p.itt != NO_TAG:
                break
            self.unasked.append(p)
            assert not p.data and p.flags == F, p
            if p.ttt != NO_TAG and self.answers_pings:
                self.send(pdu(I | NOP_OUT, F, itt=NO_TAG, ttt=p.ttt, lun=p.lun, cmdsn=self.cmdsn & 0xFFFFFFFF, expstatsn=self.statsn))
        assert not opcodes or p.opcode in opcodes, "%r instead of %s" % (p, [hex(o) for o in opcodes])
        return p

    def receive_any(self, timeout):
        self.socket.settimeout(timeout)
        bhs = self.exactly(48)
        assert bhs[4] == 0, "a target sends no AHS"
        if self.header_digest:
            assert self.exactly(4) == crc32c(bhs), "wrong header digest"
        size = int.from_bytes(bhs[5:8], "big")
        assert size <= self.segment, "%d bytes of data, %d is what was declared" % (size, self.segment)
        padded = self.exactly(size + -size % 4)
        assert not any(padded[size:]), "padding that is not zero"
        if self.data_digest and size:
            assert self.exactly(4) == crc32c(padded), "wrong data digest"
        p = Pdu(bhs, padded[:size])
        self.check_numbers(p)
        return p

    def check_numbers(self, p):
        shows = p.opcode == R2T or (p.opcode == NOP_IN and p.itt == NO_TAG)
        takes = not shows and (p.opcode != DATA_IN or p.flags & S)
        if takes or shows:
            assert self.statsn in (None, p.statsn), "StatSN %d, %d is next: %r" % (p.statsn, self.statsn, p)
            self.statsn = (p.statsn + takes) & 0xFFFFFFFF
        if p.opcode == LOGIN_RESPONSE and p.login_status:
            return
        room = (p.maxcmdsn - p.expcmdsn + 1) & 0xFFFFFFFF
        assert room < 1 << 31, "MaxCmdSN %d, ExpCmdSN %d" % (p.maxcmdsn, p.expcmdsn)
        if self.maxcmdsn is not None:
            assert (p.maxcmdsn - self.maxcmdsn) & 0xFFFFFFFF < 1 << 31, "MaxCmdSN went back"
        self.maxcmdsn, self.expcmdsn = p.maxcmdsn, p.expcmdsn
        if p.opcode == LOGIN_RESPONSE and p.flags & T and p.flags & 3 == 3:
            self.window = room

    def closed(self, seconds=10):
        """The target closes, whatever it sends before."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(65536):
                pass
            return True
        except (ConnectionResetError, BrokenPipeError):
            return True
        except socket.timeout:
            return False

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # --- login ---

    def login_send(self, keys, flags=OPERATIONAL | TO_FULL, **fields):
        data = keys if isinstance(keys, bytes) else b"".join(k.encode("latin-1") + b"\0" for k in keys)
        p = pdu(I | LOGIN, flags, data, **{"itt": 7, "cmdsn": self.cmdsn, "tsih": 0, **fields})
        p.bhs[8:14] = self.isid
        self.send(p)

    def login(self, keys=None, *more, flags=OPERATIONAL | TO_FULL, names=True, **fields):
        """One login request and its answer; keys: those behind the names."""
        first = ["InitiatorName=" + self.name, "TargetName=" + self.rig.target] if names else []
        self.login_send(first + list(keys or []), flags, **fields)
        return self.login_answer()

    def login_answer(self):
        p = self.receive(LOGIN_RESPONSE)
        self.agreed.update(p.pairs)
        if p.login_status == 0 and p.flags & T and p.flags & 3 == 3:
            self.tsih = p.tsih
            self.header_digest = self.agreed.get("HeaderDigest") == "CRC32C"
            self.data_digest = self.agreed.get("DataDigest") == "CRC32C"
        return p

    def open(self, *keys, ready=True):
        """A whole normal session. MaxRecvDataSegmentLength as in `keys`."""
        for key in keys:
            if key.startswith("MaxRecvDataSegmentLength="):
                self.segment = int(key.split("=")[1])
        self.declared = self.segment
        p = self.login(list(keys) + self.rig.digest_keys(keys))
        assert p.login_status == 0, "login refused: %04x" % p.login_status
        if ready:
            self.make_ready()
        return self

    def make_ready(self, lun=0):
        """TEST UNIT READY until there are no unit attentions; what they were."""
        seen = []
        while len(seen) < 5:
            answer = self.do(READY, lun=lun)
            if answer.status == GOOD:
                return seen
            seen.append(answer.asc)
        raise AssertionError("unit attentions do not end: %s" % seen)

    # --- full feature phase ---

    def request(self, opcode, flags=F, data=b"", immediate=False, lun=0, **fields):
        """A request with the next ITT and CmdSN."""
        self.itt += 1
        p = pdu(opcode | (I if immediate else 0), flags, data, **{"itt": self.itt, "cmdsn": self.cmdsn & 0xFFFFFFFF, "lun": lun << 48,
                                                                 "expstatsn": self.statsn or 0, **fields})
        if not immediate and "cmdsn" not in fields:
            self.cmdsn += 1
        return p

    def command(self, bytes16, flags=F, edtl=0, data=b"", **fields):
        p = self.request(COMMAND, flags | SIMPLE, data, edtl=edtl, **fields)
        p.bhs[32:48] = bytes16
        return p

    def data_out(self, command, ttt, datasn, offset, data, final=True):
        return pdu(DATA_OUT, F if final else 0, data, itt=command.itt, ttt=ttt, lun=command.lun, datasn=datasn, offset=offset,
                   expstatsn=self.statsn or 0)

    def answer(self, command):
        """Receive what answers `command`; R2Ts are a mistake."""
        pdus = []
        while True:
            p = self.receive(RESPONSE, DATA_IN)
            assert p.itt == command.itt, "%r answers another command than %d" % (p, command.itt)
            pdus.append(p)
            if p.opcode == RESPONSE or p.flags & S:
                return Answer(pdus)

    def do(self, bytes16, read=0, write=None, lun=0, edtl=None, immediate=False):
        """A command from its PDU to its answer; data goes out as it is asked for by R2Ts."""
        flags = F | (R if read else 0) | (W if write is not None else 0)
        command = self.command(bytes16, flags, (len(write) if write is not None else read) if edtl is None else edtl, lun=lun,
                               immediate=immediate)
        self.send(command)
        return self.finish(command, write)

    def finish(self, command, write=b""):
        pdus = []
        while True:
            p = self.receive(RESPONSE, DATA_IN, R2T)
            assert p.itt == command.itt, p
            if p.opcode == R2T:
                self.send(self.data_out(command, p.ttt, 0, p.offset, write[p.offset:p.offset + p.desired]))
                continue
            pdus.append(p)
            if p.opcode == RESPONSE or p.flags & S:
                return Answer(pdus)

    def write_waiting(self, lba=0, blocks=8, **fields):
        """A write and the first R2T for it."""
        command = self.command(write10(lba, blocks), F | W, blocks * BLOCK, **fields)
        self.send(command)
        r2t = self.receive(R2T)
        assert r2t.itt == command.itt
        return command, r2t

    def task(self, function, ref=None, lun=0, immediate=True, ref_itt=None, ref_cmdsn=None):
        """Task management; its response."""
        fields = {"ref_itt": NO_TAG if ref is None and ref_itt is None else ref_itt if ref_itt is not None else ref.itt,
                  "ref_cmdsn": ref_cmdsn if ref_cmdsn is not None else ref.cmdsn if ref is not None else 0}
        p = self.request(TASK, F | function, lun=lun, immediate=immediate, **fields)
        self.send(p)
        answer = self.receive(TASK_RESPONSE)
        assert answer.itt == p.itt
        return answer.response

    def text(self, *keys, flags=F, ttt=NO_TAG, data=None, **fields):
        self.send(self.request(TEXT, flags, data if data is not None else b"".join(k.encode() + b"\0" for k in keys), ttt=ttt,
                               immediate=True, **fields))
        return self.receive(TEXT_RESPONSE, REJECT)

    def logout(self, reason=0, cid=0):
        self.send(self.request(LOGOUT, F | reason, immediate=True, ref_itt=cid << 16))
        return self.receive(LOGOUT_RESPONSE).response

    def fence(self):
        """Nothing came but what was asked for: the next PDU answers a ping."""
        p = self.request(NOP_OUT, F, b"fence", immediate=True, ttt=NO_TAG)
        self.send(p)
        answer = self.receive(NOP_IN)
        assert answer.itt == p.itt and answer.data == b"fence", answer

    def fence_or_reject(self):
        """As fence(), but a Reject may come before: then true."""
        p = self.request(NOP_OUT, F, b"fence", immediate=True, ttt=NO_TAG)
        self.send(p)
        answer, rejects = self.receive(NOP_IN, REJECT), 0
        while answer.opcode == REJECT:
            answer, rejects = self.receive(NOP_IN, REJECT), rejects + 1
        assert answer.itt == p.itt
        return rejects

    def rejected(self, reason, *reasons):
        p = self.receive(REJECT)
        assert p.reason in (reason, *reasons) and p.itt == NO_TAG and len(p.data) >= 48, p
        return p


class Rig:
    def __init__(self, address, target, pid, digests):
        self.address, self.target, self.pid, self.digests = address, target, pid, digests
        self.connections = []
        self.second = os.environ.get("SECOND_PORTAL")
        self.gone = False  # the daemon was told to stop

    def digest_keys(self, keys):
        given = {k.split("=")[0] for k in keys}
        return [k + "=CRC32C" for k in ("HeaderDigest", "DataDigest") if self.digests and k not in given]

    def connect(self, **how):
        connection = Connection(self, **how)
        self.connections.append(connection)
        return connection

    def session(self, *keys, ready=True, **how):
        return self.connect(**how).open(*keys, ready=ready)

    def discovery(self, *keys, **how):
        s = self.connect(**how)
        for key in keys:
            if key.startswith("MaxRecvDataSegmentLength="):
                s.segment = int(key.split("=")[1])
        s.login_send(["InitiatorName=" + s.name, "SessionType=Discovery", *keys])
        assert s.login_answer().login_status == 0
        return s

    def read(self, lba, blocks):
        """As another initiator sees it."""
        s = self.session()
        data = s.do(read10(lba, blocks), read=blocks * BLOCK).is_good().data
        s.socket.close()
        return data

    def write(self, lba, data):
        s = self.session()
        s.do(write10(lba, len(data) // BLOCK), write=data).is_good()
        s.socket.close()

    def clean(self):
        for connection in self.connections:
            connection.socket.close()
        self.connections = []

    def fresh_client(self):
        if self.gone:
            return
        start = time.monotonic()
        s = self.session()
        assert len(s.do(read10(0, 8), read=4096).is_good().data) == 4096
        assert s.logout() == 0 and s.closed()
        assert time.monotonic() - start < 5, "a fresh client waited %.1f s" % (time.monotonic() - start)
        self.clean()

    def resident(self):
        with open("/proc/%d/statm" % self.pid) as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


CASES = []


def case(about):
    def add(function):
        CASES.append((about, function))
        return function
    return add


def main():
    address, target, pid = sys.argv[1], sys.argv[2], int(sys.argv[3])
    rig = Rig(address, target, pid, "digests" in sys.argv[4:])
    failed = 0
    for about, function in CASES:
        start = time.monotonic()
        try:
            function(rig)
            rig.clean()
            rig.fresh_client()
            print("ok      %s (%s, %.1f s)" % (function.__name__, about, time.monotonic() - start), flush=True)
        except Exception as error:
            failed += 1
            line = error.__traceback__
            while line.tb_next and line.tb_next.tb_frame.f_code.co_filename != __file__:
                line = line.tb_next
            print("FAILED  %s (%s), line %d: %s: %s" % (function.__name__, about, line.tb_lineno, type(error).__name__, error), flush=True)
            rig.clean()
            os.kill(pid, 0)
    print("%d cases of %s%s, %d failed" % (len(CASES), os.path.basename(sys.argv[0])[6:-3], " with digests" if rig.digests else "", failed))
    sys.exit(failed != 0)
