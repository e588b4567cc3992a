"""Full feature phase with raw PDUs: text, pings, logout, reject, cuts (RFC 7143, 11.9 to 11.19): iscsi_session.py ADDRESS TARGET PID [digests]"""
from iscsi_initiator import *

SOLICITED = ("InitialR2T=Yes", "ImmediateData=No")


@case("RFC 7143, 11.15: logout with reason 0 or 1: 0 and the end; an unknown CID: 1; for recovery: 2; another reason: no end")
def logout(rig):
    for reason in (0, 1):
        s = rig.session()
        assert s.logout(reason) == 0 and s.closed()
    s = rig.session()
    assert s.logout(1, cid=9) == 1 and s.logout(2) == 2
    s.fence()
    assert s.logout(77) != 0
    s.fence()
    s.send(s.request(LOGOUT, F, cid=0))
    assert s.receive(LOGOUT_RESPONSE).response == 0 and s.closed(), "by its turn"


@case("case 29: logout while a write waits for its data, and behind commands: 0, and FIN; nothing of the write lands")
def logout_with_a_write_pending(rig):
    s = rig.session(*SOLICITED)
    command, r2t = s.write_waiting(64)
    s.send(s.data_out(command, r2t.ttt, 0, 0, b"p" * 2048, final=False))
    start = time.monotonic()
    assert s.logout() == 0
    assert s.closed() and time.monotonic() - start < 1
    assert not any(rig.read(64, 8))


@case("RFC 7143, 11.17.1: an opcode nobody knows: Reject 05h with its header, and the session goes on")
def opcodes_nobody_knows(rig):
    s = rig.session()
    for opcode in [*range(0x07, 0x10), *range(0x11, 0x40)]:
        for data in (b"", b"rubbish"):
            p = s.request(opcode, F, data, immediate=True)
            s.send(p)
            reject = s.rejected(5)
            assert reject.data[:4] == p.bhs[:4] and reject.data[16:48] == p.bhs[16:48]
    s.fence()
    assert s.do(READY).status == GOOD


@case("RFC 7143, 11.16, 11.17.1: SNACK at error recovery level 0 is rejected, and the session goes on")
def snack(rig):
    s = rig.session()
    for kind in range(4):
        s.send(s.request(SNACK, F | kind, immediate=True, ttt=NO_TAG))
        s.rejected(3)
    s.fence()


@case("RFC 7143, 7.7: a segment longer than declared is a format error: the end")
def a_segment_longer_than_declared(rig):
    s = rig.session()
    s.send(s.request(NOP_OUT, F, immediate=True, ttt=NO_TAG), length=0xFFFFFF)
    assert s.closed()


@case("RFC 7143, 11.18, 11.19: a ping's data comes back, within the initiator's segment; no answer to ITT ffffffffh")
def pings(rig):
    s = rig.session("MaxRecvDataSegmentLength=512")
    for n in (0, 1, 511, 512, 513, 8192, 65536):
        p = s.request(NOP_OUT, F, random.Random(n).randbytes(n), immediate=n % 2 == 0, ttt=NO_TAG)
        s.send(p)
        answer = s.receive(NOP_IN)
        assert answer.itt == p.itt and answer.ttt == NO_TAG and answer.data == p.data[:512], (n, answer)
    for _ in range(10):
        s.send(s.request(NOP_OUT, F, b"x" * 100, immediate=True, itt=NO_TAG, ttt=NO_TAG))
    s.fence()


@case("RFC 7143, appendix C: SendTargets in a normal session: empty and All tell of its own target, another is refused")
def send_targets_in_a_normal_session(rig):
    s = rig.session()
    for value in ("", "All", rig.target):
        p = s.text("SendTargets=" + value)
        pairs = p.pairs
        assert p.flags == F and p.ttt == NO_TAG and pairs[0] == ("TargetName", rig.target), p
        assert [k for k, _ in pairs].count("TargetName") == 1 and ("TargetAddress", rig.address + ",1") in pairs
        assert ("TargetAddress", "[2001:db8::1]:3260,1") in pairs, "IPv6 in brackets, with the tag"
    assert s.text("SendTargets=iqn.2026-01.org.example:more-1").opcode == REJECT
    assert s.text("SendTargets=iqn.2026-01.org.example:none").opcode == REJECT
    s.fence()


