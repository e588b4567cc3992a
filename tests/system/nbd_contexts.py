"""Meta contexts and BLOCK_STATUS, raw: nbd_contexts.py ADDRESS PID structured|extended [tls]

Exports: v, at least 144 MiB; secret."""
from nbd_client import *

FOREIGN = ("qemu:allocation-depth", "qemu:dirty-bitmap:b", "x-other:thing", "nosuch:", "a:b:c")


def status(c, offset, length, flags=0, name=ALLOCATION):
    """Extents of one context."""
    return c.do(STATUS, offset, length, flags).ok().extents[c.contexts[name]]


def walk(c, offset, length, name=ALLOCATION):
    """Ask until all is covered: (offset, length, status), in order, without a gap."""
    found, at = [], offset
    while at < offset + length:
        for size, value in status(c, at, offset + length - at, name=name):
            found.append((at, size, value))
            at += size
    return found


def filtered(c, offset, effect, ids, cookie=None):
    """BLOCK_STATUS with a payload: of these contexts only."""
    data = struct.pack(">Q%dI" % len(ids), effect, *ids)
    return c.do(STATUS, offset, data=data, contexts=ids, effect=effect)


def own_contexts(c):
    return [name for name in c.list_meta("v") if name != ALLOCATION]


@case("LIST_META_CONTEXT: no query lists all, among them base:allocation; the wildcard base: works")
def list_contexts(rig):
    c = rig.connect()
    for negotiated in (False, True):
        every = c.list_meta("v")
        assert ALLOCATION in every and len(set(every)) == len(every), every
        assert not [name for name in every if name.split(":")[0] not in ("base", "x-corbel")], every
        assert c.list_meta("v", "base:") == [ALLOCATION] == c.list_meta("v", ALLOCATION)
        assert set(c.list_meta("v", "base:", "x-corbel:")) == set(every)
        assert set(c.list_meta("v", *every)) == set(every)
        if not negotiated:
            c.negotiate(rig.mode)


@case("LIST and SET_META_CONTEXT: namespaces and leaves nobody knows are ignored")
def foreign_contexts(rig):
    c = rig.connect()
    c.negotiate(rig.mode)
    for query in FOREIGN + ("base:nosuch", "base:allocation2", "base:Allocation", "BASE:allocation", "x-corbel:nosuch"):
        assert c.list_meta("v", query) == [], query
        assert c.set_meta("v", query) == {}, query
    assert c.list_meta("v", *FOREIGN, ALLOCATION) == [ALLOCATION]
    assert set(c.set_meta("v", *FOREIGN, ALLOCATION, "base:nosuch")) == {ALLOCATION}


@case("SET_META_CONTEXT before structured replies or extended headers: ERR_INVALID")
def set_before_structured(rig):
    c = rig.connect()
    c.refusal(SET_META, c.meta_data("v", ALLOCATION), ERR_INVALID)
    c.negotiate(rig.mode)
    assert set(c.set_meta("v", ALLOCATION)) == {ALLOCATION}
    c.go()
    status(c, 0, 4096)


@case("SET_META_CONTEXT: base: selects nothing, nor does no query; a name twice is selected once; ids are unique")
def what_set_selects(rig):
    c = rig.connect()
    c.negotiate(rig.mode)
    assert c.set_meta("v", "base:") == {} and c.set_meta("v") == {}
    assert set(c.set_meta("v", ALLOCATION, ALLOCATION)) == {ALLOCATION}
    every = c.list_meta("v")
    assert set(c.set_meta("v", *every)) == set(every) and len(set(c.contexts.values())) == len(every)
    c.go()
    answer = c.do(STATUS, 0, 65536).ok()
    assert set(answer.extents) == set(c.contexts.values())


