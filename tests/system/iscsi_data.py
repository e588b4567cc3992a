"""Commands and their data with raw PDUs (RFC 7143, 11.3, 11.4, 11.7, 11.8, 13.10 to 13.19): iscsi_data.py ADDRESS TARGET PID [digests]"""
from iscsi_initiator import *

SOLICITED = ("InitialR2T=Yes", "ImmediateData=No")


def pattern(n, seed=1):
    return random.Random(seed).randbytes(n)


def untouched(rig, lba=0, blocks=64):
    assert not any(rig.read(lba, blocks)), "something was written"


def zero(rig, lba=0, blocks=64):
    rig.write(lba, bytes(blocks * BLOCK))


@case("case 21; RFC 7143, 11.7.1, 13.19: F at the end of every MaxBurstLength; no segment too long; DataSN through the command")
def data_in_sequences(rig):
    data = pattern(65536)
    rig.write(0, data)
    for segment, burst in ((4096, 16384), (16384, 16384), (8192, 20480), (65536, 262144), (512, 512), (3000, 5000)):
        s = rig.session("MaxRecvDataSegmentLength=%d" % segment, "MaxBurstLength=%d" % burst)
        answer = s.do(read10(0, 128), read=65536).is_good()
        assert answer.data == data
        offset = 0
        for n, p in enumerate(answer.pdus):
            assert p.opcode == DATA_IN and p.datasn == n and p.offset == offset and 0 < len(p.data) <= segment, p
            assert offset // burst == (offset + len(p.data) - 1) // burst, "a PDU over the end of a sequence"
            offset += len(p.data)
            assert bool(p.flags & F) == (offset % burst == 0 or offset == 65536), "F at %d" % offset
            assert bool(p.flags & S) == (offset == 65536)
    zero(rig, 0, 128)


@case("RFC 7143, 11.7.3, 11.4.7: status in Data-In for GOOD only, with F; sense always, its length in front; ExpDataSN")
def status_and_sense(rig):
    s = rig.session()
    answer = s.do(read10(0, 8), read=4096).is_good()
    assert answer.pdus[-1].opcode == DATA_IN and answer.pdus[-1].flags & (F | S) == F | S
    answer = s.do(read10(1 << 30, 8), read=4096).failed("5/21/00", (UNDERFLOW, 4096))
    assert answer.pdus[-1].opcode == RESPONSE and answer.pdus[-1].datasn == 0 and len(answer.sense) >= 18
    answer = s.do(cdb(0xFF)).failed("5/20/00", (0, 0))
    answer = s.do(write10(0, 8), write=bytes(4096)).is_good()


@case("RFC 7143, 13.10, 11.4.7.2: Data-Out unasked for, though InitialR2T=Yes: 0B/0C/0C after its F, nothing stored")
def unsolicited_data_that_were_not_agreed(rig):
    s = rig.session("InitialR2T=Yes", "ImmediateData=Yes")
    command = s.command(write10(0, 16), W, 8192)
    s.send(command, s.data_out(command, NO_TAG, 0, 0, b"u" * 4096, final=False), s.data_out(command, NO_TAG, 1, 4096, b"u" * 4096))
    s.answer(command).failed("B/0C/0C")
    command, r2t = s.write_waiting(0, 16)
    s.send(s.data_out(command, NO_TAG, 0, 0, b"u" * 4096))
    s.rejected(9, 4)
    s.send(s.data_out(command, r2t.ttt, 0, 0, b"u" * 8192))
    s.answer(command).failed("B/0C/0C")
    s.fence()
    untouched(rig)


@case("RFC 7143, 13.11: immediate data, though ImmediateData=No: 0B/0C/0C, nothing stored")
def immediate_data_that_were_not_agreed(rig):
    s = rig.session("ImmediateData=No", "InitialR2T=No")
    command = s.command(write10(0, 8), F | W, 4096, b"i" * 4096)
    s.send(command)
    s.answer(command).failed("B/0C/0C")
    command = s.command(read10(0, 8), F | R, 4096, b"i" * 512)
    s.send(command)
    s.answer(command).failed("B/0C/0C")
    untouched(rig)