@case("RFC 7143, appendix C, 13.8: discovery: all targets in one PDU if they fit, one target, none that there is not; empty is refused")
def send_targets_in_discovery(rig):
    s = rig.discovery("MaxRecvDataSegmentLength=262144")
    p = s.text("SendTargets=All")
    assert p.flags == F and p.ttt == NO_TAG
    names = [v for k, v in p.pairs if k == "TargetName"]
    assert len(names) == 21 and rig.target in names
    assert all(v.endswith(",1") for k, v in p.pairs if k == "TargetAddress")
    assert [v for k, v in s.text("SendTargets=" + names[3]).pairs if k == "TargetName"] == names[3:4]
    p = s.text("SendTargets=iqn.2026-01.org.example:none")
    assert p.opcode == REJECT or p.data == b""
    assert s.text("SendTargets=").opcode == REJECT


@case("case 42; RFC 7143, 11.10.4, 11.11: a list longer than the initiator's segment: several answers, F=0 with a tag; a stale tag is refused")
def send_targets_in_many_answers(rig):
    s = rig.discovery("MaxRecvDataSegmentLength=512")
    p, data, tags = s.text("SendTargets=All"), b"", []
    while not p.flags & F:
        assert p.ttt != NO_TAG and p.flags & C and 0 < len(p.data) <= 512, p
        data += p.data
        tags.append(p.ttt)
        p = s.text(ttt=p.ttt)
        assert p.opcode == TEXT_RESPONSE, p
    assert p.ttt == NO_TAG
    data += p.data
    names = [x for x in data.split(b"\0") if x.startswith(b"TargetName=")]
    assert len(names) == 21 and len(tags) > 2
    assert s.text(ttt=tags[-1]).opcode == REJECT, "a stale tag"
    p = s.text("SendTargets=All")
    assert not p.flags & F and s.text("SendTargets=All").data == p.data, "a new request ends an answer that is not fetched"


@case("case 2; RFC 7143, 11.10: a text request with C=1 and no data: an empty answer with a tag; requests in parts")
def text_in_parts(rig):
    s = rig.discovery("MaxRecvDataSegmentLength=65536")
    p = s.text(flags=C)
    assert p.opcode == TEXT_RESPONSE and p.data == b"" and not p.flags & (F | C) and p.ttt != NO_TAG, p
    for flags, part in ((C, b"SendTar"), (C, b""), (C, b"gets=A"), (F, b"ll\0")):
        p = s.text(flags=flags, data=part, ttt=p.ttt)
        assert p.opcode == TEXT_RESPONSE, p
        assert (p.data == b"") == (flags == C)
    assert len([k for k, _ in p.pairs if k == "TargetName"]) == 21
    assert s.text(flags=F | C).opcode == REJECT
    for _ in range(12):
        p = s.text(flags=C, data=b"X" * 8192, ttt=p.ttt if p.opcode == TEXT_RESPONSE else NO_TAG)
        if p.opcode == REJECT:
            break
    assert p.opcode == REJECT, "more than 64 KiB"
    assert s.text("SendTargets=All").opcode == TEXT_RESPONSE


@case("RFC 7143, 6.2, 13: keys of a text request: the segment may be declared anew, login keys are refused, unknown ones NotUnderstood")
def text_keys(rig):
    s = rig.session("MaxRecvDataSegmentLength=65536")
    p = s.text("MaxRecvDataSegmentLength=512", "MaxBurstLength=512", "X-org.example=1", "InitiatorAlias=a")
    assert p.opcode == TEXT_RESPONSE and p.keys["MaxBurstLength"] == "Reject" and p.keys["X-org.example"] == "NotUnderstood", p
    s.segment = 512
    s.do(read10(0, 16), read=8192).is_good()
    assert s.text("SendTargetsPlease=All").opcode == REJECT, "libiscsi drops the connection for any other answer"
    assert s.text("SendTargets=", "SendTargets=").opcode in (REJECT, TEXT_RESPONSE)
    s.fence()


