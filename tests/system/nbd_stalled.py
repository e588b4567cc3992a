"""Clients that stall, and many that idle: nbd_stalled.py ADDRESS PID [simple|structured|extended] [tls]

NEGOTIATION: seconds a client has to choose its export; POOL: MiB of the pool of pages; KIB: what an idle connection may hold."""
import atexit, select

from nbd_client import *

NEGOTIATION, POOL, KIB = (float(os.environ[name]) for name in ("NEGOTIATION", "POOL", "KIB"))
FIGURES = []


def pump(clients, left, seconds):
    """Send zeroes, `left` bytes to each, as far as they are taken; until nothing is taken for `seconds`."""
    chunk, last = bytes(MIB), time.monotonic()
    for c in clients:
        c.socket.setblocking(False)
    while any(left) and time.monotonic() - last < seconds:
        _, ready, _ = select.select([], [c.socket for c, n in zip(clients, left) if n], [], 0.1)
        for i, c in enumerate(clients):
            if c.socket in ready:
                try:
                    sent = c.socket.send(chunk[:left[i]])
                except (BlockingIOError, ssl.SSLWantWriteError):
                    continue
                except OSError:
                    left[i] = 0
                    continue
                left[i] -= sent
                last = time.monotonic()
    return left


@case("forty clients that stall in the middle of a 32 MiB write cost no more than the bounded pool; others are served")
def forty_writers(rig):
    before = rig.resident()
    clients = [rig.session() for _ in range(40)]
    for c in clients:
        c.send(c.header(WRITE, 0, PAYLOAD_MAX, PAYLOAD_LEN if c.mode == EXTENDED else 0, 1))
    left = pump(clients, [PAYLOAD_MAX - MIB] * 40, 1.5)
    taken = 40 * (PAYLOAD_MAX - MIB) - sum(left)
    held = rig.resident() - before
    FIGURES.append("40 stalled writers sent %d MiB and hold %d MiB (the pool has %d)" % (taken >> 20, held >> 20, POOL))
    assert held < POOL * MIB + SLACK + 40 * KIB * 1024, "%d MiB more" % (held >> 20)
    start = time.monotonic()
    rig.fresh_client()
    assert time.monotonic() - start < 6


@case("forty readers of 32 MiB that take no answer: the same")
def forty_readers(rig):
    before = rig.resident()
    clients = [rig.session() for _ in range(40)]
    for c in clients:
        c.send(*(c.header(READ, n * PAYLOAD_MAX, PAYLOAD_MAX, 0, n) for n in range(4)))
    time.sleep(1)
    held = rig.resident() - before
    assert held < POOL * MIB + SLACK + 40 * KIB * 1024, "%d MiB more" % (held >> 20)
    start = time.monotonic()
    rig.fresh_client()
    assert time.monotonic() - start < 6
    assert len(clients) == 40


@case("thirty readers of 4 x 32 MiB that take nothing hold up a read of 1 MiB at an odd place for some seconds, one of 32 MiB for some more")
def readers_that_crowd(rig):
    writer = rig.session()
    for n in range(rig.size // PAYLOAD_MAX):  # what was never written is read without pages
        writer.write(n * PAYLOAD_MAX, b"x" * PAYLOAD_MAX)
    crowd = [rig.session() for _ in range(30)]
    for c in crowd:
        c.send(*(c.header(READ, n * PAYLOAD_MAX, PAYLOAD_MAX, 0, n) for n in range(4)))
    start, took = time.monotonic(), []
    for length in (MIB, PAYLOAD_MAX):
        rig.read(512, length)
        took.append(time.monotonic() - start)
    FIGURES.append("beside 30 readers that take nothing 1 MiB was read after %.1f s, 32 MiB after %.1f s" % tuple(took))
    assert took[0] < 6 and took[1] < 20, took
    assert len(crowd) == 30


@case("handshakes that stall, at each of their steps, or go on a byte at a time, are dropped in the time that is said")
def stalled_handshakes(rig):
    start = time.monotonic()
    stalled = []
    for n in range(10):
        stalled.append(rig.dial())
        stalled[-1].send(b"\0\0"[:n % 3])
        for data in (b"", Connection.option(LIST)[:7], Connection.option(GO, b"x", length=100), Connection.option(77, b"", length=1 << 31)):
            c = rig.connect()
            c.send(data)
            stalled.append(c)
        c = rig.dial().greet()
        if rig.tls:
            c.accepted(STARTTLS)
            c.send(b"\x16\x03\x01\x02\0\x01"[:n % 7])
        stalled.append(c)
    for c in stalled:
        c.socket.setblocking(False)
    trickle = rig.connect()
    whole = trickle.option(INFO, trickle.info_data("v")) * 100
    sent, gone = 0, 0
    while gone < len(stalled) + 1 and time.monotonic() - start < NEGOTIATION + 5:
        ready, _, _ = select.select([c.socket for c in stalled if c.socket.fileno() >= 0] + ([trickle.socket] if trickle.socket.fileno() >= 0 else []), [], [], 0.1)
        for c in stalled + [trickle]:
            if c.socket not in ready:
                continue
            try:
                over = c.socket.recv(65536) == b""
            except (BlockingIOError, ssl.SSLWantReadError):
                continue
            except OSError:
                over = True
            if over:
                gone += 1
                c.socket.close()
        try:
            if trickle.socket.fileno() >= 0:
                trickle.socket.send(whole[sent:sent + 1])
                sent += 1
        except OSError:
            pass
    took = time.monotonic() - start
    assert gone == len(stalled) + 1, "%d of %d stalled handshakes were dropped" % (gone, len(stalled) + 1)
    assert NEGOTIATION - 0.5 < took, "dropped after %.1f s" % took
    FIGURES.append("%d stalled handshakes dropped after %.1f s (%.0f s is what the config says)" % (gone, took, NEGOTIATION))


@case("500 idle connections: what each holds is bounded; each is served afterwards; the next 500 hold no more")
def idle_connections(rig):
    start, held = rig.resident(), []
    for _ in range(2):
        idle = [rig.session() for _ in range(500)]
        for c in idle:
            c.read(0, 4096)
        held.append((rig.resident() - start) / 500)
        for c in idle[::10]:
            c.read(0, 512)
        rig.clean()
        assert until(lambda: rig.descriptors() < 500)
    FIGURES.append("500 idle connections hold %.1f KiB each" % (held[0] / 1024))
    assert held[0] < KIB * 1024, "%.1f KiB for each idle connection" % (held[0] / 1024)
    assert held[1] < held[0] * 1.1 + (32 << 10), "%.1f KiB for each, %.1f KiB when there were as many again" % (held[0] / 1024, held[1] / 1024)
    if rig.tls:  # OpenSSL's small pieces leave holes, which those of the next connections fill
        rig.kept = 500 * 128 << 10


@case("500 half-open connections: what each holds is bounded; others are served beside them")
def half_open_connections(rig):
    before = rig.resident()
    start = time.monotonic()
    half = []
    for n in range(500):
        c = rig.dial()
        if n % 2:
            c.greet()
        half.append(c)
    rig_time = time.monotonic()
    c = rig.session()
    c.read(0, 4096)
    assert time.monotonic() - rig_time < 2
    held = (rig.resident() - before) / 500
    FIGURES.append("500 half-open ones %.1f KiB each" % (held / 1024))
    assert held < KIB * 1024, "%.1f KiB for each half-open connection" % (held / 1024)
    assert len(half) == 500 and time.monotonic() - start < 20


atexit.register(lambda: print("; ".join(FIGURES)))
main()