@case("case 24; RFC 7143, 13.14, 11.4.7.2: immediate and unsolicited data together beyond FirstBurstLength")
def more_than_the_first_burst(rig):
    for immediate, parts in ((0, [4096, 4096]), (2048, [2048, 2048]), (4096, [4096]), (8192, []), (4608, [])):
        s = rig.session("InitialR2T=No", "FirstBurstLength=4096")
        command = s.command(write10(0, 16), (0 if parts else F) | W, 8192, b"f" * immediate)
        s.send(command)
        offset = immediate
        for n, part in enumerate(parts):
            s.send(s.data_out(command, NO_TAG, n, offset, b"f" * part, final=n == len(parts) - 1))
            offset += part
        while True:
            p = s.receive(RESPONSE, REJECT)
            if p.opcode == RESPONSE:
                break
        assert p.status == CHECK and p.data[2 + 12] == 0x0C and p.data[2 + 13] in (0x0C, 0x0D), (immediate, parts, p)
        s.fence()
    untouched(rig)


@case("RFC 7143, 4.2.4, 11.3.4: immediate and unsolicited data in any portions that are allowed, the rest by R2T")
def unsolicited_data_in_portions(rig):
    data = pattern(16384, 5)
    for immediate, parts, first in ((0, [4096], 4096), (1000, [3096], 4096), (1024, [1, 1023, 2048], 4096), (4096, [], 4096),
                                    (0, [0, 512, 0, 3584], 4096), (500, [], 4096), (8192, [8192], 65536), (0, [100], 4096)):
        s = rig.session("InitialR2T=No", "FirstBurstLength=%d" % first)
        command = s.command(write10(0, 32), (0 if parts else F) | W, 16384, data[:immediate])
        s.send(command)
        offset = immediate
        for n, part in enumerate(parts):
            s.send(s.data_out(command, NO_TAG, n, offset, data[offset:offset + part], final=n == len(parts) - 1))
            offset += part
        answer = s.finish(command, data).is_good()
        assert rig.read(0, 32) == data, (immediate, parts)
        zero(rig)


@case("RFC 7143, 11.8, 13.13, 13.17: R2Ts with a tag each, R2TSN of the command, 1 to MaxBurstLength bytes, at most MaxOutstandingR2T")
def r2ts(rig):
    data = pattern(65536, 9)
    for outstanding, burst in ((1, 16384), (3, 16384), (4, 512), (8, 10000), (1, 65536)):
        s = rig.session(*SOLICITED, "MaxBurstLength=%d" % burst, "MaxOutstandingR2T=%d" % outstanding)
        command = s.command(write10(0, 128), F | W, 65536)
        s.send(command)
        waiting, tags, asked, sn = [], set(), 0, 0
        while True:
            while len(waiting) < outstanding and asked < 65536:
                p = s.receive(R2T)
                assert p.ttt != NO_TAG and p.ttt not in tags and p.r2tsn == sn and p.offset == asked and 1 <= p.desired <= burst, p
                tags.add(p.ttt)
                waiting.append(p)
                asked, sn = asked + p.desired, sn + 1
            if not waiting:
                break
            s.fence()
            p = waiting.pop(0)
            s.send(s.data_out(command, p.ttt, 0, p.offset, data[p.offset:p.offset + p.desired]))
        assert s.answer(command).is_good().pdus[-1].datasn == sn, "ExpDataSN counts the R2Ts"
        assert rig.read(0, 128) == data
    zero(rig, 0, 128)