@case("SET_META_CONTEXT: a syntactic error, a length that lies, bytes too many: ERR_INVALID; the name unknown: ERR_UNKNOWN; in step")
def malformed_queries(rig):
    c = rig.connect()
    c.negotiate(rig.mode)
    name = struct.pack(">I", 1) + b"v"
    good = c.meta_data("v", ALLOCATION)
    lies = [good + b"x", good[:-1], good[:9], good[:8], good[:5], good[:3], b"", name + struct.pack(">I", 1), name + struct.pack(">I", 0xFFFFFFFF),
            name + struct.pack(">II", 1, 0xFFFFFFFF) + b"base:", name + struct.pack(">II", 1, 16) + b"base:allocation",
            struct.pack(">I", 0xFFFFFFFF) + b"v" + struct.pack(">I", 0), struct.pack(">I", 0xFFFFFFFC) + good[4:],
            name + struct.pack(">I", 0) + c.option(LIST_META, good), good + c.option(GO, c.info_data("v"))]
    bad_queries = [c.meta_data("v", q) for q in ("", "base", "allocation", "nocolon")]
    for number in (LIST_META, SET_META):
        for lie in lies:
            c.refusal(number, lie, ERR_INVALID)
        for bad in bad_queries:
            c.refusal(number, bad, ERR_INVALID)
        c.refusal(number, c.meta_data("nothere", ALLOCATION), ERR_UNKNOWN)
        c.refusal(number, c.meta_data("v\0", ALLOCATION), ERR_UNKNOWN, ERR_INVALID)
        c.refusal(number, c.meta_data("v", "base:" + "x" * 5000), ERR_INVALID, ERR_TOO_BIG)
    assert set(c.set_meta("v", ALLOCATION)) == {ALLOCATION}


@case("many queries: answered or ERR_TOO_BIG, in step")
def many_queries(rig):
    c = rig.connect()
    c.negotiate(rig.mode)
    for count in (100, 700, 5000, 100000):
        for number in (LIST_META, SET_META):
            last = c.ask(number, c.meta_data("v", *([ALLOCATION] * count)))[-1]
            assert last.type in (ACK, ERR_TOO_BIG, ERR_INVALID), last
    assert c.accepted(LIST)


@case("a later SET_META_CONTEXT replaces an earlier one, also when it fails")
def set_replaces(rig):
    for second in ([], ["base:"], list(FOREIGN), None):
        c = rig.connect()
        c.negotiate(rig.mode)
        c.set_meta("v", ALLOCATION)
        if second is None:
            c.refusal(SET_META, c.meta_data("v", ALLOCATION) + b"x", ERR_INVALID)
            c.contexts = {}
        else:
            assert c.set_meta("v", *second) == {}
        c.go()
        c.do(STATUS, 0, 4096).failed(EINVAL)
        c.in_step()
    c = rig.connect()
    c.negotiate(rig.mode)
    c.set_meta("v", "base:")
    c.set_meta("v", ALLOCATION)
    c.go()
    status(c, 0, 4096)


@case("contexts count only for the export they were set for; a failed GO or an INFO of another takes nothing away")
def set_for_another_export(rig):
    c = rig.connect()
    c.negotiate(rig.mode)
    c.set_meta("secret", ALLOCATION)
    c.go("v")
    c.contexts = {}
    c.do(STATUS, 0, 4096).failed(EINVAL)
    c = rig.connect()
    c.negotiate(rig.mode)
    c.set_meta("v", ALLOCATION)
    c.info("secret")
    c.refusal(GO, c.info_data("nothere"), ERR_UNKNOWN)
    c.list_meta("secret", "base:")
    c.go("v")
    status(c, 0, 4096)


@case("BLOCK_STATUS: EINVAL without a context, out of range, with wrong flags; FUA is taken; in step")
def status_refused(rig):
    c = rig.session()
    c.do(STATUS, 0, 4096).failed(EINVAL)
    c = rig.session(contexts=(ALLOCATION,))
    for offset, length in ((c.size, 512), (c.size - 512, 1024), (1 << 62, 512), ((1 << 64) - 512, 512), ((1 << 64) - 512, 1024), (0, c.size + 512)):
        c.do(STATUS, offset, length).failed(EINVAL)
    for flag in (NO_HOLE, DF, FAST_ZERO, 0x40, 0x8000):
        c.do(STATUS, 0, 4096, flag).failed(EINVAL)
    status(c, 0, 4096, FUA)
    assert c.do(STATUS, 0, 0).error in (0, EINVAL)
    c.in_step()


