"""A disk that hangs: nbd_hang.py ADDRESS PID HELPER [simple|structured|extended] [tls]

v lies on the disk that hangs, the export other on another. HELPER is the process behind the first disk, which is stopped; or the file that
has it hang while it exists (reordering_nbd_server.py)."""
import signal

from nbd_client import *

HELPER = sys.argv.pop(3)
LIMIT = 2.0


class Stopped:
    """The disk behind v hangs."""
    def __enter__(self):
        if HELPER.isdigit():
            os.kill(int(HELPER), signal.SIGSTOP)
        else:
            open(HELPER, "w").close()

    def __exit__(self, *_):
        if HELPER.isdigit():
            os.kill(int(HELPER), signal.SIGCONT)
        else:
            os.unlink(HELPER)


def soon(what):
    start = time.monotonic()
    result = what()
    assert time.monotonic() - start < LIMIT, "%.1f s" % (time.monotonic() - start)
    return result


def others_are_served(rig):
    c = soon(lambda: rig.session(name="other"))
    soon(lambda: c.write(0, bytes(4096)))
    soon(lambda: c.read(0, 4096))
    c.disconnect()
    assert soon(lambda: c.closed())
    soon(lambda: rig.session(name="v"))


def leave(c, how):
    if how == "reset":
        c.reset()
    elif how == "close":
        c.socket.close()
    elif how == "half" and not c.rig.tls:
        c.socket.shutdown(socket.SHUT_WR)
    else:
        c.send(c.header(DISC))


@case("while the disk hangs others are served, and clients that wait for it come and go")
def others(rig):
    for how in ("reset", "close", "half", "disc"):
        with Stopped():
            c = rig.session()
            c.send(*(c.submit(kind, n * 4096, data=b"h" * 4096 if kind == WRITE else b"", length=4096)[1] for n, kind in enumerate([WRITE, READ] * 16)),
                   c.submit(FLUSH)[1])
            others_are_served(rig)
            leave(c, how)
            others_are_served(rig)
    assert len(rig.read(0, 65536)) == 65536


@case("case 11: a write whose client is gone never lands after a newer one of its successor, which sends it again")
def dead_writes(rig):
    rng = random.Random(70)
    for turn in range(12):
        how = ("reset", "close", "half", "disc")[turn % 4]
        place, size = 512 * rng.randrange(64), rng.choice((512, 4096, 65536))
        with Stopped():
            dead = rig.session()
            dead.send(*(dead.submit(WRITE, MIB + n * 65536, data=b"f" * 65536)[1] for n in range(turn % 8)),
                      *(dead.submit(WRITE, place, data=bytes([n + 1]) * size)[1] for n in range(4)))
            dead.send(dead.submit((ZEROES, TRIM, WRITE)[turn % 3], place, size, data=b"\x0f" * size if turn % 3 == 2 else b"")[1])
            time.sleep(0.05)
            leave(dead, how)
            successor = rig.session()
            data = pattern(size, turn)
            cookie = successor.issue(WRITE, place, data=data, flags=FUA if turn % 2 else 0)
            time.sleep(0.05)
        successor.answer(cookie).ok()
        for _ in range(3):
            assert successor.read(place, size) == data, "turn %d: a dead connection's write came after (%s)" % (turn, how)
            time.sleep(0.01)
        assert rig.read(place, size) == data
        rig.clean()
    time.sleep(0.5)
    assert rig.read(place, size) == data


@case("case 11: the same for a client whose death nobody has told, and that has waited for a second and more")
def silent_deaths(rig):
    with Stopped():
        dead = rig.session()
        dead.send(*(dead.submit(WRITE, n * 4096, data=b"s" * 8192)[1] for n in range(8)))
        time.sleep(1.3)
        successor = rig.session()
        data = pattern(8 * 4096, 71)
        cookie = successor.issue(WRITE, 0, data=data)
        time.sleep(0.05)
    successor.answer(cookie).ok()
    assert successor.read(0, 8 * 4096) == data
    time.sleep(0.2)
    assert rig.read(0, 8 * 4096) == data, "a write of the client that was silent came after"


@case("cases 13, 14: connections that are cut again and again while the disk hangs give everything back when it goes on")
def cuts_while_it_hangs(rig):
    resident = []
    for _ in range(4):
        with Stopped():
            for n in range(20):
                c = rig.session()
                c.send(*(c.submit((READ, WRITE)[k % 2], k * 65536, length=65536, data=b"c" * 65536 if k % 2 else b"")[1] for k in range(16)))
                leave(c, ("reset", "close")[n % 2])
        rig.read(0, 4096)
        rig.clean()
        resident.append(rig.resident() >> 20)
    assert resident[-1] - resident[1] < 24, "MiB after each round: %s" % resident


main()
