"""What users of other servers met, raw: nbd_field.py ADDRESS PID [simple|structured|extended] [tls]

Exports: v, at least 64 MiB. LOG is the daemon's log."""
import threading

from nbd_client import *

LOG = os.environ["LOG"]


def in_flight(rig, kinds=(READ, WRITE), count=64):
    """A session with requests in flight, of which no answer was read."""
    c = rig.session()
    out = []
    for n in range(count):
        kind = kinds[n % len(kinds)]
        out.append(c.submit(kind, n * 65536, data=b"q" * 65536)[1] if kind == WRITE else c.submit(kind, n * 65536, 65536)[1])
    c.socket.settimeout(0.5)
    try:
        c.socket.sendall(b"".join(out))
    except (socket.timeout, ssl.SSLError, ConnectionError):
        pass  # its replies are not read, so it stops reading
    return c


def log_size():
    return os.path.getsize(LOG)


@case("fault 4; case 14: reset with 64 READ and WRITE in flight, again and again")
def resets_with_requests_in_flight(rig):
    for n in range(16):
        in_flight(rig, ((READ, WRITE), (WRITE,), (READ,), (ZEROES, TRIM, FLUSH, READ))[n % 4]).reset()


@case("case 14: the same, closed; or closed after the first half of a payload, of a header, of a reply")
def closes_with_requests_in_flight(rig):
    for n in range(12):
        c = in_flight(rig)
        if n % 2:
            c.exactly(100)
        c.socket.close()
        c = rig.session()
        out = c.submit(WRITE, 0, data=b"h" * 65536)[1]
        c.send(out[:(1, 27, 28, 29, 4096, 65000)[n % 6]])
        c.socket.close()


@case("case 14: a payload that ends in the middle is not written, not a byte of it")
def half_a_payload_is_not_written(rig):
    rig.write(0, bytes(MIB))
    for length in (4096, MIB):
        for part in (1, length - 1):
            for end in (Connection.reset, lambda c: c.socket.close()):
                c = rig.session()
                c.send(c.submit(WRITE, 0, data=b"\xaa" * length)[1][:(32 if c.mode == EXTENDED else 28) + part])
                end(c)
    assert not any(rig.read(0, MIB))


@case("case 12: the client's side shut down: what is in flight is answered, then the connection is closed, at once")
def half_closed(rig):
    if rig.tls:
        return  # TLS has a message for that: nbd_tls.py
    for count in (0, 1, 64):
        c = rig.session()
        out = [c.submit(READ, n * 4096, 4096) for n in range(count)]
        c.send(*(bytes for _, bytes in out))
        c.socket.shutdown(socket.SHUT_WR)
        start = time.monotonic()
        for cookie, _ in out:
            c.answer(cookie).ok()
        assert c.closed(3) and time.monotonic() - start < 3
    c = rig.session()
    c.send(c.submit(WRITE, 0, data=bytes(65536))[1][:1000])
    c.socket.shutdown(socket.SHUT_WR)
    assert c.closed(3), "half a payload, then the end"


@case("dead peers are found: TCP keep-alive is armed on a connection that idles")
def keep_alive(rig):
    c = rig.session()
    ours, theirs = (":%04X" % address[1] for address in (c.socket.getsockname(), c.socket.getpeername()))

    def armed():
        with open("/proc/net/tcp") as table:
            lines = [line.split() for line in table]
        return [f[5] for f in lines if f[1].endswith(theirs) and f[2].endswith(ours)][0].startswith("02:")

    assert until(armed), "no keep-alive"


@case("case 15: requests behind GO in one segment, and a client that is gone before they are answered")
def hasty_clients(rig):
    for n in range(30):
        c = rig.connect()
        c.negotiate(rig.mode)
        requests = [c.submit(READ, k * 65536, 65536)[1] for k in range(16)]
        c.send(c.option(GO, c.info_data("v")), *requests)
        if n % 3 == 0:
            c.reset()
        elif n % 3 == 1:
            c.socket.close()
        else:
            c.take_infos(c.replies(GO)[:-1])