@case("BLOCK_STATUS: data is status 0, what was given back or never written HOLE and ZERO; what is ZERO reads as zeroes")
def status_tells_the_truth(rig):
    c = rig.session(contexts=(ALLOCATION,))
    c.do(TRIM, 0, 128 * MIB).ok()
    c.do(ZEROES, 0, 128 * MIB).ok()
    data = pattern(MIB, 50)
    for place in (8 * MIB, 40 * MIB, 100 * MIB):
        c.write(place, data)
    found = walk(c, 0, 128 * MIB)
    assert found[0][2] == HOLE | ZERO, found
    for at, size, value in found:
        if value & ZERO:
            for probe in {at, at + size - 4096, at + size // 2 // 512 * 512}:
                assert not any(c.read(probe, 4096)), "ZERO at %d is not" % probe
    for place in (8 * MIB, 40 * MIB, 100 * MIB):
        assert all(value == 0 for at, size, value in walk(c, place, MIB)), "data at %d" % place
    assert sum(size for _, size, value in found if value & HOLE) > 100 * MIB


@case("BLOCK_STATUS: extents differ from their neighbours, cover the request from its start; any offset, any length")
def extents(rig):
    c = rig.session(contexts=(ALLOCATION,))
    c.do(TRIM, 0, 64 * MIB).ok()
    for n in range(6):
        c.write(n * 8 * MIB, pattern(4096, 51))
    for offset, length in ((0, 512), (512, 512), (0, 64 * MIB), (8 * MIB - 512, 1024), (3 * MIB + 512, 33 * MIB), (c.size - 512, 512), (c.size - 4096, 4096),
                           (0, min(c.size, (1 << 32) - 512))):
        found = status(c, offset, length)
        assert all(a[1] != b[1] for a, b in zip(found, found[1:])), "neighbours alike: %s" % found
        assert offset + sum(size for size, _ in found) <= c.size, "beyond the end: %s" % found
        assert all(value & ~(HOLE | ZERO) == 0 for _, value in found)


@case("BLOCK_STATUS with REQ_ONE: one extent, no longer than the request")
def one_extent(rig):
    c = rig.session(contexts=(ALLOCATION,))
    c.do(TRIM, 0, 64 * MIB).ok()
    c.write(MIB, pattern(4096, 52))
    at = 0
    while at < 4 * MIB:
        (size, value), = status(c, at, 4 * MIB - at, REQ_ONE)
        assert 0 < size <= 4 * MIB - at
        at += size
    for length in (512, 4096, 64 * MIB):
        status(c, 32 * MIB, length, REQ_ONE)


@case("case 25: BLOCK_STATUS at the end of the export, and of odd ranges if such requests are served")
def status_at_the_end(rig):
    c = rig.session(contexts=(ALLOCATION,), infos=(INFO_BLOCK_SIZE,))
    least = c.infos[INFO_BLOCK_SIZE][0]
    for offset, length in ((c.size - least, least), (c.size - 1, 1), (c.size - 4097, 4097), (1, 1), (4095, 2), (511, 1025)):
        answer = c.do(STATUS, offset, length)
        if answer.error and (offset % least or length % least):
            answer.failed(EINVAL)
        else:
            assert offset + sum(size for size, _ in answer.ok().extents[c.contexts[ALLOCATION]]) <= c.size


@case("case 21: ZEROES with NO_HOLE leaves no hole, without it it may; both read as zeroes")
def no_hole(rig):
    c = rig.session(contexts=(ALLOCATION,))
    for offset, length in ((16 * MIB, 8 * MIB), (30 * MIB + 512, 65536), (40 * MIB, 512)):
        for prepare in (TRIM, ZEROES):
            c.do(prepare, offset, length).ok()
            c.do(ZEROES, offset, length, NO_HOLE).ok()
            assert not [e for e in walk(c, offset, length) if e[2] & HOLE], "a hole after NO_HOLE"
            assert not any(c.read(offset, min(length, MIB)))
    c.do(ZEROES, 16 * MIB, 8 * MIB).ok()
    assert not any(c.read(16 * MIB, MIB))


@case("own contexts (x-corbel:) cover what they are asked for, beside base:allocation")
def other_contexts(rig):
    c = rig.connect()
    names = own_contexts(c)
    c.negotiate(rig.mode)
    c.set_meta("v", ALLOCATION, *names)
    c.go()
    for offset, length in ((0, 4096), (0, 64 * MIB), (c.size - 4096, 4096)):
        answer = c.do(STATUS, offset, length).ok()
        for id, found in answer.extents.items():
            assert found and sum(size for size, _ in found) > 0


@case("extended headers, fault 2: BLOCK_STATUS with a payload though no context was set: EINVAL, in step")
def payload_without_context(rig):
    c = rig.session()
    for payload in (struct.pack(">QI", 4096, 0), struct.pack(">QII", 4096, 1, 2), b"x" * 8, b"x", b"x" * 4096):
        if rig.mode == EXTENDED:
            c.do(STATUS, 0, data=payload).failed(EINVAL)
        else:
            c.do(STATUS, 0, 4096, PAYLOAD_LEN).failed(EINVAL)
    c.in_step()


@case("extended headers: BLOCK_STATUS with a payload asks for some contexts; ids unknown or twice, and lengths that cannot be: EINVAL, in step")
def payload_filters(rig):
    c = rig.connect()
    names = [ALLOCATION] + own_contexts(c)
    c.negotiate(rig.mode)
    c.set_meta("v", *names)
    c.go()
    if rig.mode != EXTENDED:
        return
    assert c.flags & BLOCK_STATUS_PAYLOAD
    for name in names:
        filtered(c, 0, 65536, [c.contexts[name]]).ok()
    filtered(c, 4096, 100 * MIB, list(c.contexts.values())).ok()
    ids = list(c.contexts.values())
    for wrong in ([max(ids) + 1], [0xFFFFFFFF], ids + [max(ids) + 1], [ids[0], ids[0]], ids * 2):
        filtered(c, 0, 4096, wrong).failed(EINVAL)
    for offset, effect in ((c.size, 512), (0, c.size + 512), (c.size - 512, 1024), ((1 << 64) - 512, 1024)):
        filtered(c, offset, effect, ids).failed(EINVAL)
    for payload in (b"", b"x", b"x" * 7, struct.pack(">Q", 4096) + b"x", struct.pack(">Q", 4096) + b"x" * 6, struct.pack(">Q", 4096) + bytes(70000)):
        c.do(STATUS, 0, data=payload, flags=PAYLOAD_LEN).failed(EINVAL)
    c.in_step()


@case("extended headers: lengths of 64 bits: ZEROES, TRIM, CACHE and STATUS beyond 4 GiB where the export is that long, else an error")
def long_effects(rig):
    if rig.mode != EXTENDED:
        return
    c = rig.session(contexts=(ALLOCATION,))
    for length in (1 << 32, (1 << 32) + 512, 1 << 40):
        if length > c.size:
            c.do(STATUS, 0, length).failed(EINVAL)
    assert sum(size for size, _ in status(c, 0, c.size)) > 0
    total = walk(c, 0, c.size)
    assert total[-1][0] + total[-1][1] == c.size


@case("status in flight with writes, trims and others' requests: answered, each by its cookie")
def status_in_flight(rig):
    c = rig.session(contexts=(ALLOCATION,))
    out = []
    for n in range(60):
        out.append(c.submit(STATUS, n * 65536, 4 * MIB, REQ_ONE if n % 3 == 0 else 0))
        out.append(c.submit(WRITE, n * 65536, data=pattern(4096, n)))
        out.append(c.submit(TRIM, (n + 100) * 65536, 65536))
        out.append(c.submit(READ, n * 65536, 512))
    c.send(*(bytes for _, bytes in out))
    for cookie, _ in out:
        c.answer(cookie).ok()


main()