@case("case 4; RFC 7143, 11.7.4, 11.7.5: a tag, an offset or a length that was not asked for; before a byte is taken")
def data_out_that_was_not_asked_for(rig):
    def wrong(offset, size):
        s = rig.session(*SOLICITED, "MaxBurstLength=4096")
        command, r2t = s.write_waiting(0, 16)
        s.send(s.data_out(command, r2t.ttt, 0, offset, b"w" * size))
        s.rejected(9, 4)
        assert s.answer(command).status == CHECK
        s.fence()
    for offset, size in ((512, 4096), (4096, 4096), (0, 8192), (1 << 20, 512), (0xFFFFF000, 4096), (0, 65536)):
        wrong(offset, size)
    s = rig.session(*SOLICITED)
    command, r2t = s.write_waiting(0, 16)
    s.send(s.data_out(command, r2t.ttt + 77, 0, 0, b"w" * 512, final=False))
    s.rejected(9, 4)
    s.send(s.data_out(command, r2t.ttt, 0, 0, bytes(8192)))
    s.answer(command).is_good()
    s.send(s.data_out(command, r2t.ttt, 0, 0, b"w" * 4096), pdu(DATA_OUT, F, b"w" * 512, itt=4242, ttt=1))
    s.fence_or_reject()
    untouched(rig)


@case("case 22; RFC 7143, 4.2.2.4, 11.7.5, 7.9: DataSN begins at 0 for each R2T; a gap costs the command, not the session")
def data_sn_of_data_out(rig):
    for numbers in ([1], [0, 2], [0, 0], [5]):
        s = rig.session(*SOLICITED)
        command, r2t = s.write_waiting(0, 16)
        for n, number in enumerate(numbers):
            s.send(s.data_out(command, r2t.ttt, number, n * 4096, b"n" * 4096, final=n == len(numbers) - 1))
        s.rejected(4)
        s.answer(command).failed("B/47/05")
        s.fence()
    s = rig.session(*SOLICITED, "MaxBurstLength=4096")
    command, r2t = s.write_waiting(0, 16)
    s.send(s.data_out(command, r2t.ttt, 0, 0, b"n" * 4096))
    second = s.receive(R2T)
    s.send(s.data_out(command, second.ttt, 1, 4096, b"n" * 4096))
    s.rejected(4)
    s.answer(command).failed("B/47/05")
    untouched(rig)


@case("RFC 7143, 11.7.1: F before the data that was asked for is complete: 0B/0C/0D")
def too_little_data(rig):
    s = rig.session(*SOLICITED)
    command, r2t = s.write_waiting(0, 16)
    s.send(s.data_out(command, r2t.ttt, 0, 0, b"l" * 4096))
    s.answer(command).failed("B/0C/0D")
    s.fence()
    untouched(rig)


@case("case 3; RFC 7143, 11.7.7: Data-Out of no bytes is taken, with F and without")
def data_out_without_data(rig):
    s = rig.session(*SOLICITED)
    command, r2t = s.write_waiting(0, 16)
    data = pattern(8192, 3)
    parts = [(0, b""), (0, data[:4096]), (4096, b""), (4096, data[4096:]), (8192, b"")]
    for n, (offset, part) in enumerate(parts):
        s.send(s.data_out(command, r2t.ttt, n, offset, part, final=n == len(parts) - 1))
    s.answer(command).is_good()
    assert rig.read(0, 16) == data
    zero(rig)
    command, r2t = s.write_waiting(0, 16)
    s.send(s.data_out(command, r2t.ttt, 0, 0, b""))
    s.answer(command).failed("B/0C/0D")


@case("case 41: a write in pieces of 2,848 and 6,368 bytes, and other splits")
def odd_splits(rig):
    for sizes in ((2848, 6368), (1, 9215), (4095, 1, 5120), (3, 3, 3, 9207), (9216,), (512,) * 18):
        data = pattern(9216, sum(sizes) + len(sizes))
        s = rig.session(*SOLICITED)
        command, r2t = s.write_waiting(3, 18)
        offset = 0
        for n, size in enumerate(sizes):
            s.send(s.data_out(command, r2t.ttt, n, offset, data[offset:offset + size], final=n == len(sizes) - 1))
            offset += size
        s.answer(command).is_good()
        assert rig.read(3, 18) == data, sizes
    zero(rig)