@case("case 20: 32 reads of 1 MiB at once, in segments of 8,192 bytes")
def many_large_reads(rig):
    if rig.digests:
        return  # a checksum of 32 MiB takes Python a minute, and shows nothing more
    s = rig.session("MaxRecvDataSegmentLength=8192")
    commands = [s.command(read10(n * 64, 2048), F | R, 1 << 20) for n in range(s.window)]
    s.send(*commands)
    left, got = {c.itt: c for c in commands}, dict.fromkeys((c.itt for c in commands), 0)
    while left:
        p = s.receive(DATA_IN)
        assert p.offset == got[p.itt]
        got[p.itt] += len(p.data)
        if p.flags & S:
            assert p.status == GOOD and got[p.itt] == 1 << 20
            del left[p.itt]


@case("cases 43 and 6: the connection is reset with 32 commands in flight, again and again")
def resets_with_commands_in_flight(rig):
    for n in range(60):
        s = rig.session(*SOLICITED, ready=n % 3 == 0)
        s.send(*[s.command(read10(i * 8, 128), F | R, 65536) if i % 4 else s.command(write10(64, 8), F | W, 4096) for i in range(s.window)])
        if n % 2:
            s.receive()
        s.reset()
        rig.connections.remove(s)


@case("case 16: a session is reinstated while its writes wait; the new one begins with a unit attention, and works")
def reinstatement(rig):
    s = rig.session(*SOLICITED)
    waiting = [s.write_waiting(64) for _ in range(8)]
    again = rig.connect(name=s.name, isid=s.isid)
    assert again.login(rig.digest_keys(())).login_status == 0
    assert s.closed()
    seen = again.make_ready()
    assert len(seen) >= 1 and all(a.startswith("6/") for a in seen), seen
    assert not any(again.do(read10(64, 8), read=4096).is_good().data)


@case("cases 35, 36 and 39: RESERVE(6) ends with its session; type 8 keeps out who is not registered, by name and ISID")
def reservations_and_sessions(rig):
    holder, other = rig.session(), rig.session()
    assert holder.do(cdb(0x16)).status == GOOD
    assert other.do(read10(0, 8), read=4096).status == CONFLICT
    assert holder.logout() == 0 and holder.closed()
    assert other.do(read10(0, 8), read=4096).status == GOOD
    holder = rig.session()
    assert holder.do(cdb(0x16)).status == GOOD
    holder.reset()
    rig.connections.remove(holder)
    end = time.monotonic() + 5
    while other.do(read10(0, 8), read=4096).status == CONFLICT:
        assert time.monotonic() < end
    holder = rig.session()
    assert holder.do(cdb(0x5F, 0, 0, 0, 0, 0, 0, 0, 24), write=struct.pack(">QQ8x", 0, 5)).status == GOOD
    assert holder.do(cdb(0x5F, 1, 8, 0, 0, 0, 0, 0, 24), write=struct.pack(">QQ8x", 5, 0)).status == GOOD
    for command, how in ((read10(0, 8), {"read": 4096}), (write10(64, 8), {"write": bytes(4096)}), (cdb(0x35), {})):
        assert other.do(command, **how).status == CONFLICT, command.hex()
    assert rig.session(name=holder.name).do(read10(0, 8), read=4096).status == CONFLICT, "another ISID is another nexus"
    assert holder.do(cdb(0x5F, 3, 0, 0, 0, 0, 0, 0, 24), write=struct.pack(">QQ8x", 5, 0)).status == GOOD
    other.make_ready()
    assert other.do(read10(0, 8), read=4096).status == GOOD


