"""Beyond 4 GiB: nbd_big.py ADDRESS PID [simple|structured|extended] [tls]

Export: big, of more than 4.5 GiB, which holds next to nothing."""
from nbd_client import *

GIB = 1 << 30
MARKS = (0, 2 * GIB, 4 * GIB - 4096, 4 * GIB, 4 * GIB + MIB, 9 * GIB // 2)


def mark(c):
    for n, place in enumerate(MARKS + (c.size - 4096,)):
        c.write(place, pattern(4096, n))


def marks(c):
    """Those that are there, by their place."""
    found = []
    for n, place in enumerate(MARKS + (c.size - 4096,)):
        data = c.read(place, 4096)
        assert data in (pattern(4096, n), bytes(4096)), "at %d" % place
        if any(data):
            found.append(place)
    return found


@case("case 18: offsets beyond 4 GiB are those that were meant, for each command")
def far_offsets(rig):
    c = rig.session(name="big")
    mark(c)
    every = list(MARKS) + [c.size - 4096]
    assert marks(c) == every
    c.do(ZEROES, 4 * GIB, 65536).ok()
    assert marks(c) == [place for place in every if place != 4 * GIB]
    c.do(TRIM, 4 * GIB - 65536, 65536).ok()
    assert marks(c)[0] == 0 and 4 * GIB + MIB in marks(c)
    c.do(READ, c.size, 4096).failed(EINVAL)
    c.do(WRITE, c.size, data=bytes(4096)).failed(ENOSPC)


@case("case 18, fault 6: ZEROES and TRIM of 4 GiB less a block, and of more where headers have 64 bits: all of it, and no more")
def long_ranges(rig):
    c = rig.session(name="big")
    lengths = [(1 << 32) - 4096] + ([1 << 32, c.size - 4096] if c.mode == EXTENDED else [])
    for length in lengths:
        for flags in (0, FUA):
            mark(c)
            c.do(ZEROES, 0, length, flags).ok()
            last = c.read(length - 4096, 4096)
            assert not any(last), "the last bytes of the range"
            assert [place for place in marks(c) if place + 4096 <= length] == []
            assert [place for place in MARKS if place >= length] + [c.size - 4096] == [place for place in marks(c) if place >= length]
        mark(c)
        c.do(TRIM, 0, length).ok()
        assert [place for place in MARKS if place >= length] + [c.size - 4096] == [place for place in marks(c) if place >= length]


@case("BLOCK_STATUS of more than 4 GiB, where headers have 64 bits; extents may be as long")
def far_status(rig):
    if rig.mode == SIMPLE:
        return
    c = rig.session(name="big", contexts=(ALLOCATION,))
    c.do(TRIM, 0, (1 << 32) - 512).ok()
    c.write(9 * GIB // 2, pattern(4096, 1))
    for offset in (0, 4 * GIB, 9 * GIB // 2, c.size - 512):
        length = min(c.size - offset, (1 << 32) - 512)
        extents = c.do(STATUS, offset, length).ok().extents[c.contexts[ALLOCATION]]
        assert offset + sum(size for size, _ in extents) <= c.size
        assert offset != 9 * GIB // 2 or extents[0][1] == 0
    if c.mode == EXTENDED:
        extents = c.do(STATUS, 0, c.size).ok().extents[c.contexts[ALLOCATION]]
        assert sum(size for size, _ in extents) <= c.size
        assert extents[0][0] > GIB and extents[0][1] == HOLE | ZERO, extents


main()
