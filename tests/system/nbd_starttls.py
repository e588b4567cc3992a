"""STARTTLS and TLS, raw: nbd_starttls.py ADDRESS PID [simple|structured|extended] tls

ADDRESS wants TLS; ALLOW is the path of a socket that takes both. More of it, by certificates and keys, is in nbd_tls.py."""
import threading

from nbd_client import *

ALLOW = os.environ["ALLOW"]


class Tls:
    """The cipher by hand over a connection's socket, to break off where one likes."""
    def __init__(self, c):
        self.c, self.incoming, self.outgoing = c, ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = c.rig.tls_context().wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def flights(self):
        """What the client sends in the handshake, flight by flight; what comes is taken in between."""
        while True:
            try:
                self.object.do_handshake()
                yield self.outgoing.read()
                return
            except ssl.SSLWantReadError:
                out = self.outgoing.read()
                if out:
                    yield out
                self.c.socket.settimeout(10)
                self.incoming.write(self.c.socket.recv(65536))

    def handshake(self):
        for flight in self.flights():
            self.c.socket.sendall(flight)

    def encrypted(self, data):
        self.object.write(data)
        return self.outgoing.read()

    def goodbye(self):
        """close_notify."""
        try:
            self.object.unwrap()
        except ssl.SSLWantReadError:
            pass
        return self.outgoing.read()

    def rest(self):
        """All that comes in clear text until the end; was the end said?"""
        data = b""
        while True:
            part = self.c.socket.recv(65536)
            if part:
                self.incoming.write(part)
            else:
                self.incoming.write_eof()
            try:
                while got := self.object.read(65536):
                    data += got
                return data, True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLEOFError:
                return data, False
            except ssl.SSLZeroReturnError:
                return data, True


def begun(rig, address=None):
    """A connection that was told to start TLS, and has not."""
    c = rig.dial(address).greet()
    c.accepted(STARTTLS)
    return c


@case("TLS required: everything but STARTTLS and ABORT is ERR_TLS_REQD, whatever its data; EXPORT_NAME ends it; then TLS may start")
def all_but_starttls(rig):
    c = rig.dial().greet()
    for number in (LIST, INFO, GO, STRUCTURED_REPLY, LIST_META, SET_META, EXTENDED_HEADERS, 12, 77):
        for data in (b"", c.info_data("v"), c.info_data("nothere"), b"x" * 5000):
            replies = c.ask(number, data)
            assert len(replies) == 1 and replies[0].type == ERR_TLS_REQD, (number, replies)
    c.start_tls()
    c.negotiate(rig.mode)
    assert len(c.go().read(0, 512)) == 512
    c = rig.dial().greet()
    assert c.accepted(ABORT) == [] and c.closed()
    c = rig.dial().greet()
    assert c.refused(c.option(EXPORT_NAME, b"v"))
    c = rig.dial().greet()
    c.refusal(STARTTLS, b"x", ERR_INVALID)
    c.start_tls().go()


@case("case 4: what was agreed in clear is forgotten when TLS starts: structured replies, extended headers, contexts")
def agreements_are_forgotten(rig):
    for mode in (STRUCTURED, EXTENDED):
        c = rig.dial(ALLOW).greet()
        c.negotiate(mode)
        c.set_meta("v", ALLOCATION)
        c.start_tls()
        c.mode, c.contexts = SIMPLE, {}
        c.refusal(SET_META, c.meta_data("v", ALLOCATION), ERR_INVALID)
        assert not c.go().flags & (SEND_DF | BLOCK_STATUS_PAYLOAD)
        assert c.do(READ, 0, 4096).ok().is_simple
        c.do(STATUS, 0, 4096).failed(EINVAL)
    c = rig.dial(ALLOW).greet()
    c.negotiate(STRUCTURED)
    c.set_meta("v", ALLOCATION)
    c.start_tls()
    c.negotiate(STRUCTURED)
    c.contexts = {}
    c.go().do(STATUS, 0, 4096).failed(EINVAL)


@case("case 4: bytes in clear behind STARTTLS are not taken for what comes by TLS: the connection ends, unanswered")
def bytes_behind_starttls(rig):
    c = rig.dial().greet()
    option = c.option(STRUCTURED_REPLY)
    for address in (None, ALLOW):
        for extra in (option, option[:7], option[:1], option * 400, c.option(GO, c.info_data("v")) + bytes(28), c.option(STARTTLS), bytes(16384)):
            c = rig.dial(address).greet()
            c.send(c.option(STARTTLS) + extra)
            got = b""
            try:
                while part := c.socket.recv(65536):
                    got += part
            except ConnectionError:
                pass
            acks = got.count(struct.pack(">QII", OPTION_REPLY, STARTTLS, ACK))
            assert got.count(struct.pack(">Q", OPTION_REPLY)) == acks <= 1, got


@case("TLS allowed: the same socket serves in clear and by TLS, side by side")
def clear_and_tls(rig):
    clear, secret = rig.connect(address=ALLOW, tls=False), rig.connect(address=ALLOW)
    for c in (clear, secret):
        c.negotiate(rig.mode)
        c.go()
    data = pattern(MIB, 90)
    clear.write(MIB, data)
    assert secret.read(MIB, MIB) == data
    secret.write(MIB, data[::-1])
    assert clear.read(MIB, MIB) == data[::-1]


