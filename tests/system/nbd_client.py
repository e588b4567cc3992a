"""An NBD client that can also send what no sane one would; what the tests nbd_*.py are made of.

    from nbd_client import *
    @case("READ: out of range is EINVAL")
    def read_out_of_range(rig): ...
    main()                 # nbd_THEME.py ADDRESS PID [simple|structured|extended] [tls]

ADDRESS is HOST:PORT or the path of a Unix socket; with tls, NBD_CA names the file of the authority. A case is a function
of the rig, which opens connections and closes them after it. Behind every case a fresh, well-behaved client must be
served; behind the last one descriptors, threads and memory must be what they were before the first. Whatever a
connection receives in transmission is checked against what holds always (receive_reply): magic and shape of the mode,
cookies that wait for an answer, chunks that fit the request, cover it and do not overlap, errors that the document knows.
"""
import os, random, socket, ssl, struct, sys, time

INIT, OPTION, OPTION_REPLY = 0x4E42444D41474943, 0x49484156454F5054, 0x3E889045565A9
FIXED, NO_ZEROES = 1, 2  # of the handshake
EXPORT_NAME, ABORT, LIST, STARTTLS, INFO, GO, STRUCTURED_REPLY, LIST_META, SET_META, EXTENDED_HEADERS = 1, 2, 3, 5, 6, 7, 8, 9, 10, 11
ACK, SERVER, REP_INFO, META_CONTEXT = 1, 2, 3, 4
(ERR_UNSUP, ERR_POLICY, ERR_INVALID, ERR_PLATFORM, ERR_TLS_REQD, ERR_UNKNOWN, ERR_SHUTDOWN, ERR_BLOCK_SIZE_REQD, ERR_TOO_BIG,
 ERR_EXT_HEADER_REQD) = (1 << 31 | n for n in range(1, 11))
INFO_EXPORT, INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE = range(4)
(HAS_FLAGS, READ_ONLY, SEND_FLUSH, SEND_FUA, ROTATIONAL, SEND_TRIM, SEND_WRITE_ZEROES, SEND_DF, CAN_MULTI_CONN, SEND_RESIZE, SEND_CACHE,
 SEND_FAST_ZERO, BLOCK_STATUS_PAYLOAD) = (1 << n for n in range(13))
READ, WRITE, DISC, FLUSH, TRIM, CACHE, ZEROES, STATUS, RESIZE = range(9)
FUA, NO_HOLE, DF, REQ_ONE, FAST_ZERO, PAYLOAD_LEN = (1 << n for n in range(6))
COMPACT, EXTENDED_REQUEST, SIMPLE_REPLY, CHUNK, EXTENDED_CHUNK = 0x25609513, 0x21E41C71, 0x67446698, 0x668E33EF, 0x6E8A278C
DONE = 1
NONE, OFFSET_DATA, OFFSET_HOLE, BLOCK_STATUS, BLOCK_STATUS_EXT, ERROR, ERROR_OFFSET = 0, 1, 2, 5, 6, 0x8001, 0x8002
EPERM, EIO, ENOMEM, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP, ESHUTDOWN = 1, 5, 12, 22, 28, 75, 95, 108
ERRORS = (EPERM, EIO, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP, ESHUTDOWN)  # ENOMEM "SHOULD NOT" be used, and is not
HOLE, ZERO = 1, 2  # of base:allocation
ALLOCATION = "base:allocation"
SIMPLE, STRUCTURED, EXTENDED = "simple", "structured", "extended"
MIB = 1 << 20
PAYLOAD_MAX = 32 * MIB


def pattern(n, seed=1):
    return random.Random(seed).randbytes(n)


class Reply:
    """To an option."""
    def __init__(self, option, type, data):
        self.option, self.type, self.data = option, type, data

    @property
    def is_error(self):
        return self.type >> 31 == 1

    @property
    def is_last(self):
        return self.type == ACK or self.is_error

    def __repr__(self):
        return "reply %#x to option %d, data %r" % (self.type, self.option, self.data[:80])


class Request:
    """`contexts`: ids that a filter asks for; None: all that were selected. `effect`: bytes it is about, if that is not `length`."""
    def __init__(self, type, offset, length, flags, contexts=None, effect=None):
        self.type, self.offset, self.length, self.flags, self.contexts = type, offset, length, flags, contexts
        self.effect = length if effect is None else effect
        self.answer = Answer(self)