@case("cases 8, 9, 10: clients that connect and go, or wait and go: no busy loop, no flood of the log")
def no_spinning(rig):
    log = log_size()
    for n in range(200):
        c = rig.dial()
        if n % 4 == 1:
            c.greet()
        elif n % 4 == 2 and n < 60:
            c = rig.session()
        elif n % 4 == 3:
            c.socket.shutdown(socket.SHUT_WR)
        c.socket.close()
    idle = [rig.dial(), rig.connect(), rig.session(), in_flight(rig)]
    time.sleep(0.2)
    before = rig.cpu()
    time.sleep(0.5)
    assert rig.cpu() - before < 0.1, "%.2f s of CPU time in half a second of silence" % (rig.cpu() - before)
    assert log_size() - log < 40000, "%d bytes of log" % (log_size() - log)
    assert len(idle) == 4


@case("case 17: 500 connections, one after the other: memory stays")
def many_connections_in_a_row(rig):
    def turn(count):
        for n in range(count):
            c = rig.session()
            c.read(0, 512)
            c.socket.close() if n % 2 else c.disconnect()
            rig.clean()

    turn(50)
    before = rig.resident_besides_pool()
    turn(450 if rig.mode == SIMPLE else 100)
    assert rig.resident_besides_pool() - before < SLACK // 4, "%d KiB more" % (rig.resident_besides_pool() - before >> 10)


@case("case 31: sixty clients at once are all served")
def many_at_once(rig):
    clients = [rig.session() for _ in range(60)]
    cookies = [(c, c.issue(READ, n * 65536, 65536)) for n, c in enumerate(clients) for _ in range(4)]
    for c, cookie in cookies:
        c.answer(cookie).ok()


@case("a client that reads no replies holds up nobody else")
def reader_that_never_reads(rig):
    stuck = [in_flight(rig, (READ,), 400) for _ in range(3)]
    start = time.monotonic()
    for _ in range(20):
        rig.session().read(0, 65536)
    assert time.monotonic() - start < 5
    assert len(stuck) == 3


@case("forty clients in the middle of a payload hold up nobody else")
def writers_that_stall(rig):
    stuck = []
    for n in range(40):
        c = rig.session()
        c.send(c.submit(WRITE, n * MIB, data=bytes(MIB))[1][:1000 + n])
        stuck.append(c)
    start = time.monotonic()
    for _ in range(10):
        rig.session().write(0, bytes(65536))
    assert time.monotonic() - start < 5
    assert len(stuck) == 40


@case("clients that send random bytes behind GO: dropped, or answered with errors; nothing of it is taken for a write that was not one")
def random_requests(rig):
    rng = random.Random(60)
    for n in range(24):
        c = rig.session()
        out = b""
        for _ in range(rng.randrange(1, 30)):
            type, flags = rng.choice((READ, FLUSH, STATUS, CACHE, 77, RESIZE, 0xFFFF)), rng.choice((0, FUA, 0xFFFF, rng.getrandbits(16)))
            offset, length = rng.choice((0, 512, rng.getrandbits(64))), rng.choice((0, 512, 4096, rng.getrandbits(12)))
            if c.mode == EXTENDED:
                flags &= ~PAYLOAD_LEN
            out += c.header(type, offset, length, flags, rng.getrandbits(64))
        if n % 2:
            out += rng.randbytes(100)
        try:
            c.send(out)
            c.socket.settimeout(0.02)
            while c.socket.recv(65536):
                pass
        except (OSError, ssl.SSLError):
            pass
        c.socket.close()


@case("case 6: exports that are not there, asked for at once by many who go before the answer")
def unknown_exports_at_once(rig):
    def one():
        c = rig.connect()
        c.send(c.option(EXPORT_NAME, b"nothere") if rig.mode == SIMPLE else c.option(GO, c.info_data("nothere")))
        c.reset()

    workers = [threading.Thread(target=one) for _ in range(40)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()


main()
