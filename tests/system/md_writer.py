"""Arrays of Linux md (metadata 1.2), made byte by byte: from the tables of the format and md's formulas alone.

    md_writer.py make PREFIX LEVEL LAYOUT DISKS CHUNK_KIB SIZE_KIB DATA [bitmap]   files PREFIX0 .. that hold DATA
    md_writer.py size LEVEL LAYOUT DISKS CHUNK_KIB SIZE_KIB                        bytes such an array has
    md_writer.py patch FILE OFFSET FORMAT VALUE                                    a field of the superblock, and its sum
    md_writer.py bad FILE SECTOR COUNT                                             a bad block log: sectors of the data

The data of disk i begins at 1 MiB + i * 64 KiB. LAYOUT is md's number.
"""
import struct
import sys

SUPER = 4096


def data_start(slot):
    return (1 << 20) + slot * 65536


def parities(level):
    return 2 if level == 6 else 1


def array_size(level, layout, disks, chunk, size):
    rows = size // chunk if level != 1 else 0
    if level == 0:
        return rows * chunk * disks
    if level == 1:
        return size
    if level == 10:
        return rows * disks // (layout & 0xFF) * chunk
    return rows * chunk * (disks - parities(level))


def checksum(page):
    count = struct.unpack_from("<I", page, 220)[0]
    length = 256 + 2 * count
    total = sum(struct.unpack_from("<%dI" % (length // 4), page, 0))
    if length % 4:
        total += struct.unpack_from("<H", page, length - 2)[0]
    return ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF


def seal(page):
    struct.pack_into("<I", page, 216, 0)
    struct.pack_into("<I", page, 216, checksum(page))


def superblock(level, layout, disks, chunk, size, slot):
    page = bytearray(4096)
    struct.pack_into("<III", page, 0, 0xA92B4EFC, 1, 0)
    page[16:32] = bytes(range(0x20, 0x30))
    page[32:39] = b"old:100"
    struct.pack_into("<Q", page, 64, 1700000000)
    struct.pack_into("<iIQII", page, 72, level, layout, size // 512, chunk // 512, disks)
    struct.pack_into("<QQQ", page, 128, data_start(slot) // 512, size // 512, 8)
    struct.pack_into("<I", page, 160, slot)
    page[168:184] = bytes([slot + 1] * 16)
    struct.pack_into("<QQQ", page, 192, 1700000001, 1000, 0xFFFFFFFFFFFFFFFF)
    struct.pack_into("<I", page, 220, 128)
    struct.pack_into("<128H", page, 256, *[i if i < disks else 0xFFFF for i in range(128)])
    seal(page)
    return page


def double(byte):
    byte <<= 1
    return byte ^ 0x11D if byte & 0x100 else byte


def power_table(exponent):
    """What a byte times 2**exponent is, for bytes.translate()."""
    table = list(range(256))
    for _ in range(exponent):
        table = [double(byte) for byte in table]
    return bytes(table)


TABLES = [power_table(exponent) for exponent in range(16)]


def xor(a, b):
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(len(a), "little")


def place_of_p(level, layout, disks, row):
    """P's slot, and whether data goes round behind the parity."""
    number = 5 if level == 4 else layout
    turn = row % disks
    slot = {0: disks - 1 - turn, 1: turn, 2: disks - 1 - turn, 3: turn, 4: 0, 5: disks - parities(level)}[number]
    return slot, number in (2, 3)


def parity_row(level, layout, disks, chunk, row, data):
    """The chunks of a row, by slot."""
    m = parities(level)
    p, goes_round = place_of_p(level, layout, disks, row)
    q = (p + 1) % disks if m == 2 else p
    order = [(p + m + i) % disks for i in range(disks - m)] if goes_round else [
        slot for slot in range(disks) if slot not in (p, q)]
    chunks = [bytes(chunk)] * disks
    for i, slot in enumerate(order):
        chunks[slot] = data[i * chunk:(i + 1) * chunk]
    for slot in order:
        chunks[p] = xor(chunks[p], chunks[slot])
    if m == 2:
        behind_q = [(q + i) % disks for i in range(1, disks)]
        for exponent, slot in enumerate(slot for slot in behind_q if slot != p):
            chunks[q] = xor(chunks[q], chunks[slot].translate(TABLES[exponent]))
    return chunks


def members(level, layout, disks, chunk, size, data):
    """The data areas of all disks."""
    if level == 1:
        return [data] * disks
    areas = [bytearray(size) for _ in range(disks)]
    if level in (0, 10):
        copies = 1 if level == 0 else layout & 0xFF
        for i in range(len(data) // chunk):
            for copy in range(copies):
                card = i * copies + copy
                at = card // disks * chunk
                areas[card % disks][at:at + chunk] = data[i * chunk:(i + 1) * chunk]
        return areas
    row_data = chunk * (disks - parities(level))
    for row in range(size // chunk):
        chunks = parity_row(level, layout, disks, chunk, row, data[row * row_data:(row + 1) * row_data])
        for slot in range(disks):
            areas[slot][row * chunk:(row + 1) * chunk] = chunks[slot]
    return areas


def bitmap(page, size):
    """A clean one, 8 sectors behind the superblock."""
    struct.pack_into("<I", page, 8, struct.unpack_from("<I", page, 8)[0] | 1)
    struct.pack_into("<i", page, 96, 8)
    seal(page)
    header = bytearray(4096)
    struct.pack_into("<II", header, 0, 0x6D746962, 4)
    header[8:24] = page[16:32]
    struct.pack_into("<QQQIII", header, 24, 1000, 1000, size // 512, 0, 65536, 5)
    bits = (size + 65535) // 65536
    for bit in range(bits, 8 * ((bits + 7) // 8)):  # behind the last: of no meaning
        header[256 + bit // 8] |= 1 << bit % 8
    return header


def make(prefix, level, layout, disks, chunk, size, data, with_bitmap):
    for slot, area in enumerate(members(level, layout, disks, chunk, size, data)):
        page = superblock(level, layout, disks, chunk, size, slot)
        with open(prefix + str(slot), "wb") as out:
            if with_bitmap:
                out.seek(SUPER + 4096)
                out.write(bitmap(page, size))
            out.seek(SUPER)
            out.write(page)
            out.seek(data_start(slot))
            out.write(area)


def change(path, changes):
    """changes(page) and the sum put right."""
    with open(path, "r+b") as disk:
        disk.seek(SUPER)
        page = bytearray(disk.read(4096))
        changes(page)
        seal(page)
        disk.seek(SUPER)
        disk.write(page)


def bad_blocks(path, sector, count):
    def changes(page):
        struct.pack_into("<I", page, 8, struct.unpack_from("<I", page, 8)[0] | 8)
        struct.pack_into("<BHi", page, 185, 0, 8, 72)
        start = struct.unpack_from("<Q", page, 128)[0] + sector
        with open(path, "r+b") as disk:
            disk.seek(SUPER + 72 * 512)
            disk.write(struct.pack("<Q", start << 10 | count) + b"\xff" * (4096 - 8))
    change(path, changes)


def shape(words):
    level, layout, disks, chunk_kib, size_kib = (int(word, 0) for word in words)
    return level, layout, disks, chunk_kib * 1024, size_kib * 1024


def main(words):
    if words[0] == "size":
        print(array_size(*shape(words[1:6])))
    elif words[0] == "make":
        with open(words[7], "rb") as data:
            make(words[1], *shape(words[2:7]), data.read(), "bitmap" in words[8:])
    elif words[0] == "patch":
        path, offset, form, value = words[1:5]
        change(path, lambda page: struct.pack_into(form, page, int(offset), int(value, 0)))
    elif words[0] == "bad":
        bad_blocks(words[1], int(words[2]), int(words[3]))
    else:
        sys.exit(__doc__)


main(sys.argv[1:])
