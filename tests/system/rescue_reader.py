"""Reads a volume as Linux would after the commands of `corbelctl rescue`, from what was recorded of them.

    rescue_reader.py TRACE DEVICE >bytes

TRACE has one command a line, its words and table lines separated by tabs, as the stand-ins for losetup, dmsetup and
mdadm in test_rescue.sh wrote them. Nothing here comes from Corbel: the semantics are those of Linux's documentation
(admin-guide/device-mapper, md(4), mdadm(8)), and what the kernel would refuse is refused.
"""
import sys

SECTOR = 512


def check(condition, what):
    if not condition:
        sys.exit("the kernel would refuse: " + what)


def xor(blocks):
    value = 0
    for block in blocks:
        value ^= int.from_bytes(block, "little")
    return value.to_bytes(len(blocks[0]), "little")


# GF(2^8) of RAID 6: polynomial 0x11d, generator 2.
EXP, LOG = [0] * 512, [0] * 256
value = 1
for i in range(255):
    EXP[i] = EXP[i + 255] = value
    LOG[value] = i
    value = value << 1 ^ (0x11D if value & 0x80 else 0)
TIMES = {}


def times(factor, block):
    if factor not in TIMES:
        TIMES[factor] = bytes(0 if b == 0 else EXP[LOG[b] + LOG[factor]] for b in range(256))
    return block.translate(TIMES[factor])


def inverse(factor):
    return EXP[255 - LOG[factor]]


class Loop:
    def __init__(self, path, offset, limit, read_only):
        self.file, self.offset, self.read_only = open(path, "rb"), offset, read_only
        self.size = min(self.file.seek(0, 2) - offset, limit)
        check(self.size > 0 and offset % SECTOR == 0, "losetup of " + path)

    def read(self, at, length):
        check(at + length <= self.size, "a read behind the end of a loop device")
        self.file.seek(self.offset + at)
        return self.file.read(length)


class Mapped:
    """A device-mapper device: targets in order, each [start, start + length)."""

    def __init__(self, lines):
        self.targets, self.size = [], 0
        for line in lines:
            start, length, kind, *words = line.split()
            check(int(start) * SECTOR == self.size, "a table with a gap: " + line)
            length = int(length) * SECTOR
            self.targets.append((self.size, length, TARGETS[kind](length, words)))
            self.size += length

    def read(self, at, length):
        out = []
        while length > 0:
            low, high = 0, len(self.targets)
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self.targets[middle][0] <= at else (low, middle)
            start, size, target = self.targets[low]
            part = min(length, start + size - at)
            out.append(target.read(at - start, part))
            at, length = at + part, length - part
        return b"".join(out)


class Linear:
    def __init__(self, length, words):
        self.device, self.offset = device(words[0]), int(words[1]) * SECTOR
        check(self.offset + length <= self.device.size, "linear behind the end of " + words[0])

    def read(self, at, length):
        return self.device.read(self.offset + at, length)


class Chunked:
    """Reads chunk by chunk; chunk(number, offset in it, length)."""

    def read(self, at, length):
        out = []
        while length > 0:
            number, inside = divmod(at, self.chunk_size)
            part = min(length, self.chunk_size - inside)
            out.append(self.chunk(number, inside, part))
            at, length = at + part, length - part
        return b"".join(out)