@case("RFC 7143, 11.4.5: residuals are between EDTL and what SCSI presents, both ways; with CHECK CONDITION too")
def residuals(rig):
    s = rig.session()
    for command, read, residual in ((read10(0, 8), 8192, (UNDERFLOW, 4096)), (read10(0, 16), 4096, (OVERFLOW, 4096)),
                                    (inquiry(36), 255, (UNDERFLOW, 219)), (inquiry(5), 36, (UNDERFLOW, 31)), (READY, 512, (UNDERFLOW, 512)),
                                    (cdb(0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 16), 64, (UNDERFLOW, 48)), (read10(0, 0), 512, (UNDERFLOW, 512)),
                                    (cdb(0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32), 20, (OVERFLOW, 12))):
        answer = s.do(command, read=read)
        assert answer.status == GOOD and answer.residual == residual, (command.hex(), answer)
    data = pattern(8192, 8)
    assert s.do(write10(0, 8), write=data, edtl=8192).is_good((UNDERFLOW, 4096))
    assert rig.read(0, 16) == data[:4096] + bytes(4096)
    zero(rig)
    assert s.do(write10(0, 16), write=data[:4096], edtl=4096).residual == (OVERFLOW, 4096)
    assert rig.read(0, 16)[4096:] == bytes(4096), "beyond what came nothing is written"
    zero(rig)
    s.do(read10(1 << 30, 8), read=4096).failed("5/21/00", (UNDERFLOW, 4096))
    s.do(write10(1 << 30, 8), write=bytes(4096)).failed("5/21/00", (UNDERFLOW, 4096))
    s.do(READY, write=b"x" * 512, edtl=512).is_good((UNDERFLOW, 512))


@case("case 23: EDTL 0, and a CDB that writes 1 MiB or reads: no data, an overflow, and nothing is written")
def edtl_of_zero(rig):
    s = rig.session()
    for flags in (F, F | W, F | R):
        command = s.command(write10(0, 2048), flags, 0)
        s.send(command)
        answer = s.finish(command)
        assert answer.residual == (OVERFLOW, 1 << 20), (flags, answer)
    for flags in (F, F | R):
        command = s.command(read10(0, 8), flags, 0)
        s.send(command)
        assert s.finish(command).is_good((OVERFLOW, 4096)).data == b""
    untouched(rig)


@case("RFC 7143, 11.4.2, 11.17.1: who fails while data is due answers after its F")
def a_failure_while_data_is_due(rig):
    s = rig.session("InitialR2T=No")
    command = s.command(write10(1 << 30, 16), W, 8192)
    s.send(command)
    s.fence()
    s.send(s.data_out(command, NO_TAG, 0, 0, b"d" * 4096, final=False))
    s.fence()
    s.send(s.data_out(command, NO_TAG, 1, 4096, b"d" * 4096))
    s.answer(command).failed("5/21/00")
    command = s.command(cdb(0xC0), W, 8192)
    s.send(command, s.data_out(command, NO_TAG, 0, 0, b"d" * 8192))
    s.answer(command).failed("5/20/00")
    s.fence()


@case("case 25; digests over data and padding, none for no data; RFC 7143, 13.1")
def digests_over_odd_lengths(rig):
    for keys in (("DataDigest=CRC32C",), ("HeaderDigest=CRC32C", "DataDigest=None"), ("HeaderDigest=CRC32C", "DataDigest=CRC32C")):
        s = rig.session(*keys)
        for length in (0, 1, 5, 36, 37, 38, 39, 64, 255):
            answer = s.do(inquiry(length), read=255)
            assert answer.status == GOOD and len(answer.data) == min(length, answer.data[4] + 5 if len(answer.data) > 4 else length), answer
        for n in (0, 1, 2, 3, 4, 71, 72, 73, 4095):
            p = s.request(NOP_OUT, F, pattern(n), immediate=True, ttt=NO_TAG)
            s.send(p)
            assert s.receive(NOP_IN).data == p.data
        s.do(cdb(0xFF)).failed("5/20/00")
        data = pattern(4096, 4)
        s.do(write10(0, 8), write=data).is_good()
        command, parts = s.command(write10(0, 8), F | W, 4096), (1, 1001, 3094)
        s.send(command)
        ttt, offset = s.receive(R2T).ttt, 0
        for n, part in enumerate(parts):
            s.send(s.data_out(command, ttt, n, offset, data[offset:offset + part], final=n == 2))
            offset += part
        s.answer(command).is_good()
        assert s.do(read10(0, 8), read=4096).is_good().data == data
    zero(rig)