class Answer:
    """To a request: its error (0: none), data put together, chunks as (type, offset, length), extents by context."""
    def __init__(self, request):
        self.request, self.error, self.text, self.bad_offset = request, 0, None, None
        self.parts, self.extents, self.chunks, self.is_simple = [], {}, [], False

    @property
    def data(self):
        return b"".join(data if data is not None else bytes(length) for _, length, data in sorted(self.parts, key=lambda p: p[0]))

    def ok(self):
        assert self.error == 0, "%r, 0 was expected" % self
        return self

    def failed(self, *errors):
        assert self.error in errors, "%r, %s was expected" % (self, errors)
        return self

    def __repr__(self):
        return "error %d%s to request %d at %d, %d bytes, flags %d" % (self.error, " (%s)" % self.text if self.text else "", self.request.type,
                                                                      self.request.offset, self.request.length, self.request.flags)


class Connection:
    def __init__(self, rig, address=None):
        self.rig, self.mode, self.contexts, self.flags, self.size = rig, SIMPLE, {}, 0, None
        self.waiting, self.answers, self.infos = {}, {}, {}
        self.cookie = random.getrandbits(63)
        address = address or rig.address
        if address.startswith("/"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(10)
            self.socket.connect(address)
        else:
            host, port = address.rsplit(":", 1)
            self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=10)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # --- bytes ---

    def exactly(self, n, timeout=20):
        self.socket.settimeout(timeout)
        data = bytearray()
        while len(data) < n:
            part = self.socket.recv(min(n - len(data), MIB))
            if not part:
                raise EOFError("closed by the server after %d of %d bytes" % (len(data), n))
            data += part
        return bytes(data)

    def send(self, *parts):
        self.socket.settimeout(20)
        self.socket.sendall(b"".join(parts))

    def closed(self, seconds=10):
        """The server closes, whatever it sends before."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(65536):
                pass
            return True
        except (ConnectionError, ssl.SSLEOFError, ssl.SSLError) as error:
            return not isinstance(error, ssl.SSLWantReadError)
        except socket.timeout:
            return False

    def refused(self, *parts):
        """It closes upon this, and says nothing before."""
        try:
            self.send(*parts)
            self.socket.settimeout(10)
            return self.socket.recv(1) == b""
        except (ConnectionError, ssl.SSLError):
            return True

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def silent(self, seconds=0.1):
        """Nothing more has come."""
        self.socket.settimeout(seconds)
        try:
            got = self.socket.recv(1)
            raise AssertionError("more than was asked for: %s" % (got.hex() or "closed"))
        except (socket.timeout, ssl.SSLWantReadError):
            pass

    # --- handshake ---

    def greet(self, flags=FIXED | NO_ZEROES):
        init, option, server_flags = struct.unpack(">QQH", self.exactly(18))
        assert (init, option) == (INIT, OPTION) and server_flags == FIXED | NO_ZEROES, (hex(init), hex(option), server_flags)
        self.zeroes = not flags & NO_ZEROES
        self.send(struct.pack(">I", flags))
        return self

    @staticmethod
    def option(number, data=b"", length=None):
        return struct.pack(">QII", OPTION, number, len(data) if length is None else length) + data

    def reply(self, number):
        magic, option, type, length = struct.unpack(">QIII", self.exactly(20))
        assert magic == OPTION_REPLY and option == number, (hex(magic), option, number)
        assert length < 1 << 20, length
        reply = Reply(option, type, self.exactly(length))
        assert reply.is_error or type in (ACK, SERVER, REP_INFO, META_CONTEXT), reply
        assert type != ACK or not reply.data, reply
        if reply.is_error:  # a text for people
            assert ERR_UNSUP <= type <= ERR_EXT_HEADER_REQD and len(reply.data) <= 4096 and b"\0" not in reply.data, reply
            reply.data.decode("utf-8")
        return reply

    def replies(self, number):
        """All to one option."""
        replies = [self.reply(number)]
        while not replies[-1].is_last:
            replies.append(self.reply(number))
        return replies

    def ask(self, number, data=b"", length=None):
        self.send(self.option(number, data, length))
        return self.replies(number)

    def accepted(self, number, data=b""):
        replies = self.ask(number, data)
        assert replies[-1].type == ACK, replies[-1]
        return replies[:-1]

    def refusal(self, number, data, *types):
        """One error, of these types."""
        replies = self.ask(number, data)
        assert len(replies) == 1 and replies[0].type in types, (replies, [hex(t) for t in types])
        return replies[0]

    def start_tls(self, **how):
        self.accepted(STARTTLS)
        self.wrap(**how)
        return self

    def wrap(self, context=None, name="localhost"):
        context = context or self.rig.tls_context()
        self.socket.settimeout(10)
        self.socket = context.wrap_socket(self.socket, server_hostname=name, suppress_ragged_eofs=False)

    @staticmethod
    def info_data(name, *infos):
        name = name.encode() if isinstance(name, str) else name
        return struct.pack(">I", len(name)) + name + struct.pack(">H%dH" % len(infos), len(infos), *infos)

    @staticmethod
    def meta_data(name, *queries):
        name = name.encode() if isinstance(name, str) else name
        queries = [query.encode() if isinstance(query, str) else query for query in queries]
        return struct.pack(">I", len(name)) + name + struct.pack(">I", len(queries)) + b"".join(struct.pack(">I", len(q)) + q for q in queries)

    def take_infos(self, replies):
        """Of INFO or GO, by type."""
        infos = {}
        for reply in replies:
            assert reply.type == REP_INFO and len(reply.data) >= 2, reply
            type = struct.unpack(">H", reply.data[:2])[0]
            assert type not in infos, "info %d twice" % type
            infos[type] = reply.data[2:]
        assert INFO_EXPORT in infos, "no INFO_EXPORT"
        size, flags = struct.unpack(">QH", infos[INFO_EXPORT])
        infos[INFO_EXPORT] = (size, flags)
        if INFO_BLOCK_SIZE in infos:
            infos[INFO_BLOCK_SIZE] = struct.unpack(">III", infos[INFO_BLOCK_SIZE])
        return infos

    def info(self, name=None, *infos):
        return self.take_infos(self.accepted(INFO, self.info_data(self.rig.export if name is None else name, *infos)))

    def negotiate(self, mode):
        if mode == STRUCTURED:
            self.accepted(STRUCTURED_REPLY)
        elif mode == EXTENDED:
            self.accepted(EXTENDED_HEADERS)
        self.mode = mode

    def set_meta(self, name, *queries):
        """The contexts selected, id by name."""
        self.contexts = {}
        for reply in self.accepted(SET_META, self.meta_data(name, *queries)):
            assert reply.type == META_CONTEXT and len(reply.data) >= 5, reply
            id, context = struct.unpack(">I", reply.data[:4])[0], reply.data[4:].decode("utf-8")
            assert id not in self.contexts.values() and context not in self.contexts, reply
            self.contexts[context] = id
        return self.contexts

    def list_meta(self, name, *queries):
        replies = self.accepted(LIST_META, self.meta_data(name, *queries))
        assert all(reply.type == META_CONTEXT and len(reply.data) >= 5 for reply in replies), replies
        return [reply.data[4:].decode("utf-8") for reply in replies]

    def go(self, name=None, *infos):
        self.infos = self.take_infos(self.accepted(GO, self.info_data(self.rig.export if name is None else name, *infos)))
        self.size, self.flags = self.infos[INFO_EXPORT]
        return self

    def export_name(self, name):
        """The old way in."""
        name = name.encode() if isinstance(name, str) else name
        self.send(self.option(EXPORT_NAME, name))
        self.size, self.flags = struct.unpack(">QH", self.exactly(10))
        if self.zeroes:
            assert not any(self.exactly(124))
        return self

    # --- requests ---

    def header(self, type, offset=0, length=0, flags=0, cookie=0):
        if self.mode == EXTENDED:
            return struct.pack(">IHHQQQ", EXTENDED_REQUEST, flags, type, cookie, offset, length)
        return struct.pack(">IHHQQI", COMPACT, flags, type, cookie, offset, length)

    def submit(self, type, offset=0, length=None, flags=0, data=b"", cookie=None, contexts=None, effect=None):
        """Note a request and give its bytes: (cookie, bytes). With extended headers data is announced by PAYLOAD_LEN."""
        length = len(data) if length is None else length
        if self.mode == EXTENDED and data:
            flags |= PAYLOAD_LEN
        if cookie is None:
            self.cookie += 1
            cookie = self.cookie
        request = Request(type, offset, length, flags, contexts, effect)
        if type != DISC:
            self.waiting[cookie] = request
        return cookie, self.header(type, offset, length, flags, cookie) + data

    def issue(self, *args, **how):
        cookie, out = self.submit(*args, **how)
        self.send(out)
        return cookie

    def answer(self, cookie):
        while cookie not in self.answers:
            self.receive_reply()
        return self.answers.pop(cookie)

    def do(self, *args, **how):
        return self.answer(self.issue(*args, **how))

    def read(self, offset, length, flags=0):
        return self.do(READ, offset, length, flags).ok().data

    def write(self, offset, data, flags=0):
        self.do(WRITE, offset, data=data, flags=flags).ok()

    def disconnect(self):
        self.send(self.header(DISC))

    def in_step(self):
        """Nothing came but what was asked for, and the next request is understood."""
        assert not self.waiting and not self.answers
        self.do(READ, 0, 512).ok()

    # --- replies: what holds always ---

    def receive_reply(self):
        magic = struct.unpack(">I", self.exactly(4))[0]
        if magic == SIMPLE_REPLY:
            self.receive_simple()
        elif magic == CHUNK:
            assert self.mode == STRUCTURED, "a structured chunk in %s mode" % self.mode
            flags, type, cookie, length = struct.unpack(">HHQI", self.exactly(16))
            self.receive_chunk(flags, type, cookie, length)
        elif magic == EXTENDED_CHUNK:
            assert self.mode == EXTENDED, "an extended chunk in %s mode" % self.mode
            flags, type, cookie, offset, length = struct.unpack(">HHQQQ", self.exactly(28))
            assert cookie in self.waiting, "cookie %#x" % cookie
            assert offset == self.waiting[cookie].offset, "the offset of an extended chunk is the request's"
            self.receive_chunk(flags, type, cookie, length)
        else:
            raise AssertionError("magic %#x" % magic)

    def receive_simple(self):
        error, cookie = struct.unpack(">IQ", self.exactly(12))
        assert cookie in self.waiting, "cookie %#x" % cookie
        request = self.waiting.pop(cookie)
        assert self.mode != EXTENDED, "a simple reply with extended headers"
        assert self.mode == SIMPLE or request.type not in (READ, STATUS), "a simple reply to %d" % request.type
        answer = request.answer
        answer.is_simple = True
        answer.error = self.legal(error, request) if error else 0
        if not error and request.type == READ:
            answer.parts = [(request.offset, request.length, self.exactly(request.length))]
        self.answers[cookie] = answer

    @staticmethod
    def legal(error, request):
        assert error in ERRORS, "error %d" % error
        assert error != ENOTSUP or (request.type == ZEROES and request.flags & FAST_ZERO), "ENOTSUP without FAST_ZERO"
        return error

    def receive_chunk(self, flags, type, cookie, length):
        assert cookie in self.waiting, "cookie %#x" % cookie
        request = self.waiting[cookie]
        answer = request.answer
        assert flags & ~DONE == 0, "chunk flags %#x" % flags
        assert length <= PAYLOAD_MAX + 4096, "a chunk of %d bytes" % length
        data = self.exactly(length)
        answer.chunks.append((type, flags, length))
        if type == NONE:
            assert flags & DONE and not data, "NONE with %d bytes, flags %d" % (length, flags)
        elif type in (OFFSET_DATA, OFFSET_HOLE):
            self.take_content(answer, type, data)
        elif type in (BLOCK_STATUS, BLOCK_STATUS_EXT):
            self.take_status(answer, type, data)
        else:
            self.take_error(answer, type, data)
        if flags & DONE:
            self.finish(cookie, answer)

    def take_content(self, answer, type, data):
        request = answer.request
        assert request.type == READ, "content for command %d" % request.type
        if type == OFFSET_DATA:
            assert len(data) > 8, "OFFSET_DATA of %d bytes" % len(data)
            offset, part = struct.unpack(">Q", data[:8])[0], data[8:]
            length = len(part)
        else:
            assert len(data) == 12 and not request.flags & DF, "OFFSET_HOLE of %d bytes, flags %d" % (len(data), request.flags)
            (offset, length), part = struct.unpack(">QI", data), None
        assert length > 0 and request.offset <= offset and offset + length <= request.offset + request.length, "content outside the request"
        assert all(offset + length <= o or o + l <= offset for o, l, _ in answer.parts), "content overlaps"
        answer.parts.append((offset, length, part))
        assert len(answer.parts) == 1 or not request.flags & DF, "DF, and two content chunks"

    def take_status(self, answer, type, data):
        request, extended = answer.request, self.mode == EXTENDED
        assert request.type == STATUS and (type == BLOCK_STATUS_EXT) == extended, "chunk %d for command %d" % (type, request.type)
        head, size, form = (8, 16, ">QQ") if extended else (4, 8, ">II")
        assert len(data) >= head + size and (len(data) - head) % size == 0, "a status chunk of %d bytes" % len(data)
        id = struct.unpack(">I", data[:4])[0]
        extents = [struct.unpack_from(form, data, at) for at in range(head, len(data), size)]
        if extended:
            assert struct.unpack(">I", data[4:8])[0] in (0, len(extents)), "the count of extents"
        wanted = self.contexts.values() if request.contexts is None else request.contexts
        assert id in wanted and id not in answer.extents, "context %d" % id
        assert 0 < len(extents) <= 1 << 20 and all(length > 0 for length, _ in extents), extents[:10]
        before_last = sum(length for length, _ in extents[:-1])
        length = request.effect
        assert before_last < length, "an extent begins behind the request"
        if request.flags & REQ_ONE:
            assert len(extents) == 1 and extents[0][0] <= length, "REQ_ONE: %s" % extents[:10]
        answer.extents[id] = extents

    def take_error(self, answer, type, data):
        assert type in (ERROR, ERROR_OFFSET) and len(data) >= 6, "chunk %#x of %d bytes" % (type, len(data))
        error, size = struct.unpack(">IH", data[:6])
        assert len(data) == 6 + size + (8 if type == ERROR_OFFSET else 0), "an error chunk of %d bytes, message %d" % (len(data), size)
        answer.error = answer.error or self.legal(error, answer.request)
        answer.text = data[6:6 + size].decode("utf-8")
        assert "\0" not in answer.text and size <= 4096
        if type == ERROR_OFFSET:
            answer.bad_offset = struct.unpack(">Q", data[-8:])[0]
            assert answer.request.offset <= answer.bad_offset < answer.request.offset + answer.request.length, answer.bad_offset

    def finish(self, cookie, answer):
        request = self.waiting.pop(cookie)
        if not answer.error:
            if request.type == READ:
                assert sum(length for _, length, _ in answer.parts) == request.length, "not all of the request is covered"
            if request.type == STATUS:
                wanted = self.contexts.values() if request.contexts is None else request.contexts
                assert set(answer.extents) == set(wanted), "contexts %s, asked for %s" % (set(answer.extents), set(wanted))
        self.answers[cookie] = answer


class Rig:
    def __init__(self, address, pid, words):
        self.address, self.pid, self.export = address, pid, os.environ.get("NBD_EXPORT", "v")
        self.mode = next((m for m in (SIMPLE, STRUCTURED, EXTENDED) if m in words), SIMPLE)
        self.tls = "tls" in words
        self.connections = []
        self.gone = False  # the daemon was told to stop
        self.kept = 0  # bytes that its heap may keep

    def tls_context(self, **how):
        context = ssl.create_default_context(cafile=os.environ["NBD_CA"])
        context.check_hostname = False
        if how.get("certificate"):
            context.load_cert_chain(how["certificate"], how["key"])
        return context

    def dial(self, address=None):
        """A connection on which nothing was received or sent."""
        connection = Connection(self, address)
        self.connections.append(connection)
        return connection

    def connect(self, flags=FIXED | NO_ZEROES, address=None, tls=None):
        """One that negotiates, in TLS if that is the run."""
        connection = self.dial(address).greet(flags)
        if self.tls if tls is None else tls:
            connection.start_tls()
        return connection

    def session(self, mode=None, name=None, contexts=(), infos=(), **how):
        """One in transmission."""
        connection = self.connect(**how)
        connection.negotiate(mode or self.mode)
        if contexts:
            connection.set_meta(self.export if name is None else name, *contexts)
        return connection.go(name, *infos)

    def read(self, offset, length):
        """As another client sees it."""
        c = self.session()
        data = c.read(offset, length)
        c.socket.close()
        return data

    def write(self, offset, data):
        c = self.session()
        c.write(offset, data)
        c.socket.close()

    def clean(self):
        for connection in self.connections:
            connection.socket.close()
        self.connections = []

    def fresh_client(self):
        if self.gone:
            return
        start = time.monotonic()
        c = self.session()
        assert len(c.read(0, 4096)) == 4096
        c.disconnect()
        assert c.closed(5), "DISC does not close"
        assert time.monotonic() - start < 5, "a fresh client waited %.1f s" % (time.monotonic() - start)
        self.clean()

    # --- what the daemon holds ---

    def resident(self):
        with open("/proc/%d/statm" % self.pid) as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def resident_besides_pool(self):
        """Without the pool of pages (256 MiB), which keeps what was in use once."""
        total = size = 0
        with open("/proc/%d/smaps" % self.pid) as smaps:
            for line in smaps:
                if line.startswith("Size:"):
                    size = int(line.split()[1])
                elif line.startswith("Rss:") and size < 262144:
                    total += int(line.split()[1]) << 10
        return total

    def cpu(self):
        """Seconds of CPU time so far."""
        with open("/proc/%d/stat" % self.pid) as stat:
            fields = stat.read().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.pid))

    def threads(self):
        """io_uring's workers come and go."""
        names = []
        for task in os.listdir("/proc/%d/task" % self.pid):
            try:
                with open("/proc/%d/task/%s/comm" % (self.pid, task)) as comm:
                    names.append(comm.read())
            except OSError:
                pass
        return len([name for name in names if not name.startswith("iou-")])


