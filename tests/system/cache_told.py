"""What connected initiators are told when a battery goes bad and is good again: cache_told.py ISCSI TARGET NBD_URI SCRIPT

SCRIPT is the power source's command; the volume has protection = "battery" and when_bad = "flush".
"""
import os
import sys
import time

import nbd

from scsi_client import CHECK, GOOD, Session

address, target, uri, script = sys.argv[1:]
READY, SENSE_CACHING = bytes(6), bytes([0x1A, 0x08, 0x08, 0, 0xFF, 0])
MODE_CHANGED = bytes([0x2A, 0x01])


def power(status):
    with open(script + ".new", "w") as f:
        f.write(f"#!/bin/sh\nexit {status}\n")
    os.chmod(script + ".new", 0o755)
    os.rename(script + ".new", script)


def wce(session):
    status, data, sense = session.command(SENSE_CACHING, expect=255)
    assert status == GOOD, f"MODE SENSE: status {status}, sense {sense.hex()}"
    return data[6] >> 2 & 1


def hears(session):
    for _ in range(200):
        status, _, sense = session.command(READY)
        if status == CHECK:
            assert sense[2] == 6 and sense[12:14] == MODE_CHANGED, sense.hex()
            assert session.command(READY)[0] == GOOD, "told twice"
            return
        time.sleep(0.1)
    raise AssertionError("no unit attention")


def offers(client):
    assert client.can_flush() and client.can_fua() and client.can_multi_conn()


def client():
    c = nbd.NBD()
    c.connect_uri(uri)
    offers(c)
    return c


safe = client()
with Session(address, target, "iqn.2026-01.org.example:one", 1) as one, \
     Session(address, target, "iqn.2026-01.org.example:two", 2) as two:
    assert wce(one) == 0 and wce(two) == 0, "a healthy battery is no volatile cache"
    power(1)
    hears(one)
    assert wce(one) == 1
    hears(two)
    assert wce(two) == 1
    bad = client()
    for c in (safe, bad):
        offers(c)
        c.pwrite(b"\x66" * 65536, 8 << 20)
        c.flush()
        c.pwrite(b"\x67" * 4096, 9 << 20, nbd.CMD_FLAG_FUA)
    power(0)
    hears(one)
    assert wce(one) == 0 and one.command(READY)[0] == GOOD
    hears(two)
    assert wce(two) == 0
    with Session(address, target, "iqn.2026-01.org.example:three", 3) as three:
        assert wce(three) == 0
    for c in (safe, bad):
        offers(c)
        c.flush()
    power(1)
    hears(one)
    bad.pwrite(b"\x68" * 65536, 10 << 20)
    safe.flush()  # covers what another connection wrote