@case("RFC 7143, 7.8: a wrong header digest: the connection ends")
def a_wrong_header_digest(rig):
    s = rig.session("HeaderDigest=CRC32C")
    s.send(s.command(write10(0, 8), F | W, 4096, b"h" * 4096), spoil="header")
    assert s.closed()
    untouched(rig)


@case("RFC 7143, 7.8, 11.17.1: a wrong data digest: Reject 02h, the command ends with 0B/47/05 after its last data, the session goes on")
def a_wrong_data_digest(rig):
    s = rig.session("DataDigest=CRC32C", "InitialR2T=No", "FirstBurstLength=8192")
    command = s.command(write10(0, 8), F | W, 4096, b"g" * 4096)
    s.send(command, spoil="data")
    s.rejected(2)
    s.answer(command).failed("B/47/05")
    command = s.command(write10(0, 16), W, 8192)
    s.send(command)
    s.send(s.data_out(command, NO_TAG, 0, 0, b"g" * 4096, final=False), spoil="data")
    s.rejected(2)
    s.fence()
    s.send(s.data_out(command, NO_TAG, 1, 4096, b"g" * 4096))
    s.answer(command).failed("B/47/05")
    command = s.command(write10(0, 32), F | W, 16384)
    s.send(command)
    r2t = s.receive(R2T)
    s.send(s.data_out(command, r2t.ttt, 0, 0, b"g" * 8192, final=False), spoil="data")
    s.rejected(2)
    s.fence()
    s.send(s.data_out(command, r2t.ttt, 1, 8192, b"g" * 8192))
    s.answer(command).failed("B/47/05")
    s.send(s.request(NOP_OUT, F, b"ping", immediate=True, ttt=NO_TAG), spoil="data")
    s.rejected(2)
    s.send(s.request(TEXT, F, b"SendTargets=\0", immediate=True, ttt=NO_TAG), spoil="data")
    s.rejected(2)
    p = s.request(NOP_OUT, F, b"ping", ttt=NO_TAG)
    s.send(p, spoil="data")
    s.rejected(2)
    s.send(p)
    assert s.receive(NOP_IN).itt == p.itt, "its CmdSN is free: it is sent again"
    assert s.do(READY).status == GOOD
    untouched(rig)


@case("RFC 7143, 11.2.2, 13.1: additional header segments are covered by the header digest; a CDB longer than 16 bytes is none we know")
def additional_header_segments(rig):
    for digest in ("None", "CRC32C"):
        s = rig.session("HeaderDigest=" + digest)
        command = s.command(cdb(0x7F, 0, 0, 0, 0, 0, 0, 0x18, 0, 9), F | R, 512)
        command.ahs = struct.pack(">HBB", 17, 1, 0) + bytes(16)
        s.send(command)
        s.answer(command).failed("5/20/00")
        for ahs in (struct.pack(">HBB", 0xFFFF, 1, 0), struct.pack(">HBB", 5, 9, 0) + bytes(4), bytes(1020)):
            command = s.command(READY, immediate=True)
            command.ahs = ahs
            s.send(command)
            s.rejected(9, 4)
        s.fence()


@case("case 7: immediate data at a depth that no pool holds: all is taken, in order, and nobody is told to come later")
def immediate_data_at_depth(rig):
    s = rig.session("FirstBurstLength=8192", "InitialR2T=Yes")
    commands = []
    for n in range(s.window):
        commands.append(s.command(write10(n * 16, 16), F | W, 8192, bytes([n + 1]) * 8192))
    s.send(*commands)
    answers = {}
    while len(answers) < len(commands):
        p = s.receive(RESPONSE)
        answers[p.itt] = p.status
    assert set(answers.values()) == {GOOD}, answers
    assert rig.read(16, 1) == b"\2" * 512
    zero(rig, 0, 16 * s.window)


@case("RFC 7143, 11.3.1, 11.17.1: bidirectional commands are not supported, and the session goes on")
def both_directions(rig):
    s = rig.session()
    s.send(s.command(cdb(0x53), F | R | W, 512, immediate=True))
    s.rejected(5, 4, 9)
    s.fence()


main()
