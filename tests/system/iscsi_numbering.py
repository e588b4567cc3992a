"""Sequence numbers with raw PDUs (RFC 7143, 4.2.2): iscsi_numbering.py ADDRESS TARGET PID [digests]

StatSN and MaxCmdSN are checked with each PDU that arrives, in all themes: iscsi_initiator.py:check_numbers."""
from iscsi_initiator import *


@case("case 19; RFC 7143, 4.2.2.1: below the window, above it, or twice: ignored, and nothing is said")
def cmdsn_outside_the_window(rig):
    s = rig.session()
    for cmdsn in (s.cmdsn - 1, s.cmdsn - 2, s.cmdsn + s.window, s.cmdsn + s.window + 1, s.cmdsn + (1 << 30), s.cmdsn - (1 << 30)):
        s.send(s.command(READY, cmdsn=cmdsn & 0xFFFFFFFF), s.command(write10(0, 8), F | W, 4096, b"o" * 4096, cmdsn=cmdsn & 0xFFFFFFFF))
    s.fence()
    last = s.command(READY, cmdsn=s.cmdsn + 1)
    s.send(last, last)
    s.fence()
    first = s.command(READY)
    s.send(first)
    assert s.answer(first).status == s.answer(last).status == GOOD
    s.cmdsn += 1
    s.fence()
    assert s.do(READY).status == GOOD
    assert b"o" not in rig.read(0, 8)


@case("case 19; RFC 7143, 4.2.2.1: over a gap commands wait, and run in the order of CmdSN when it is filled")
def a_gap_is_waited_for(rig):
    s = rig.session("InitialR2T=No")
    commands = [s.command(READY) for _ in range(4)]
    write = s.command(write10(0, 1), F | W, 512, b"2" * 512)
    for n in (3, 1, 2):
        s.send(commands[n])
        s.fence()
    s.send(write)
    assert not any(rig.read(0, 1)), "a command over the gap was run"
    s.fence()
    s.send(commands[0])
    for command in commands:
        assert s.answer(command).status == GOOD
    s.answer(write).is_good()
    assert rig.read(0, 1) == b"2" * 512
    rig.write(0, bytes(512))


@case("RFC 7143, 4.2.2.1: serial arithmetic over the wrap, for CmdSN and StatSN")
def numbers_wrap(rig):
    s = rig.connect()
    s.cmdsn = 0xFFFFFFF0
    s.login_send(["InitiatorName=" + s.name, "TargetName=" + rig.target, *rig.digest_keys(())], expstatsn=0xFFFFFFF8)
    p = s.login_answer()
    assert p.login_status == 0 and p.statsn == 0xFFFFFFF8
    s.make_ready()
    for n in range(40):
        assert s.do(read10(0, 8), read=4096).is_good().pdus[-1].expcmdsn == s.cmdsn & 0xFFFFFFFF
    assert s.cmdsn > 1 << 32 and s.statsn < 100
    gap = s.command(READY), s.command(READY)
    s.send(gap[1], s.command(READY, cmdsn=0xFFFFFFFF), s.command(READY, cmdsn=(s.cmdsn - 3) & 0xFFFFFFFF))
    s.fence()
    s.send(gap[0])
    assert [s.answer(g).status for g in gap] == [GOOD, GOOD]


@case("RFC 7143, 4.2.2.1: immediate requests do not advance CmdSN")
def immediate_requests(rig):
    s = rig.session()
    for _ in range(5):
        assert s.do(READY, immediate=True).is_good().pdus[-1].expcmdsn == s.cmdsn
        s.fence()
    p = s.request(NOP_OUT, F, b"counted", ttt=NO_TAG)
    s.send(p)
    assert s.receive(NOP_IN).expcmdsn == p.cmdsn + 1


@case("RFC 7143, 4.2.2.1: while the window is full, an immediate ping and an immediate task management request are taken; case 7, no BUSY")
def a_full_window(rig):
    s = rig.session("InitialR2T=Yes", "ImmediateData=No")
    writes = [s.write_waiting(lba=n)[0] for n in range(s.window)]
    assert s.maxcmdsn == s.expcmdsn - 1
    beyond = s.command(READY)
    s.send(beyond)
    s.fence()
    assert s.do(READY, immediate=True).status == GOOD
    for command in writes:
        assert s.task(ABORT_TASK, command) == 0
    s.fence()
    assert s.maxcmdsn == s.expcmdsn - 1 + s.window
    s.send(beyond)
    assert s.answer(beyond).status == GOOD


@case("RFC 7143, 11.4.11: a window that opens while nothing is being sent is told of by a NOP-In, with no tag to answer")
def a_window_that_opens_in_silence(rig):
    s = rig.session("InitialR2T=Yes", "ImmediateData=No")
    for n in range(s.window):
        command, r2t = s.write_waiting(lba=n)
    assert s.maxcmdsn == s.expcmdsn - 1
    assert s.task(ABORT_TASK, command) == 0
    assert s.maxcmdsn == s.expcmdsn, "there is room for one"
    assert all(p.ttt == NO_TAG for p in s.unasked), s.unasked
    assert s.do(READY).status == GOOD


@case("RFC 7143, 4.2.2.2, 11.8.3, 11.19.2: StatSN advances by responses, status, rejects; not by R2T, Data-In or pings of the target")
def what_takes_a_statsn(rig):
    s = rig.session("MaxRecvDataSegmentLength=512", "MaxOutstandingR2T=1", "InitialR2T=Yes", "ImmediateData=No")
    start = s.statsn
    s.do(read10(0, 8), read=4096).is_good()
    assert s.statsn == start + 1, "eight Data-In, one with status"
    s.do(write10(0, 8), write=bytes(4096)).is_good()
    assert s.statsn == start + 2, "an R2T, and the response"
    assert s.task(ABORT_TASK, ref_itt=NO_TAG - 1, ref_cmdsn=s.cmdsn - 5) == 1
    s.fence()
    assert s.text("X=1").opcode == REJECT
    assert s.statsn == start + 5, "task management, ping, reject"
    command, r2t = s.write_waiting()
    assert r2t.statsn == start + 5
    s.send(s.data_out(command, r2t.ttt, 0, 0, bytes(4096)))
    s.answer(command).is_good()
    assert s.logout() == 0 and s.statsn == start + 7


@case("RFC 7143, 11.2.1.8, 11.17.1: an Initiator Task Tag in use is rejected, and the task goes on")
def a_tag_in_use(rig):
    s = rig.session("InitialR2T=Yes", "ImmediateData=No")
    command, r2t = s.write_waiting()
    s.send(s.command(READY, itt=command.itt))
    s.rejected(7, 4)
    s.send(s.data_out(command, r2t.ttt, 0, 0, bytes(4096)))
    s.answer(command).is_good()
    s.cmdsn -= 1
    assert s.do(READY).status == GOOD, "what was rejected did not count"


main()