def until(condition, seconds=10):
    """True once it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


CASES = []


def case(about):
    def add(function):
        CASES.append((about, function))
        return function
    return add


SLACK = (24 << 20) * (20 if "san" in os.environ.get("BUILD_DIR", "") else 1)  # the sanitizer keeps what was freed


def nothing_left(rig, before):
    descriptors, threads, resident = before
    assert until(lambda: rig.descriptors() <= descriptors), "%d descriptors, %d before" % (rig.descriptors(), descriptors)
    assert until(lambda: rig.threads() <= threads), "%d threads, %d before" % (rig.threads(), threads)
    more = [0]

    def memory_is_back():
        more[0] = rig.resident_besides_pool() - resident
        return more[0] < SLACK + rig.kept

    assert until(memory_is_back), "%d KiB more memory" % (more[0] >> 10)


def run_case(rig, about, function):
    start = time.monotonic()
    try:
        function(rig)
        rig.clean()
        rig.fresh_client()
        print("ok      %s (%s, %.1f s)" % (function.__name__, about, time.monotonic() - start), flush=True)
        return True
    except Exception as error:
        line = error.__traceback__
        while line.tb_next and line.tb_next.tb_frame.f_code.co_filename != __file__:
            line = line.tb_next
        print("FAILED  %s (%s), line %d: %s: %s" % (function.__name__, about, line.tb_lineno, type(error).__name__, error), flush=True)
        rig.clean()
        os.kill(rig.pid, 0)
        return False


def main():
    rig = Rig(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
    only, without = os.environ.get("CASES", "").split(), os.environ.get("WITHOUT", "").split()
    rig.size = rig.session().size
    rig.fresh_client()
    before = rig.descriptors(), rig.threads(), rig.resident_besides_pool()
    failed = [f for about, f in CASES if not (only and f.__name__ not in only) and f.__name__ not in without and not run_case(rig, about, f)]
    if not rig.gone:
        nothing_left(rig, before)
    print("%d cases of %s, %s%s, %d failed" % (len(CASES), os.path.basename(sys.argv[0])[4:-3], rig.mode, ", TLS" if rig.tls else "", len(failed)))
    sys.exit(len(failed) != 0)
