"""A disk that hangs: iscsi_hang.py ADDRESS TARGET PID HELPER, where HELPER is the process behind the disk of LUN 0

LUN 0 lies on the disk that hangs while HELPER is stopped, LUN 1 on another."""
import signal

from iscsi_initiator import *

HELPER = int(sys.argv.pop(4))
LIMIT = 1.0  # seconds: initiators give up after 15, and some ask four times


class Stopped:
    """The disk behind LUN 0 hangs."""
    def __enter__(self):
        os.kill(HELPER, signal.SIGSTOP)

    def __exit__(self, *_):
        os.kill(HELPER, signal.SIGCONT)


def hang(s, count=8):
    """Commands that the disk has in hand, or that wait for others there."""
    commands = [s.command(write10(64 + n * 8, 8), F | W, 4096, b"h" * 4096) for n in range(count - 1)]
    commands.append(s.command(read10(2048, 8), F | R, 4096))
    s.send(*commands)
    s.fence()
    return commands


def soon(what):
    start = time.monotonic()
    result = what()
    assert time.monotonic() - start < LIMIT, "%.1f s" % (time.monotonic() - start)
    return result


def settled(rig):
    """The disk is back: all that was orphaned is over, and it reads and writes."""
    s = rig.session()
    s.do(write10(64, 64), write=bytes(64 * BLOCK)).is_good()
    assert s.do(read10(64, 64), read=64 * BLOCK).is_good().data == bytes(64 * BLOCK)


@case("case 26: ABORT TASK is answered in time while the disk hangs, four times in a row; the aborted get no response when it is back")
def aborts(rig):
    s = rig.session()
    with Stopped():
        commands = hang(s)
        for command in commands:
            assert soon(lambda: s.task(ABORT_TASK, command)) == 0
        assert [soon(lambda: s.task(ABORT_TASK, commands[0])) for _ in range(3)] == [1, 1, 1]
        s.fence()
        assert s.do(READY, immediate=True).status == GOOD
    settled(rig)
    s.fence()
    assert s.do(read10(0, 8), read=4096).status == GOOD


@case("case 26: so are LOGICAL UNIT RESET of another session, and ABORT TASK SET")
def resets(rig):
    s, other = rig.session(), rig.session()
    with Stopped():
        hang(s)
        assert soon(lambda: s.task(ABORT_TASK_SET)) == 0
        hang(s)
        assert soon(lambda: other.task(LUN_RESET)) == 0
        ping = s.request(NOP_OUT, F, immediate=True, ttt=NO_TAG)
        s.send(ping)
        while (p := s.receive(NOP_IN, RESPONSE)).itt != ping.itt:
            assert p.status == TASK_ABORTED, "another's reset is told to those that had not reached the disk"
    settled(rig)


@case("case 16: writes that hang, an abort, the connection is reset: the same name and ISID log in at once, and so does another initiator")
def reinstatement_and_others(rig):
    s = rig.session()
    with Stopped():
        commands = hang(s)
        s.task(ABORT_TASK, commands[0])
        s.reset()
        rig.connections.remove(s)
        stranger = None
        for name, isid in ((s.name, s.isid), (None, None), (s.name, s.isid)):
            again = rig.connect(name=name, isid=isid)
            assert soon(lambda: again.login(rig.digest_keys(()))).login_status == 0
            again.make_ready()
            hang(again)
            stranger = again if name is None else stranger
        assert soon(lambda: again.do(inquiry(36), read=36)).status == GOOD
        other = rig.connect()
        soon(lambda: other.open(ready=False))
        soon(lambda: other.make_ready(1))
        assert soon(lambda: other.do(read10(0, 8), read=4096, lun=1)).status == GOOD, "the other LUN"
        for x in (stranger, again):
            assert soon(lambda: x.task(ABORT_TASK_SET)) == 0
    settled(rig)


@case("case 29: logout and a connection that ends, while the disk hangs")
def logouts(rig):
    with Stopped():
        for _ in range(5):
            s = rig.session()
            hang(s)
            assert soon(s.logout) == 0 and soon(s.closed)
        assert soon(lambda: rig.connect().login()).login_status == 0
    settled(rig)


@case("case 43: sessions that are cut again and again while the disk hangs give everything back when it goes on")
def cuts_while_it_hangs(rig):
    resident = []
    for _ in range(5):
        with Stopped():
            for _ in range(20):
                s = rig.session()
                hang(s)
                s.reset()
                rig.connections.remove(s)
        settled(rig)
        resident.append(rig.resident() >> 20)
    assert resident[-1] - resident[1] < 24, "MiB after each round: %s" % resident



main()