class Striped(Chunked):
    def __init__(self, length, words):
        count, self.chunk_size = int(words[0]), int(words[1]) * SECTOR
        self.devices = [(device(name), int(at) * SECTOR) for name, at in zip(words[2::2], words[3::2])]
        check(len(self.devices) == count, "striped with other than its number of devices")
        check(length % (count * self.chunk_size) == 0, "striped whose length does not divide")
        for dev, at in self.devices:
            check(at + length // count <= dev.size, "striped over a device that is too small")

    def chunk(self, number, inside, length):
        dev, at = self.devices[number % len(self.devices)]
        return dev.read(at + number // len(self.devices) * self.chunk_size + inside, length)


class Unstriped(Chunked):
    def __init__(self, length, words):
        self.stripes, self.chunk_size, self.stripe = int(words[0]), int(words[1]) * SECTOR, int(words[2])
        self.device, self.offset = device(words[3]), int(words[4]) * SECTOR
        check(length % self.chunk_size == 0 and self.stripe < self.stripes, "unstriped " + " ".join(words))

    def chunk(self, number, inside, length):
        at = (number * self.stripes + self.stripe) * self.chunk_size + inside
        return self.device.read(self.offset + at, length)


class Snapshot(Linear):
    def __init__(self, length, words):
        check(not device(words[1]).read_only, "snapshot without a place for its changes")
        super().__init__(length, [words[0], "0"])


class Mirror:
    def __init__(self, members):
        self.members = [m for m in members if m is not None]
        check(self.members, "raid1 without a member")
        self.turn = 0

    def read(self, at, length):
        self.turn += 1
        return self.members[self.turn % len(self.members)].read(at, length)


class Near(Chunked):
    """RAID 10, near copies: copies of a chunk on neighbours, going round the members."""

    def __init__(self, members, chunk_size, copies):
        self.members, self.chunk_size, self.copies, self.turn = members, chunk_size, copies, 0

    def chunk(self, number, inside, length):
        n = len(self.members)
        places = [divmod(number * self.copies + copy, n) for copy in range(self.copies)]
        places = [(depth, m) for depth, m in places if self.members[m] is not None]
        check(places, "raid10 without a copy")
        self.turn += 1
        depth, member = places[self.turn % len(places)]
        return self.members[member].read(depth * self.chunk_size + inside, length)


class Parity(Chunked):
    """RAID 4, 5 and 6 of md. place() follows the rules of md(4): where P is, then Q, then data."""

    def __init__(self, members, chunk_size, parities, layout):
        self.members, self.chunk_size, self.parities, self.layout = members, chunk_size, parities, layout
        check(sum(m is None for m in members) <= parities, "too few members")

    def place(self, row):
        """The members of P (and Q), and those of the data in order."""
        n, m = len(self.members), self.parities
        if self.layout == "n":
            return [n - 1], list(range(n - 1))
        p = row % n if self.layout.startswith("right") else n - 1 - row % n
        parity = [(p + k) % n for k in range(m)]
        ring = [(p + m + k) % n for k in range(n - m)]
        return parity, ring if self.layout.endswith("-symmetric") else sorted(ring)

    def chunk(self, number, inside, length):
        n = len(self.members)
        row, role = divmod(number, n - self.parities)
        parity, data = self.place(row)
        wanted, at = data[role], row * self.chunk_size + inside
        if self.members[wanted] is not None:
            return self.members[wanted].read(at, length)
        blocks = [m.read(at, length) if m is not None else None for m in self.members]
        lost = [m for m in data if blocks[m] is None]
        if len(lost) == 1 and blocks[parity[0]] is not None:
            return xor([b for i, b in enumerate(blocks) if b is not None and i not in parity[1:]])
        return self.recover(blocks, parity, lost, wanted, length)

    def recover(self, blocks, parity, lost, wanted, length):
        """With Q, whose exponents md counts round the ring from behind Q."""
        n, (p, q) = len(self.members), parity
        ring = [(q + 1 + k) % n for k in range(n) if (q + 1 + k) % n not in parity]
        exponent = {member: k for k, member in enumerate(ring)}
        known = [m for m in ring if m not in lost]
        zero = bytes(length)
        rest_q = xor([blocks[q]] + [times(EXP[exponent[m]], blocks[m]) for m in known])
        if len(lost) == 1:
            return times(inverse(EXP[exponent[wanted]]), rest_q)
        rest_p = xor([blocks[p], zero] + [blocks[m] for m in known])
        other = lost[0] if lost[1] == wanted else lost[1]
        gx, gy = EXP[exponent[wanted]], EXP[exponent[other]]
        return times(inverse(gx ^ gy), xor([rest_q, times(gy, rest_p)]))


RAID5 = {"raid5_la": "left-asymmetric", "raid5_ra": "right-asymmetric", "raid5_ls": "left-symmetric",
         "raid5_rs": "right-symmetric", "raid4": "n"}


def dm_raid(length, words):
    kind, count = words[0], int(words[1])
    chunk, options, rest = int(words[2]) * SECTOR, words[3:2 + count], words[2 + count:]
    check("nosync" in options, "a resync of what is read-only")
    check(all(meta == "-" for meta in rest[1::2]) and len(rest) == 1 + 2 * int(rest[0]), "devices of raid")
    members = [None if name == "-" else device(name) for name in rest[2::2]]
    n, copies = len(members), 1
    if kind == "raid1":
        share, target = length, Mirror(members)
    elif kind == "raid10":
        copies = int(options[options.index("raid10_copies") + 1])
        check(options[options.index("raid10_format") + 1] == "near", "another format of raid10")
        check(length * copies % (n * chunk) == 0, "raid10 whose length does not divide")
        share, target = length * copies // n, Near(members, chunk, copies)
    else:
        check(length % ((n - 1) * chunk) == 0, "raid whose length does not divide")
        share, target = length // (n - 1), Parity(members, chunk, 1, RAID5[kind])
    for member in members:
        check(member is None or member.size >= share, "raid over a device that is too small")
    return target


TARGETS = {"linear": Linear, "striped": Striped, "unstriped": Unstriped, "snapshot": Snapshot, "raid": dm_raid}
devices = {}


def device(path):
    check(path in devices, "there is no device " + path)
    return devices[path]


def losetup(name, words):
    """losetup --find --show [--read-only] [--offset N] [--sizelimit N] [--sector-size N] FILE"""
    check(words[:2] == ["--find", "--show"], "losetup")
    options, offset, limit, read_only = words[2:-1], 0, 1 << 62, False
    while options:
        word = options.pop(0)
        if word == "--read-only":
            read_only = True
        elif word == "--offset":
            offset = int(options.pop(0))
        elif word == "--sizelimit":
            limit = int(options.pop(0))
        else:
            check(word == "--sector-size" and options.pop(0) == "4096", "losetup " + word)
    check(read_only or "/tmp." in words[-1], "a member that can be written to")
    devices[name] = Loop(words[-1], offset, limit, read_only)


def dmsetup(words):
    """dmsetup create [--readonly] NAME, then the lines of the table"""
    words.pop(0)
    if words[0] == "--readonly":
        words.pop(0)
    else:
        check(words[1].split()[2] == "snapshot", "a device that can be written to")
    check(len(words[0]) < 128 and "/dev/mapper/" + words[0] not in devices, "the name " + words[0])
    devices["/dev/mapper/" + words[0]] = Mapped(words[1:])


def mdadm(words):
    """mdadm --create DEVICE, of level 6, over overlays"""
    check(words[0] == "--create", "mdadm")
    flags = [w for w in words[2:] if w.startswith("--")]
    options = dict(w[2:].split("=") for w in flags if "=" in w)
    check({"--run", "--readonly", "--assume-clean"} <= set(flags), "mdadm that would write parity")
    check(options["level"] == "6" and options["metadata"] == "1.0" and options["bitmap"] == "none", "mdadm")
    names = [w for w in words[2:] if not w.startswith("--")]
    check(len(names) == int(options["raid-devices"]), "mdadm --raid-devices")
    chunk, size = int(options["chunk"]) * 1024, int(options["size"]) * 1024
    members = [None if name == "missing" else device(name) for name in names]
    for member in members:
        check(member is None or member.size >= size + (256 << 10), "no room for md's superblock")
    target = Parity(members, chunk, 2, options["layout"])
    target.size = size * (len(names) - 2)
    devices[words[1]] = target


for line in open(sys.argv[1]):
    program, *words = line.rstrip("\n\t").split("\t")
    if program == "losetup":
        losetup(words[0], words[1:])
    elif program == "dmsetup":
        dmsetup(words)
    else:
        mdadm(words)
volume = device(sys.argv[2])
for at in range(0, volume.size, 1 << 20):
    sys.stdout.buffer.write(volume.read(at, min(1 << 20, volume.size - at)))