@case("DISC is answered by close_notify and the end; so is a client's close_notify, after what is in flight was answered")
def goodbyes(rig):
    c = rig.session()
    c.disconnect()
    assert c.socket.recv(1) == b"", "the end without close_notify is an error here"
    c = begun(rig)
    tls = Tls(c)
    tls.handshake()
    requests = b"".join(c.header(READ, n * 4096, 4096, 0, n) for n in range(32))
    c.socket.sendall(tls.encrypted(c.option(GO, c.info_data("v")) + requests) + tls.goodbye())
    data, said = tls.rest()
    start = data.index(struct.pack(">I", SIMPLE_REPLY))
    assert said and len(data) - start == 32 * (16 + 4096), "%d bytes" % (len(data) - start)


@case("case 10: clients that go without close_notify, in every state: no busy loop")
def goes_without_goodbye(rig):
    for n in range(60):
        c = (lambda: rig.dial().greet(), lambda: begun(rig), rig.connect, rig.session)[n % 4]()
        if n % 8 > 3:
            c.socket.shutdown(socket.SHUT_WR)
        else:
            c.socket.close()
    stuck = [rig.session() for _ in range(5)]
    for c in stuck:
        os.write(c.socket.fileno(), b"\x17\x03\x03\x10")  # the beginning of a record
    time.sleep(0.2)
    before = rig.cpu()
    time.sleep(0.5)
    assert rig.cpu() - before < 0.1, "%.2f s of CPU time" % (rig.cpu() - before)


@case("clients that go in the middle of each flight of the TLS handshake, or send it a byte at a time")
def breaks_in_the_handshake(rig):
    for end in (Connection.reset, lambda c: c.socket.close(), lambda c: c.socket.shutdown(socket.SHUT_WR)):
        for flight_no in range(2):
            for part in (1, 5, 6, 100, 10000):
                c = begun(rig)
                for n, flight in enumerate(Tls(c).flights()):
                    c.socket.sendall(flight[:part] if n == flight_no else flight)
                    if n == flight_no:
                        break
                end(c)
    c = begun(rig)
    tls = Tls(c)
    for flight in tls.flights():
        for byte in flight:
            c.socket.sendall(bytes([byte]))
    c.socket.sendall(tls.encrypted(c.option(ABORT)))
    assert tls.rest()[1]


@case("no TLS where it should begin: closed, at once, and nothing is answered in clear")
def no_tls_at_all(rig):
    rng = random.Random(91)
    for junk in (Connection.option(LIST), bytes(4096), b"\x16\x03\x01\xff\xff" + bytes(70000), b"\x80" * 300, b"\x15\x03\x03\x00\x02\x02\x28", rng.randbytes(3000)):
        c = begun(rig)
        got = b""
        try:
            c.socket.sendall(junk)
            c.socket.settimeout(5)
            while part := c.socket.recv(65536):
                got += part
        except ConnectionError:
            pass
        assert struct.pack(">Q", OPTION_REPLY) not in got and len(got) < 100, got


@case("a record that was tampered with, or bytes in clear between records: the end, and what they were to write is not written")
def tampered_records(rig):
    rig.write(0, bytes(65536))
    for how in ("flip", "clear", "cut"):
        c = begun(rig)
        tls = Tls(c)
        tls.handshake()
        c.socket.sendall(tls.encrypted(c.option(GO, c.info_data("v"))))
        record = bytearray(tls.encrypted(c.header(WRITE, 0, 8192, 0, 1) + b"\xbb" * 8192))
        if how == "flip":
            record[len(record) // 2] ^= 1
        elif how == "clear":
            record = c.header(WRITE, 0, 512, 0, 1) + b"\xbb" * 512
        c.socket.sendall(record[:-1] if how == "cut" else record)
        if how == "cut":
            c.reset()
        else:
            assert c.closed(), how
    assert not any(rig.read(0, 65536))


@case("twenty handshakes at once, and twenty that stand still beside them")
def many_handshakes(rig):
    stalled = [begun(rig) for _ in range(20)]
    for n, c in enumerate(stalled):
        c.socket.sendall(next(Tls(c).flights())[:n * 10])
    failures = []

    def one():
        try:
            c = rig.session()
            c.read(0, 4096)
        except Exception as error:
            failures.append(error)

    workers = [threading.Thread(target=one) for _ in range(20)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failures, failures


@case("32 MiB each way, in records of any size")
def much_data(rig):
    c = rig.session()
    data = pattern(MIB, 92) * 16
    cookie, out = c.submit(WRITE, 0, data=data)
    rng = random.Random(93)
    at = 0
    while at < len(out):
        n = rng.choice((1, 100, 16384, 16385, 1 << 20, 3 << 20))
        c.send(out[at:at + n])
        at += n
    c.answer(cookie).ok()
    cookies = [c.issue(READ, n * MIB, MIB) for n in range(16)]
    time.sleep(0.2)  # until all buffers are full
    for n, cookie in enumerate(cookies):
        assert c.answer(cookie).ok().data == data[:MIB]


main()
