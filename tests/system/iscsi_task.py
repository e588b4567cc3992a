"""Task management with raw PDUs (RFC 7143, 4.2.3, 11.5, 11.6): iscsi_task.py ADDRESS TARGET PID [digests]

The tasks are writes that wait for their data, on LUNs 0 and 1."""
from iscsi_initiator import *

SOLICITED = ("InitialR2T=Yes", "ImmediateData=No")


def two(s):
    """A write that waits on each LUN."""
    s.make_ready(1)
    return [s.write_waiting(lba=64, lun=lun) for lun in (0, 1)]


def give(s, waiting, byte=b"t"):
    command, r2t = waiting
    s.send(s.data_out(command, r2t.ttt, 0, 0, byte * 4096))


def ended(s, waiting):
    """Swept away without an answer: late data finds nobody."""
    give(s, waiting)
    s.fence()


def told(s, waiting):
    """Swept away by another: TASK ABORTED, after the F of its data."""
    give(s, waiting)
    assert s.answer(waiting[0]).status == TASK_ABORTED


def lives(s, waiting):
    give(s, waiting)
    assert s.answer(waiting[0]).status == GOOD


def attentions(s, lun=0):
    return s.make_ready(lun)


def nothing_written(rig):
    for lun in (0, 1):
        s = rig.session(ready=False)
        s.make_ready(lun)
        assert not any(s.do(read10(64, 8), read=4096, lun=lun).is_good().data), "written after its abort was answered"


@case("RFC 7143, 11.6.1: ABORT TASK of a task that waits: 0, and no response for it any more")
def abort_task(rig):
    s = rig.session(*SOLICITED)
    for immediate in (True, False):
        waiting = s.write_waiting(lba=64)
        assert s.task(ABORT_TASK, waiting[0], immediate=immediate) == 0
        ended(s, waiting)
    assert s.do(READY).status == GOOD
    nothing_written(rig)


@case("case 28: late Data-Out of an aborted write, and one half sent: nothing lands on the medium after the answer")
def late_data_of_an_aborted_write(rig):
    s = rig.session(*SOLICITED)
    command, r2t = s.write_waiting(lba=64)
    s.send(s.data_out(command, r2t.ttt, 0, 0, b"h" * 2048, final=False))
    assert s.task(ABORT_TASK, command) == 0
    s.send(s.data_out(command, r2t.ttt, 1, 2048, b"h" * 2048))
    s.fence()
    again = s.command(write10(64, 8), F | W, 4096, itt=command.itt)
    s.send(again)
    s.send(s.data_out(again, s.receive(R2T).ttt, 0, 0, bytes(4096)))
    s.answer(again).is_good()
    give(s, (command, r2t))
    s.fence_or_reject()
    nothing_written(rig)


@case("RFC 7143, 11.6.1: a command that has not come, RefCmdSN in the window: 0, and its CmdSN counts as received")
def abort_of_a_command_that_has_not_come(rig):
    s = rig.session()
    lost = s.command(write10(64, 8), F | W, 4096, b"l" * 4096)
    behind = s.command(READY)
    s.send(behind)
    s.fence()
    assert s.task(ABORT_TASK, lost) == 0
    assert s.answer(behind).status == GOOD, "what waited for it goes on"
    s.send(lost)
    s.fence()
    nothing_written(rig)


@case("case 27; RFC 7143, 11.6.1: RefCmdSN outside the window: 1, also for a task that is just finished")
def abort_of_no_task(rig):
    s = rig.session()
    finished = s.command(READY)
    s.send(finished)
    s.answer(finished)
    assert s.task(ABORT_TASK, finished) == 1
    for cmdsn in (s.cmdsn - 1, s.cmdsn + s.window + 5, s.cmdsn + (1 << 30), s.cmdsn):
        assert s.task(ABORT_TASK, ref_itt=0x7777, ref_cmdsn=cmdsn) == 1, cmdsn - s.cmdsn
    p = s.request(NOP_OUT, F, immediate=True)
    assert s.task(ABORT_TASK, ref_itt=p.itt, ref_cmdsn=s.cmdsn) == 1, "its own kind is no task"


@case("case 26; RFC 7143, 11.6.1: a LUN that is not there: 2; a function nobody knows, and CLEAR ACA: 5; TASK REASSIGN: 4; the session goes on")
def functions_that_cannot_be(rig):
    s = rig.session()
    for function in (ABORT_TASK, ABORT_TASK_SET, CLEAR_TASK_SET, LUN_RESET):
        assert s.task(function, lun=77) == 2, function
    for function, response in ((CLEAR_ACA, 5), (TASK_REASSIGN, 4), (0, 5), (9, 5), (14, 5), (0x7F, 5)):
        assert s.task(function) == response, function
    s.fence()
    waiting = s.write_waiting(lba=64)
    assert [s.task(ABORT_TASK, waiting[0]) for _ in range(4)] == [0, 1, 1, 1], "the same abort four times"
    assert s.do(READY).status == GOOD


@case("RFC 7143, 4.2.3, 11.5.1: ABORT TASK SET: the issuer's tasks on that LUN, nobody else's")
def abort_task_set(rig):
    s, other = rig.session(*SOLICITED), rig.session(*SOLICITED)
    mine, theirs = two(s), two(other)
    assert s.task(ABORT_TASK_SET) == 0
    ended(s, mine[0])
    s.make_ready(1)
    lives(other, theirs[0])
    give(s, mine[1], b"\0")
    assert s.answer(mine[1][0]).status == GOOD
    assert attentions(s) == [] and attentions(other) == []
    rig.write(64, bytes(4096))


