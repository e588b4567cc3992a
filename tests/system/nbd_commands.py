"""Commands in transmission, raw: nbd_commands.py ADDRESS PID [simple|structured|extended] [tls]

Exports: v, at least 132 MiB; ro, read-only."""
import select

from nbd_client import *

K = 1024
KEPT = int(os.environ.get("KEPT", "0"))  # bytes at the end that are left for a job to work on
RANGED = (READ, WRITE, TRIM, CACHE, ZEROES)


def least(c):
    """The minimum block size."""
    other = c.rig.connect()
    return other.info(None, INFO_BLOCK_SIZE)[INFO_BLOCK_SIZE][0]


def most(c):
    other = c.rig.connect()
    return other.info(None, INFO_BLOCK_SIZE)[INFO_BLOCK_SIZE][2]


def lengths_of(c):
    """What the header's length can say."""
    return 1 << (64 if c.mode == EXTENDED else 32)


def attempt(c, type, offset, length, flags=0):
    """A command with the payload that belongs to it."""
    return c.do(type, offset, data=bytes(length), flags=flags) if type == WRITE else c.do(type, offset, length, flags)


@case("READ: what was written comes back, at any length up to the maximum, from any place")
def reads(rig):
    c = rig.session()
    data = pattern(3 * MIB, 11)
    c.write(MIB, data)
    for offset, length in ((0, 512), (0, 3 * MIB), (512, 512), (4096 - 512, 1024), (100 * K, 65536), (65536, 2 * MIB - 512), (3 * MIB - 512, 512)):
        assert c.read(MIB + offset, length) == data[offset:offset + length], (offset, length)


