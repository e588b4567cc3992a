"""Persistent reservations before and after a loss of power: reservations.py ADDRESS TARGET LUN before|after|released"""
import struct
import sys

from scsi_client import CONFLICT, GOOD, Session, persist_in, persist_out

REGISTER, RESERVE, RELEASE, CLEAR, WRITE_EXCLUSIVE, APTPL = 0, 1, 2, 3, 1, 1
address, target, lun, when = sys.argv[1:]
write = bytes([0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0])


def keys(session):
    data = persist_in(session, 0)
    generation, length = struct.unpack(">II", data[:8])
    return generation, [struct.unpack(">Q", data[i:i + 8])[0] for i in range(8, 8 + length, 8)]


with Session(address, target, "iqn.2026-01.org.example:one", 1, int(lun)) as one, \
     Session(address, target, "iqn.2026-01.org.example:two", 2, int(lun)) as two:
    if when == "before":
        assert persist_out(one, REGISTER, action_key=0xABC, flags=APTPL)[0] == GOOD
        assert persist_out(two, REGISTER, action_key=0xDEF, flags=APTPL)[0] == GOOD
        assert persist_out(one, REGISTER, key=0xABC, action_key=0x123, flags=APTPL)[0] == GOOD
        assert persist_out(one, RESERVE, WRITE_EXCLUSIVE, key=0x123)[0] == GOOD
    if when in ("before", "after"):
        assert keys(two) == (3, [0x123, 0xDEF]), keys(two)
        held = persist_in(two, 1)
        assert struct.unpack(">Q", held[8:16])[0] == 0x123 and held[21] == WRITE_EXCLUSIVE, held.hex()
        assert two.command(write, bytes(512))[0] == CONFLICT
        assert one.command(write, bytes(512))[0] == GOOD
    if when == "after":  # from now on nothing is to be kept
        assert persist_out(two, REGISTER, key=0xDEF, action_key=0xDEF, flags=0)[0] == GOOD
    if when == "released":
        assert keys(two) == (0, []), keys(two)
        assert two.command(write, bytes(512))[0] == GOOD