@case("RFC 7143, 11.5.1; SAM-5: CLEAR TASK SET: everybody's on that LUN; others get TASK ABORTED and UNIT ATTENTION 2F/00, the issuer does not")
def clear_task_set(rig):
    s, other, idle = rig.session(*SOLICITED), rig.session(*SOLICITED), rig.session()
    mine, theirs = two(s), two(other)
    assert s.task(CLEAR_TASK_SET) == 0
    ended(s, mine[0])
    told(other, theirs[0])
    assert attentions(s) == [] and attentions(idle) == []
    assert attentions(other) == ["6/2F/00"]
    for x, waiting in ((s, mine[1]), (other, theirs[1])):
        give(x, waiting, b"\0")
        assert x.answer(waiting[0]).status in (GOOD, CHECK)
    nothing_written(rig)


@case("RFC 7143, 11.5.1, 4.2.7: LOGICAL UNIT RESET: all tasks of the LUN; a unit attention for each name and ISID, once")
def lun_reset(rig):
    s, other = rig.session(*SOLICITED), rig.session(*SOLICITED)
    sister = rig.session(name=other.name)
    for x in (s, other, sister):
        x.make_ready(1)
    mine, theirs = two(s), two(other)
    assert s.task(LUN_RESET) == 0
    ended(s, mine[0])
    told(other, theirs[0])
    for x in (other, sister):
        seen = attentions(x)
        assert len(seen) == 1 and seen[0].startswith("6/29/"), seen
        assert attentions(x, 1) == [], "the other LUN was not reset"
        assert attentions(x) == []
    give(s, mine[1], b"\0")
    assert s.answer(mine[1][0]).status == GOOD
    give(other, theirs[1], b"\0")
    assert other.answer(theirs[1][0]).status == GOOD
    nothing_written(rig)


@case("RFC 7143, 11.5.1: TARGET WARM RESET: all tasks of all LUNs; sessions stay")
def target_warm_reset(rig):
    s, other = rig.session(*SOLICITED), rig.session(*SOLICITED)
    for x in (s, other):
        x.make_ready(1)
    mine, theirs = two(s), two(other)
    assert s.task(WARM_RESET) == 0
    for waiting in mine:
        ended(s, waiting)
    for waiting in theirs:
        told(other, waiting)
    for lun in (0, 1):
        assert [a[:4] for a in attentions(other, lun)] == ["6/29"]
    s.fence()
    nothing_written(rig)


@case("RFC 7143, 11.5.1: TARGET COLD RESET ends all sessions of the target, the issuer's after the answer")
def target_cold_reset(rig):
    s, other = rig.session(*SOLICITED), rig.session(*SOLICITED)
    mine, theirs = two(s), two(other)
    assert s.task(COLD_RESET) == 0
    assert s.closed() and other.closed()
    nothing_written(rig)


@case("RFC 7143, 4.2.3.2: tasks sent after the request are not covered by it; those behind a gap, in front of it, are")
def what_a_request_covers(rig):
    s = rig.session(*SOLICITED)
    early, gap = s.write_waiting(lba=64), s.command(READY)
    reset = s.request(TASK, F | ABORT_TASK_SET, ref_itt=NO_TAG)
    late = s.command(write10(64, 8), F | W, 4096)
    s.send(late, reset)
    s.fence()
    s.send(gap)
    got = {}
    while R2T not in got or TASK_RESPONSE not in got:
        p = s.receive(TASK_RESPONSE, R2T, RESPONSE)
        assert p.opcode != RESPONSE or (p.itt == gap.itt and TASK_RESPONSE not in got), "a covered task is answered after the request"
        got[p.opcode] = p
    assert got[TASK_RESPONSE].response == 0
    ended(s, early)
    give(s, (late, got[R2T]), b"\0")
    assert s.answer(late).status == GOOD
    nothing_written(rig)


@case("RFC 7143, 4.2.3.3: an immediate request that covers many waits for commands in front of it that have not come, and covers them")
def commands_in_front_that_come_later(rig):
    for function in (ABORT_TASK_SET, CLEAR_TASK_SET, LUN_RESET):
        s = rig.session(*SOLICITED)
        waiting = s.write_waiting(lba=64)
        first, second = s.command(write10(64, 8), F | W, 4096), s.command(write10(64, 8), F | W, 4096)
        request = s.request(TASK, F | function, immediate=True, ref_itt=NO_TAG)
        s.send(second, request)
        s.fence()
        behind = s.command(READY)
        s.send(behind)
        assert s.task(ABORT_TASK, waiting[0]) == 0, "one that names its task waits for nobody"
        s.send(first)
        seen = set()
        while TASK_RESPONSE not in seen or RESPONSE not in seen:
            p = s.receive(R2T, TASK_RESPONSE, RESPONSE)
            assert p.opcode != RESPONSE or p.itt == behind.itt
            assert p.opcode != R2T or TASK_RESPONSE not in seen, "a covered task goes on after the response"
            seen.add(p.opcode)
        s.make_ready()
    nothing_written(rig)


main()