@case("READ of 32 MiB, the maximum payload, and WRITE of as much")
def longest_payloads(rig):
    c = rig.session()
    size = min(most(c), PAYLOAD_MAX)
    assert size >= MIB
    data = pattern(MIB, 12) * (size // MIB)
    c.write(8 * MIB, data)
    assert c.read(8 * MIB, size) == data
    c.in_step()


@case("READ: of its own shape in each mode: simple header and data; chunks that cover all; hence also the last byte of the export")
def reads_at_the_end(rig):
    c = rig.session()
    block = least(c)
    data = pattern(4096, 13)
    c.write(c.size - 4096, data)
    for length in {block, 512, 4096}:
        answer = c.do(READ, c.size - length, length).ok()
        assert answer.data == data[-length:]
        assert answer.is_simple == (c.mode == SIMPLE)


@case("READ out of range: EINVAL, also where offset and length wrap; structured if that was agreed; no data; in step")
def reads_out_of_range(rig):
    c = rig.session()
    for offset, length in ((c.size, 512), (c.size - 512, 1024), (c.size + 512, 512), (0, c.size + 512), (1 << 62, 512), ((1 << 64) - 512, 512),
                           ((1 << 64) - 512, 1024), (1 << 63, 512), ((1 << 64) - 65536, 131072)):
        answer = c.do(READ, offset, length).failed(EINVAL, EOVERFLOW)
        assert answer.is_simple == (c.mode == SIMPLE) and not answer.parts
    c.in_step()


@case("READ longer than the maximum payload, up to all its field can say: EINVAL or EOVERFLOW, and nothing is held; fault 9")
def reads_too_long(rig):
    c = rig.session()
    before = rig.resident()
    for length in (most(c) + 512, 33 * MIB, 64 * MIB, 128 * MIB, 1 << 31, (1 << 32) - 512, (1 << 40), (1 << 63), (1 << 64) - 512):
        if length < lengths_of(c):
            c.do(READ, 0, length).failed(EINVAL, EOVERFLOW)
    out = [c.submit(READ, n * 512, min(lengths_of(c) - 512, 4 << 30)) for n in range(64)]
    c.send(*(bytes for _, bytes in out))
    for cookie, _ in out:
        c.answer(cookie).failed(EINVAL, EOVERFLOW)
    assert rig.resident() - before < 64 * MIB, rig.resident() - before
    c.in_step()


@case("READ with DF: one content chunk, 64 KiB at least; without structured replies DF is a wrong flag")
def reads_in_one_chunk(rig):
    c = rig.session()
    data = pattern(256 * K, 14)
    c.write(0, data)
    for length in (512, 4096, 65536, 128 * K, 256 * K):
        answer = c.do(READ, 0, length, DF)
        if c.mode == SIMPLE:
            answer.failed(EINVAL)
        elif length <= 65536 or answer.error != EOVERFLOW:
            assert answer.ok().data == data[:length]
    c.in_step()


@case("READ over what was never written, or given back: zeroes, as data or as holes that cover it; DF: as data")
def reads_of_holes(rig):
    c = rig.session()
    c.do(ZEROES, 16 * MIB, 4 * MIB).ok()
    data = pattern(64 * K, 15)
    c.write(17 * MIB, data)
    want = bytes(MIB) + data + bytes(3 * MIB - 64 * K)
    assert c.read(16 * MIB, 4 * MIB) == want
    assert c.read(17 * MIB - 512, 65536 + 1024) == bytes(512) + data + bytes(512)
    if c.mode != SIMPLE:
        assert c.do(READ, 17 * MIB - 512, 65536, DF).ok().data == bytes(512) + data[:65536 - 512]


@case("a length of 0: answered, nothing done, in step")
def nothing_at_all(rig):
    c = rig.session()
    for type in RANGED + (STATUS,):
        for offset in (0, 4096, c.size):
            answer = c.do(type, offset, 0)
            assert answer.error in (0, EINVAL, ENOSPC), answer
    c.in_step()


@case("WRITE: every byte lands, none beside it; another connection sees it once it is answered")
def writes(rig):
    c, other = rig.session(), rig.session()
    shadow = bytearray(pattern(MIB, 16))
    c.write(0, bytes(shadow))
    rng = random.Random(17)
    for n in range(40):
        offset, length = rng.randrange(0, 1500) * 512, rng.choice((512, 1024, 4096, 7 * 512, 65536, 200 * 512))
        data = rng.randbytes(length)
        c.write(offset, data, FUA if n % 5 == 0 else 0)
        shadow[offset:offset + length] = data
        assert other.read(offset, length) == data
    assert other.read(0, MIB) == shadow


@case("requests that are not multiples of 512: served exactly, or, if the minimum that is told allows it, EINVAL and nothing changes")
def odd_requests(rig):
    c = rig.session()
    block = least(c)
    shadow = bytearray(pattern(64 * K, 18))
    c.write(0, bytes(shadow))
    for type, offset, length in ((READ, 1, 512), (READ, 0, 511), (READ, 1234, 4567), (WRITE, 1, 512), (WRITE, 0, 1), (WRITE, 511, 2), (WRITE, 4095, 2),
                                 (WRITE, 3, 8190), (ZEROES, 1, 1), (ZEROES, 4000, 200), (ZEROES, 511, 9000), (TRIM, 1, 1), (TRIM, 511, 9001), (READ, 65535, 1)):
        data = pattern(length, offset)
        answer = c.do(type, offset, data=data) if type == WRITE else c.do(type, offset, length)
        if answer.error and (offset % block or length % block):
            answer.failed(EINVAL)
            assert c.read(0, 64 * K) == shadow, (type, offset, length)
            continue
        answer.ok()
        if type == READ:
            assert answer.data == shadow[offset:offset + length]
        elif type == TRIM:
            shadow[offset:offset + length] = c.read(offset, length)
        else:
            shadow[offset:offset + length] = data if type == WRITE else bytes(length)
        assert c.read(0, 64 * K) == shadow, (type, offset, length)
    assert c.read(0, 64 * K) == shadow


@case("WRITE out of range: ENOSPC, its payload consumed, nothing written")
def writes_out_of_range(rig):
    c = rig.session()
    tail = pattern(4096, 19)
    c.write(c.size - 4096, tail)
    for offset, length in ((c.size, 512), (c.size - 512, 1024), (c.size - 512, MIB), (1 << 62, 4096), ((1 << 64) - 512, 512), ((1 << 64) - 512, 4096)):
        for flags in (0, FUA):
            c.do(WRITE, offset, data=b"\xee" * length, flags=flags).failed(ENOSPC, EINVAL if offset >= 1 << 63 else ENOSPC)
    assert c.read(c.size - 4096, 4096) == tail
    c.in_step()


@case("case 32: a read-only export: EPERM for WRITE, TRIM and ZEROES, payloads consumed, nothing changes; READ and FLUSH work")
def read_only(rig):
    c = rig.session(name="ro")
    before = c.read(0, 65536)
    for _ in range(3):
        for type in (WRITE, TRIM, ZEROES):
            for offset, length in ((0, 512), (0, 65536), (65536, MIB)):
                attempt(c, type, offset, length).failed(EPERM)
    c.do(FLUSH).ok()
    assert c.read(0, 65536) == before


@case("WRITE longer than the maximum payload: an error with the payload consumed, or the end; nothing is held; fault 9")
def writes_too_long(rig):
    before = rig.resident()
    c = rig.session()
    longest = most(c)
    try:
        c.do(WRITE, 0, data=bytes(longest + 512)).failed(EINVAL, EOVERFLOW, ENOSPC)
        c.in_step()
    except (EOFError, ConnectionError, ssl.SSLError):
        pass
    for length in (MIB << 10, (4 << 30) - 512, 1 << 40, (1 << 63) - 512):
        c = rig.session()
        if length < lengths_of(c):
            c.send(c.header(WRITE, 0, length, PAYLOAD_LEN if c.mode == EXTENDED else 0, 7))
            try:
                c.send(bytes(MIB))
            except (ConnectionError, ssl.SSLError):
                pass
    assert rig.resident() - before < 128 * MIB, rig.resident() - before


@case("TCP_NODELAY: requests one after the other are answered without the delays of 40 ms of a socket that waits for more")
def no_delays(rig):
    c = rig.session()
    data = pattern(4096, 94)
    took = []
    for n in range(40):
        start = time.monotonic()
        c.write(n * 4096, data)
        c.read(n * 4096, 4096)
        took.append(time.monotonic() - start)
    assert sorted(took)[20] < 0.035, "%.0f ms for a write and a read" % (sorted(took)[20] * 1000)


@case("a payload in small pieces, with others' requests between")
def payload_in_pieces(rig):
    c, other = rig.session(), rig.session()
    data = pattern(20000 // 512 * 512, 20)
    cookie, out = c.submit(WRITE, 4096, data=data)
    rng = random.Random(21)
    at = 0
    while at < len(out):
        n = rng.choice((1, 2, 27, 28, 29, 33, 500, 4096))
        c.send(out[at:at + n])
        at += n
        if rng.randrange(8) == 0:
            other.read(0, 512)
    c.answer(cookie).ok()
    assert other.read(4096, len(data)) == data


@case("DISC, fault 5: no reply; what came before is finished and answered; then the connection is closed, at once")
def disconnects(rig):
    for pending in (0, 1, 40):
        c = rig.session()
        data = pattern(4096, 22 + pending)
        out = [c.submit(READ, n * 65536, 65536) for n in range(pending)] + [c.submit(WRITE, MIB * 12 + n * 4096, data=data) for n in range(pending)]
        start = time.monotonic()
        c.send(*(bytes for _, bytes in out), c.header(DISC))
        for cookie, _ in out:
            c.answer(cookie).ok()
        assert c.closed(3) and time.monotonic() - start < 3
        if pending:
            assert rig.read(MIB * 12, 4096) == data
    c = rig.session()
    c.send(c.header(DISC, 5, 7, FUA, 9), b"more")
    assert c.closed(3)


@case("FLUSH: with nothing written, after writes, with FUA; length and offset ignored or refused")
def flushes(rig):
    c = rig.session()
    for flags in (0, FUA):
        c.do(FLUSH, flags=flags).ok()
        c.write(0, pattern(4096, 23))
        c.do(FLUSH, flags=flags).ok()
    for offset, length in ((512, 0), (0, 512), ((1 << 64) - 1, (1 << 32) - 1)):
        assert c.do(FLUSH, offset, length).error in (0, EINVAL)
    out = [c.submit(WRITE, n * 4096, data=bytes(4096)) for n in range(30)] + [c.submit(FLUSH) for _ in range(10)]
    c.send(*(bytes for _, bytes in out))
    for cookie, _ in out:
        c.answer(cookie).ok()


@case("cases 18, 19: TRIM: nothing outside it is touched, at the start, at edges, for less than a block; then it can be written again")
def trims(rig):
    c = rig.session()
    size = 2 * MIB
    data = pattern(size, 24)
    for offset, length in ((0, 512), (512, 512), (4096 - 512, 1024), (0, 4096), (65536, 65536), (65536 - 512, 131072 + 1024), (300 * 512, 3000 * 512),
                           (MIB, MIB), (0, size)):
        for flags in (FUA if length < 65536 else 0,):
            c.write(0, data)
            c.do(TRIM, offset, length, flags).ok()
            back = c.read(0, size)
            assert back[:offset] == data[:offset] and back[offset + length:] == data[offset + length:], (offset, length)
            inside = back[offset:offset + length]
            assert all(inside[n:n + 512] in (data[offset + n:offset + n + 512], bytes(512)) for n in range(0, length, 512)), "neither old nor zero"
    c.write(0, data)
    assert c.read(0, size) == data


@case("case 20: TRIM of what is empty, of all the export, twice")
def trims_of_nothing(rig):
    c = rig.session()
    c.write(40 * MIB, pattern(4096, 25))
    top = min(c.size, lengths_of(c) - 512) - KEPT
    for _ in range(2):
        c.do(TRIM, 32 * MIB, 64 * MIB).ok()
        c.do(TRIM, 0, top).ok()
    c.write(0, pattern(4096, 26))
    assert c.read(0, 4096) == pattern(4096, 26)


@case("TRIM and CACHE out of range: EINVAL; ZEROES: ENOSPC; nothing is done, also where offset and length wrap")
def others_out_of_range(rig):
    c = rig.session()
    head, tail = pattern(4096, 27), pattern(4096, 28)
    c.write(0, head)
    c.write(c.size - 4096, tail)
    for offset, length in ((c.size, 512), (c.size - 512, 1024), (1 << 62, 512), ((1 << 64) - 512, 512), ((1 << 64) - 512, 1024), ((1 << 64) - 4096, 8192),
                           (0, c.size + 512), (512, c.size)):
        c.do(TRIM, offset, length).failed(EINVAL)
        c.do(ZEROES, offset, length).failed(ENOSPC, EINVAL if offset >= 1 << 63 else ENOSPC)
        c.do(CACHE, offset, length).failed(EINVAL)
    if c.mode == EXTENDED:
        for length in (1 << 32, 1 << 40, 1 << 63, (1 << 64) - 512):
            c.do(TRIM, 512, length).failed(EINVAL)
            c.do(ZEROES, 512, length).failed(ENOSPC, EINVAL)
    assert c.read(0, 4096) == head and c.read(c.size - 4096, 4096) == tail


@case("CACHE: advisory: no data, nothing changes; if it is not offered, EINVAL or success, and the connection goes on")
def caches(rig):
    c = rig.session()
    data = pattern(MIB, 29)
    c.write(0, data)
    for offset, length in ((0, 512), (0, MIB), (0, 64 * MIB), (4096, 12288), (0, min(c.size, lengths_of(c) - 512))):
        answer = c.do(CACHE, offset, length)
        assert answer.error in ((0,) if c.flags & SEND_CACHE else (0, EINVAL)), answer
    assert c.read(0, MIB) == data


@case("ZEROES: reads back zero, nothing outside is touched, with any of its flags")
def zeroes(rig):
    c = rig.session()
    size = MIB
    data = pattern(size, 30)
    for offset, length in ((0, 512), (512, 512), (4096 - 512, 1024), (65536, 65536), (65536 - 512, 131072 + 1024), (300 * 512, 1000 * 512), (0, size)):
        for flags in (0, FUA | NO_HOLE) if length < 65536 else (FUA, NO_HOLE):
            c.write(0, data)
            c.do(ZEROES, offset, length, flags).ok()
            assert c.read(0, size) == data[:offset] + bytes(length) + data[offset + length:], (offset, length, flags)


@case("fault 6: ZEROES and TRIM longer than the maximum payload, and than 64 MiB: all of it")
def long_zeroes(rig):
    c = rig.session()
    mark = pattern(4096, 31)
    places = [n * MIB for n in (0, 31, 32, 33, 63, 64, 65, 96, 127)]
    for flags in (0, NO_HOLE):
        for place in places + [128 * MIB]:
            c.write(place, mark)
        c.do(ZEROES, 0, 128 * MIB, flags).ok()
        assert all(not any(c.read(place, 4096)) for place in places), "not all is zero"
        assert c.read(128 * MIB, 4096) == mark
    c.do(TRIM, 0, 128 * MIB).ok()
    assert c.read(128 * MIB, 4096) == mark


@case("fault 3: ZEROES with FAST_ZERO: EINVAL if it is not offered; else done, or ENOTSUP and nothing changed, quickly")
def fast_zeroes(rig):
    c = rig.session()
    data = pattern(MIB, 32)
    for flags in (FAST_ZERO, FAST_ZERO | NO_HOLE, FAST_ZERO | FUA):
        for offset, length in ((0, MIB), (512, 1024), (0, 64 * MIB)):
            c.write(0, data)
            start = time.monotonic()
            answer = c.do(ZEROES, offset, length, flags)
            if not c.flags & SEND_FAST_ZERO:
                answer.failed(EINVAL)
            assert answer.error in (0, ENOTSUP, EINVAL) and time.monotonic() - start < 2, answer
            end = min(offset + length, MIB)
            assert c.read(0, MIB) == (data if answer.error else data[:offset] + bytes(end - offset) + data[end:]), (flags, offset, length)
    c.do(ZEROES, 0, 64 * MIB).ok()


@case("STATUS without a context: EINVAL; in step")
def status_without_context(rig):
    c = rig.session()
    for flags in (0, REQ_ONE):
        c.do(STATUS, 0, 4096, flags).failed(EINVAL)
    c.in_step()


@case("RESIZE and commands nobody knows: EINVAL, the connection goes on")
def unknown_commands(rig):
    c = rig.session()
    for type in (RESIZE, 9, 10, 77, 0xFF, 0x100, 0xFFFF):
        for offset, length in ((0, 0), (0, 512), (c.size, 4096), ((1 << 64) - 1, (1 << 32) - 1)):
            c.do(type, offset, length).failed(EINVAL)
    assert rig.session().size == c.size
    c.in_step()


@case("an unknown or misplaced flag: EINVAL, payload consumed, nothing done")
def flags_that_cannot_be(rig):
    c = rig.session()
    allowed = {READ: FUA, WRITE: FUA, FLUSH: FUA, TRIM: FUA, CACHE: FUA, ZEROES: FUA | NO_HOLE}
    if c.mode != SIMPLE:
        allowed[READ] |= DF
    if c.flags & SEND_FAST_ZERO:
        allowed[ZEROES] |= FAST_ZERO
    keep = pattern(4096, 33)
    c.write(0, keep)
    for type, legal in allowed.items():
        for bit in range(16):
            flag = 1 << bit
            if flag & legal or (c.mode == EXTENDED and flag == PAYLOAD_LEN):
                continue
            attempt(c, type, 0, 512, flag).failed(EINVAL)
            attempt(c, type, 0, 512, flag | FUA).failed(EINVAL)
    assert c.read(0, 4096) == keep
    c.in_step()


@case("FUA is accepted with every command")
def fua_everywhere(rig):
    c = rig.session()
    for type in (READ, WRITE, FLUSH, TRIM, ZEROES):
        attempt(c, type, *((0, 0) if type == FLUSH else (0, 4096)), FUA).ok()
    assert c.do(CACHE, 0, 4096, FUA).error in (0, EINVAL)


@case("what is no request where one should be, also of the other header's kind: the connection is closed")
def wrong_magic(rig):
    for junk in (bytes(32), b"\xff" * 32, struct.pack(">IHHQQQ", SIMPLE_REPLY, 0, 0, 1, 0, 512)):
        c = rig.session()
        assert c.refused(junk)
    c = rig.session()
    c.mode = SIMPLE if c.mode == EXTENDED else EXTENDED
    assert c.refused(c.header(READ, 0, 512), bytes(64))
    c = rig.session()
    cookie, out = c.submit(READ, 0, 4096)
    c.send(out, bytes(32))
    try:
        c.answer(cookie)
    except (EOFError, ConnectionError, ssl.SSLError):
        pass
    assert c.closed()


@case("cookies are opaque: any 64 bits, the same one again when it is free")
def cookies(rig):
    c = rig.session()
    for cookie in (0, 1, (1 << 64) - 1, 1 << 63, 0x2560951367446698, 5, 5, 5):
        c.do(READ, 0, 512, cookie=cookie).ok()
        c.do(WRITE, 0, data=bytes(512), cookie=cookie).ok()
        c.do(READ, c.size, 512, cookie=cookie).failed(EINVAL)


@case("order: a thousand requests of all kinds in flight: each is answered once, reads see what was answered before they were sent")
def many_in_flight(rig):
    c = rig.session()
    rng = random.Random(34)
    c.write(0, bytes(4 * MIB))
    held = [bytes(16384)] * 250
    for _ in range(2):
        out, want, written = [], {}, {}
        for n in range(250):
            place, kind = n * 16384, rng.randrange(5)
            data = rng.randbytes(rng.choice((512, 4096, 16384)))
            cookie, bytes_out = (c.submit(WRITE, place, data=data), c.submit(READ, place, 16384), c.submit(ZEROES, place, 16384), c.submit(FLUSH),
                                 c.submit(READ, c.size, 512))[kind]
            out.append((cookie, bytes_out))
            want[cookie] = held[n] if kind == 1 else None
            if kind in (0, 2):
                written[n] = data + held[n][len(data):] if kind == 0 else bytes(16384)
        c.waiting = {cookie: c.waiting[cookie] for cookie, _ in out}
        c.send(*(bytes_out for _, bytes_out in out))
        for cookie, _ in out:
            answer = c.answer(cookie)
            if answer.request.offset == c.size:
                answer.failed(EINVAL)
            else:
                answer.ok()
                assert want[cookie] is None or answer.data == want[cookie], "a read at %d saw other bytes" % answer.request.offset
        held = [written.get(n, held[n]) for n in range(250)]
    assert c.read(0, 4000 * K) == b"".join(held)


@case("case 29: overlapping writes in flight: each block is one of them, whole, and the same for all who read it afterwards")
def overlapping_writes(rig):
    c, other = rig.session(), rig.session()
    out = [c.submit(WRITE, 0, data=bytes([n + 1]) * 65536) for n in range(20)]
    c.send(*(bytes for _, bytes in out))
    more = [other.submit(WRITE, 512 * n, data=bytes([n + 101]) * 65536) for n in range(20)]
    other.send(*(bytes for _, bytes in more))
    for cookie, _ in out:
        c.answer(cookie).ok()
    for cookie, _ in more:
        other.answer(cookie).ok()
    first = c.read(0, 128 * K)
    for n in range(0, 75264, 512):
        assert len(set(first[n:n + 512])) == 1 and first[n], "block %d is a mixture" % (n // 512)
    assert other.read(0, 128 * K) == first and rig.read(0, 128 * K) == first


@case("CAN_MULTI_CONN: a write answered on one connection is read on all; a flush on one covers it")
def several_connections(rig):
    clients = [rig.session() for _ in range(4)]
    assert all(c.flags & CAN_MULTI_CONN for c in clients)
    for n in range(12):
        writer, flusher, reader = (clients[(n + k) % 4] for k in range(3))
        data = pattern(65536, 40 + n)
        writer.write(n * 65536, data, FUA if n % 3 == 0 else 0)
        flusher.do(FLUSH).ok()
        assert reader.read(n * 65536, 65536) == data


@case("error chunks and replies carry errors the document knows; with structured replies a text for people")
def error_texts(rig):
    c = rig.session()
    for answer in (c.do(READ, c.size, 512), c.do(WRITE, c.size, data=bytes(512)), c.do(77), c.do(READ, 0, 512, 0x8000)):
        assert answer.error in (EINVAL, ENOSPC)
        assert c.mode == SIMPLE or answer.text, answer


@case("extended headers: PAYLOAD_LEN on a command that takes no payload: EINVAL, the payload consumed; in compact headers a wrong flag")
def payload_where_none_belongs(rig):
    c = rig.session()
    if c.mode != EXTENDED:
        for type in (READ, FLUSH, TRIM, ZEROES):
            c.do(type, 0, 0 if type == FLUSH else 512, PAYLOAD_LEN).failed(EINVAL)
        c.do(WRITE, 0, data=bytes(512), flags=PAYLOAD_LEN).failed(EINVAL)
    else:
        for type in (READ, FLUSH, TRIM, CACHE, ZEROES, RESIZE, 77):
            for payload in (b"x" * 8, b"x" * 4096, b"x" * 100000):
                c.do(type, 0, data=payload).failed(EINVAL)
    c.in_step()


@case("extended headers: WRITE without PAYLOAD_LEN: EINVAL or the end, never data taken for requests")
def write_without_payload_flag(rig):
    c = rig.session()
    if c.mode != EXTENDED:
        return
    c.write(0, bytes(512))
    cookie, out = c.submit(WRITE, 0, 512)
    c.send(out)
    try:
        if not select.select([c.socket], [], [], 0.5)[0]:
            c.send(bytes(512))  # it waits for them, and that is no harm either
        c.answer(cookie)
        c.in_step()
    except (EOFError, ConnectionError, ssl.SSLError):
        pass
    assert not any(rig.read(0, 512))


main()
