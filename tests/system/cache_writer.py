"""Writers that know what they were promised, and whether it was kept.

    cache_writer.py write URI STATE answered|flushed    write until the connection breaks
    cache_writer.py check URI STATE                     each sector has what was promised last, or something newer

Each of 4 processes writes its own MiBs, 1 to 128 sectors at a time, by requests of which some have FUA. A sector says which
write it is of, and which sector it is. "answered": a write is promised when it is answered; "flushed": when it had FUA,
or a flush that came later was answered. STATE.0 to STATE.3 hold for each sector the last write promised and the last one sent.
"""
import array
import os
import random
import struct
import sys

import nbd

WRITERS, SECTOR, REGION = 4, 512, 4 << 20
SECTORS = REGION // SECTOR


class State:
    def __init__(self, path):
        self.path = path
        self.promised, self.sent = array.array("Q", bytes(8 * SECTORS)), array.array("Q", bytes(8 * SECTORS))
        if os.path.exists(path):
            with open(path, "rb") as f:
                self.promised, self.sent = array.array("Q"), array.array("Q")
                self.promised.fromfile(f, SECTORS)
                self.sent.fromfile(f, SECTORS)

    def save(self):
        with open(self.path, "wb") as f:
            self.promised.tofile(f)
            self.sent.tofile(f)


def connect(uri):
    c = nbd.NBD()
    c.connect_uri(uri)
    return c


def stamp(write, sector):
    return struct.pack("<QQ", write, sector) * (SECTOR // 16)


def keep_writing(c, state, first, flushed):
    rng, number = random.Random(os.urandom(8)), max(state.sent)
    waits = {}
    while True:
        number += 1
        at = rng.randrange(SECTORS)
        count = min(rng.choice((1, 1, 3, 8, 8, 8, 16, 64, 128)), SECTORS - at)
        fua = rng.random() < 0.1
        for i in range(at, at + count):
            state.sent[i] = number
        c.pwrite(b"".join(stamp(number, first + i) for i in range(at, at + count)), (first + at) * SECTOR,
                 nbd.CMD_FLAG_FUA if fua else 0)
        for i in range(at, at + count):
            if fua or not flushed:
                state.promised[i] = number
                waits.pop(i, None)
            else:
                waits[i] = number
        if rng.random() < 0.05:
            c.flush()
            for i, promised in waits.items():
                state.promised[i] = promised
            waits = {}


def write(uri, path, what):
    children = []
    for writer in range(WRITERS):
        child = os.fork()
        if child != 0:
            children.append(child)
            continue
        state = State(f"{path}.{writer}")
        try:
            keep_writing(connect(uri), state, writer * SECTORS, what == "flushed")
        except nbd.Error:
            state.save()
        os._exit(0)
    sys.exit(any(os.waitpid(child, 0)[1] for child in children))


def check(uri, path):
    c, promised = connect(uri), 0
    for writer in range(WRITERS):
        state, first = State(f"{path}.{writer}"), writer * SECTORS
        data = c.pread(REGION, first * SECTOR)
        for i in range(SECTORS):
            got = data[i * SECTOR:(i + 1) * SECTOR]
            number, sector = struct.unpack_from("<QQ", got)
            promised += state.promised[i] > 0
            if state.sent[i] == 0:
                assert not any(got), f"sector {first + i} was never written, and is not empty"
            elif number == 0 and state.promised[i] == 0:
                assert not any(got), f"sector {first + i}: neither old nor new"
            else:
                assert got == stamp(number, sector) and sector == first + i, f"sector {first + i} is of {sector}"
                assert state.promised[i] <= number <= state.sent[i], \
                    f"sector {first + i}: write {number}, and {state.promised[i]} was promised"
    print(promised, "sectors hold what was promised")


if sys.argv[1] == "write":
    write(*sys.argv[2:])
else:
    check(*sys.argv[2:])
