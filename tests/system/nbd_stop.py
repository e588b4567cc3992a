"""SIGTERM with clients in every state: nbd_stop.py ADDRESS PID [simple|structured|extended] [tls]

GRACE is the time the config gives to clients (daemon.drain), in seconds. Writes that were answered with success are told in
the file WRITTEN, "offset seed" a line (65536 bytes of pattern(seed)), to be looked at after a restart."""
import signal

from nbd_client import *

GRACE = float(os.environ["GRACE"])


def ended(c, seconds):
    """All that comes until the end, as (cookie, error) of replies; other bytes are dropped."""
    answers = []
    try:
        while True:
            c.receive_reply()
            for cookie in list(c.answers):
                answers.append((cookie, c.answers.pop(cookie).error))
    except (EOFError, ConnectionError, ssl.SSLError):
        return answers


def running(pid):
    try:
        with open("/proc/%d/stat" % pid) as stat:
            return stat.read().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


@case("case 5: SIGTERM with clients in every state, each with requests, payloads or a handshake half done: all end in seconds; what was answered is kept")
def stop(rig):
    """Clients that have said nothing, negotiate, shake hands in TLS, idle, are in the middle of a payload, have requests in flight,
    take no replies, or shut down their side."""
    silent, half = rig.dial(), rig.dial().greet()
    half.send(half.option(GO, b"", length=10))
    negotiating = rig.connect()
    others = [silent, half, negotiating]
    if rig.tls:
        c = rig.dial().greet()
        c.accepted(STARTTLS)
        c.send(b"\x16\x03\x01\x02\0\x01")
        others.append(c)
    else:
        others.append(rig.dial())
        others[-1].socket.shutdown(socket.SHUT_WR)
    idle = [rig.session() for _ in range(5)]
    payload = rig.session()
    payload.send(payload.submit(WRITE, 60 * MIB, data=b"p" * MIB)[1][:100000])
    deaf = rig.session()
    deaf.socket.settimeout(0.5)
    try:
        for n in range(40):
            deaf.socket.sendall(deaf.header(READ, 0, MIB, 0, n))
    except (OSError, ssl.SSLError):
        pass
    slow = rig.session()  # has not taken its answers yet, so it is not over when the order comes
    slow.write(64 * MIB, pattern(MIB, 98) * 24)
    early = [slow.issue(READ, (64 + n) * MIB, MIB) for n in range(24)]
    busy = []
    for n in range(4):
        c = rig.session()
        writes = [c.submit(WRITE, (n * 32 + k) * 65536, data=pattern(65536, n * 32 + k)) for k in range(32)]
        flush = c.submit(FLUSH)
        c.send(*(out for _, out in writes), flush[1])
        busy.append((c, {cookie: n * 32 + k for k, (cookie, _) in enumerate(writes)}))
    start = time.monotonic()
    os.kill(rig.pid, signal.SIGTERM)
    time.sleep(0.2)
    late = [slow.issue(READ, 0, 512), slow.issue(WRITE, 60 * MIB, data=b"l" * 4096), slow.issue(FLUSH)]
    assert [slow.answer(cookie).error for cookie in early + late] == [0] * 24 + [ESHUTDOWN] * 3, "what came before, and what came after"
    assert slow.closed(GRACE)
    with open(os.environ["WRITTEN"], "w") as written:
        for c, seeds in busy:
            for cookie, error in ended(c, GRACE + 3):
                assert error in (0, ESHUTDOWN), "error %d while it stops" % error
                if not error and cookie in seeds:
                    written.write("%d %d\n" % (seeds[cookie] * 65536, seeds[cookie]))
    for c in idle + others:
        c.waiting = {}
        assert c.closed(GRACE + 3)
    assert all(error in (0, ESHUTDOWN) for _, error in ended(payload, GRACE + 3))
    assert until(lambda: not running(rig.pid), GRACE + 5), "it still runs %.1f s after SIGTERM" % (time.monotonic() - start)
    took = time.monotonic() - start
    try:
        late = rig.dial()
        assert late.closed(1), "somebody still answers"
    except OSError:
        pass
    assert took < GRACE + 3, "%.1f s" % took
    print("it ended %.1f s after SIGTERM, with clients in every state" % took)
    rig.gone = True


main()
