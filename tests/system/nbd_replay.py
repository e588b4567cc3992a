"""A list of transactions as the NBD project's own tester makes them, replayed: nbd_replay.py ADDRESS PID

Debian does not ship that tester (nbd-tester-client). What it does is done here by the same means: the export by EXPORT_NAME,
simple replies, many requests in flight, all of 50 MiB written in pieces of all sizes and read back; reads that are longer
than a MiB at odd offsets; reads and writes of nearly 48 MiB, which few servers take."""
from nbd_client import *

SIZE = 50 * MIB


def old_client(rig):
    return rig.connect(FIXED).export_name("v")


def transactions(seed, count, longest):
    """(command, offset, length), the same for a seed; now and then a flush."""
    rng = random.Random(seed)
    for n in range(count):
        if n % 50 == 49:
            yield FLUSH, 0, 0
            continue
        length = 512 * rng.choice((1, 2, 7, 8, 16, 64, rng.randrange(1, longest // 512)))
        yield rng.choice((READ, WRITE, WRITE)), 512 * rng.randrange(0, (SIZE - length) // 512), length


class Replay:
    """Requests in flight and what the export must hold; nothing is sent that overlaps a write in flight, or a read that a write would meet."""
    def __init__(self, c, depth):
        self.c, self.depth, self.shadow, self.pending = c, depth, bytearray(SIZE), {}

    def overlaps(self, type, offset, length):
        return any(offset < o + n and o < offset + length and WRITE in (type, t) for t, o, n, _ in self.pending.values())

    def take(self, cookie):
        type, offset, length, want = self.pending.pop(cookie)
        answer = self.c.answer(cookie).ok()
        assert type != READ or answer.data == want, "%d bytes at %d are not what was written" % (length, offset)

    def run(self, list):
        for n, (type, offset, length) in enumerate(list):
            while self.pending and (len(self.pending) == self.depth or self.overlaps(type, offset, length)):
                self.take(next(iter(self.pending)))
            data = pattern(length, n) if type == WRITE else b""
            if type == WRITE:
                self.shadow[offset:offset + length] = data
            want = bytes(self.shadow[offset:offset + length]) if type == READ else None
            self.pending[self.c.issue(type, offset, length, data=data)] = type, offset, length, want
        while self.pending:
            self.take(next(iter(self.pending)))


@case("integrity: 50 MiB written and read in pieces of all sizes, 32 in flight")
def integrity(rig):
    c = old_client(rig)
    for at in range(0, SIZE, 2 * MIB):
        c.do(ZEROES, at, 2 * MIB).ok()
    replay = Replay(c, 32)
    replay.run(transactions(80, 600, 300000))
    for at in range(0, SIZE, 5 * MIB):
        assert c.read(at, 5 * MIB) == replay.shadow[at:at + 5 * MIB], at
    c.disconnect()
    assert c.closed()


@case("throughput: 4,000 reads of 1 KiB, in flight as many as there may be, all answered")
def throughput(rig):
    c = old_client(rig)
    out = [c.submit(READ, n * 1024, 1024) for n in range(4000)]
    for first in range(0, 4000, 500):
        c.send(*(bytes for _, bytes in out[first:first + 500]))
        for cookie, _ in out[first:first + 500]:
            c.answer(cookie).ok()


@case("oversize: reads of 1 MiB and 14 bytes from offset 1, 2 MiB and 28 bytes from offset 2")
def oversize_reads(rig):
    data = pattern(3 * MIB, 81)
    rig.write(0, data)
    c = old_client(rig)
    for offset, length in ((1, MIB + 14), (2, 2 * MIB + 28)):
        assert c.read(offset, length) == data[offset:offset + length]


@case("integrity of huge requests: 49,865,728 bytes are more than the maximum payload: an error, or the end of that connection; not more")
def huge_requests(rig):
    c = old_client(rig)
    c.do(READ, 0, 49865728).failed(EINVAL, EOVERFLOW)
    c.in_step()
    try:
        c.do(WRITE, 0, data=bytes(49865728)).failed(EINVAL, EOVERFLOW)
        c.in_step()
    except (EOFError, ConnectionError):
        pass


main()