@case("case 40: READ CAPACITY(16) says LBPME with UNMAP offered, 512-byte blocks; Block Limits has 3Ch bytes and both UNMAP limits")
def what_discarding_initiators_look_at(rig):
    s = rig.session()
    data = s.do(cdb(0x9E, 0x10, *bytes(11), 32), read=32).is_good().data
    assert data[14] & 0x80 and struct.unpack(">I", data[8:12])[0] == 512
    page = s.do(inquiry(64, 0xB0), read=64).is_good().data
    assert page[1:4] == b"\xB0\0\x3C" and all(struct.unpack(">II", page[20:28])) and page[5] >= 1
    page = s.do(inquiry(8, 0xB2), read=8).is_good().data
    assert page[5] & 0x80 and page[6] & 7 in (1, 2)


def write_atomic(lba, blocks, boundary=0):
    return cdb(*struct.pack(">BBQHHB", 0x9C, 0, lba, boundary, blocks, 0))


@case("WRITE ATOMIC(16): LUN 1, with a journal, promises one block; LUN 0, with parity and without, promises none and has no such command")
def writes_that_are_whole(rig):
    s = rig.session()
    s.make_ready(1)
    for lun, limit in ((0, 0), (1, 1)):
        page = s.do(inquiry(64, 0xB0), read=64, lun=lun).is_good().data
        assert struct.unpack(">5I", page[44:64]) == (limit, limit, 0, 0, 0), (lun, page[44:64].hex())
        supported = s.do(cdb(0xA3, 0x0C, 1, 0x9C, 0, 0, 0, 0, 0, 20), read=20, lun=lun).data
        assert supported[1] & 7 == (3 if limit else 1), (lun, supported.hex())
    s.do(write_atomic(0, 1), write=bytes(BLOCK)).failed("5/20/00")
    data = os.urandom(BLOCK)
    s.do(write_atomic(7, 1), write=data, lun=1).is_good()
    assert s.do(read10(7, 1), read=BLOCK, lun=1).is_good().data == data
    s.do(write_atomic(7, 0), lun=1).is_good()
    s.do(write_atomic(7, 2), write=bytes(2 * BLOCK), lun=1).failed("5/24/00")
    s.do(write_atomic(7, 1, boundary=1), write=bytes(BLOCK), lun=1).failed("5/24/00")
    s.do(write_atomic(1 << 40, 1), write=bytes(BLOCK), lun=1).failed("5/21/00")
    assert s.do(read10(7, 1), read=BLOCK, lun=1).is_good().data == data


def mapped(session, lun):
    """Units of 2^n blocks (VPD page B2) that are in use: log page 0C."""
    data = session.do(cdb(0x4D, 0, 0x4C, 0, 0, 0, 0, 0, 64), read=64, lun=lun).data
    assert struct.unpack(">HBB", data[16:20]) == (2, 3, 8), data.hex()
    return int.from_bytes(data[20:24], "big")


def select_threshold(session, flags, count, lun):
    page = bytes([0x5C, 2, 0, 20]) + bytes(12) + struct.pack(">BBHI", flags, 2, 0, count)
    session.do(cdb(0x15, 0x10, 0, 0, 28), write=bytes(4) + page, lun=lun).is_good()


@case("38/07 once, when so much is in use as mode page 1C/02 says; the write is good")
def soft_threshold(rig):
    s, other = rig.session(), rig.session()
    s.make_ready(1)
    other.make_ready(1)
    assert s.do(inquiry(8, 0xB2), read=8, lun=1).is_good().data[4] == 11
    s.do(cdb(0x42, 0, 0, 0, 0, 0, 0, 0, 24), write=struct.pack(">HHIQII", 22, 16, 0, 32768, 8192, 0), lun=1).is_good()
    used = mapped(s, 1)
    select_threshold(s, 0x81, used + 2, 1)
    assert other.do(READY, lun=1).asc == "6/2A/01"
    for lba in range(32768, 32768 + 8192, 2048):
        s.do(write10(lba, 2048), write=os.urandom(2048 * BLOCK), lun=1).is_good()
    assert mapped(s, 1) == used + 4, (used, mapped(s, 1))
    end = time.monotonic() + 10
    while (answer := s.do(READY, lun=1)).status == GOOD:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert answer.asc == "6/38/07" and other.do(READY, lun=1).asc == "6/38/07"
    s.do(READY, lun=1).is_good()
    select_threshold(s, 0x09, 0, 1)


main()
