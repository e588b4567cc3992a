"""What connected initiators are told when a volume gets another size: resize_told.py ISCSI TARGET LUN BYTES COMMAND...

COMMAND makes the change; BYTES is the size then.
"""
import struct
import subprocess
import sys
import time

from scsi_client import CHECK, GOOD, Session

address, target, lun, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
READY, CAPACITY10 = bytes(6), bytes([0x25]) + bytes(9)
CAPACITY16 = bytes([0x9E, 0x10]) + bytes(8) + struct.pack(">I", 32) + bytes(2)


def blocks(session):
    status, data, sense = session.command(CAPACITY16, expect=32)
    assert status == GOOD, f"READ CAPACITY(16): status {status}, sense {sense.hex()}"
    status, short, _ = session.command(CAPACITY10, expect=8)
    assert status == GOOD and struct.unpack(">I", short[:4])[0] == struct.unpack(">Q", data[:8])[0]
    return struct.unpack(">Q", data[:8])[0] + 1, struct.unpack(">I", data[8:12])[0]


def read_block(session, lba, length):
    cdb = bytes([0x88, 0]) + struct.pack(">QI", lba, 1) + bytes(2)
    return session.command(cdb, expect=length)


def hears(session):
    for _ in range(200):
        status, _, sense = session.command(READY)
        if status == CHECK:
            assert sense[2] == 6 and sense[12:14] == bytes([0x2A, 0x09]), sense.hex()
            assert session.command(READY)[0] == GOOD, "told twice"
            return
        time.sleep(0.1)
    raise AssertionError("no unit attention")


with Session(address, target, "iqn.2026-01.org.example:one", 1, lun) as one, \
     Session(address, target, "iqn.2026-01.org.example:two", 2, lun) as two:
    before, block = blocks(one)
    assert before * block != size
    subprocess.run(sys.argv[5:], check=True, stdout=subprocess.DEVNULL)
    for session in (one, two):
        hears(session)
        now, _ = blocks(session)
        assert now * block == size, f"{now} blocks of {block}"
        status, data, sense = read_block(session, now - 1, block)
        assert status == GOOD and len(data) == block, f"the last block: {status}, {sense.hex()}"
        status, _, sense = read_block(session, now, block)
        assert status == CHECK and sense[2] == 5 and sense[12:14] == bytes([0x21, 0x00]), sense.hex()
with Session(address, target, "iqn.2026-01.org.example:three", 3, lun) as three:
    assert blocks(three)[0] * block == size
