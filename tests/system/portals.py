"""SendTargets, portal groups, redirection and changes by reload: portals.py CTL... -- CONFIG FIRST SECOND TARGET

FIRST is an address of portal group 1, SECOND of group 2, over IPv6. The target TARGET is served at both, TARGET-one at
group 1 only, TARGET-moved sends everybody to SECOND."""
import re, socket, struct, subprocess, sys, time

from scsi_client import GOOD, Session

split = sys.argv.index("--")
ctl, (config, first, second, target) = sys.argv[1:split], sys.argv[split + 1:]


def raw_login(address, keys):
    """(status, the answer's keys as a list, the socket)"""
    host, port = address.rsplit(":", 1)
    s = socket.create_connection((host.strip("[]"), int(port)), timeout=20)
    text = b"".join(k.encode() + b"\0" for k in keys)
    header = bytearray(48)
    header[0:2] = b"\x43\x87"
    header[5:8] = len(text).to_bytes(3, "big")
    header[8] = 0x80
    s.sendall(bytes(header) + text + bytes(-len(text) % 4))
    reply, data = pdu(s)
    return reply[36] << 8 | reply[37], data.decode().split("\0")[:-1], s


def exactly(s, n):
    data = b""
    while len(data) < n:
        part = s.recv(n - len(data))
        assert part, "closed"
        data += part
    return data


def pdu(s):
    header = exactly(s, 48)
    length = int.from_bytes(header[5:8], "big")
    return header, exactly(s, length + -length % 4)[:length]


def discover(address):
    status, _, s = raw_login(address, ["InitiatorName=iqn.2026-01.org.example:finder", "SessionType=Discovery"])
    assert status == 0, hex(status)
    text = b"SendTargets=All\0"
    header = bytearray(48)
    header[0:2] = b"\x04\x80"
    header[5:8] = len(text).to_bytes(3, "big")
    header[16:20] = b"\0\0\0\1"
    header[20:24] = b"\xff\xff\xff\xff"
    struct.pack_into(">II", header, 24, 0, 1)
    s.sendall(bytes(header) + text)
    reply, data = pdu(s)
    assert reply[0] == 0x24 and reply[1] & 0x80, "one PDU"
    s.close()
    targets = {}
    for key in data.decode().split("\0")[:-1]:
        name, value = key.split("=", 1)
        if name == "TargetName":
            addresses = targets.setdefault(value, [])
        else:
            assert name == "TargetAddress", key
            addresses.append(value)
    return targets


def login(address, name):
    status, keys, s = raw_login(address, ["InitiatorName=iqn.2026-01.org.example:x", "TargetName=" + name])
    s.close()
    return status, keys


def reload_config(change):
    with open(config) as file:
        text = file.read()
    changed = change(text)
    assert changed != text
    with open(config, "w") as file:
        file.write(changed)
    done = subprocess.run(ctl + ["reload"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


assert second.startswith("[::1]:"), second
by_first, by_second = discover(first), discover(second)
assert by_first[target] == [first + ",1", second + ",2"], by_first
assert by_second[target] == [second + ",2", first + ",1"], by_second
assert by_first[target + "-one"] == by_second[target + "-one"] == [first + ",1"], by_second
for address, name, wanted in ((first, target, 0), (second, target, 0), (first, target + "-one", 0),
                              (second, target + "-one", 0x203), (first, target + "-moved", 0x101)):
    status, keys = login(address, name)
    assert status == wanted, (address, name, hex(status))
    if status == 0:
        assert "TargetPortalGroupTag=%d" % (1 if address == first else 2) in keys, keys
    if status == 0x101:
        assert keys == ["TargetAddress=" + second], keys
print("SendTargets, logins and tags at [::1] and 127.0.0.1 as the groups say; sent elsewhere with status 0101")

# A LUN more: those who are there hear of it by a unit attention.
with Session(second, target, isid=5) as s:
    told = reload_config(lambda text: text.replace("/* more */", ', { lun = 1; volume = "r/v"; }'))
    assert 'taken over: iSCSI target "%s LUN 1"' % target in told, told
    status, _, sense = s.command(bytes(6))
    assert status == 2 and (sense[2], sense[12], sense[13]) == (6, 0x3F, 0x0E), sense.hex()
    status, data, _ = s.command(bytes([0xA0] + [0] * 8 + [64, 0, 0]), expect=64)
    assert status == GOOD and int.from_bytes(data[:4], "big") == 16, data.hex()

# Its address changes, then it is removed: who is there is asked to log out, and cut when the time is over.
told = reload_config(lambda text: re.sub(r'redirect = "[^"]*"', 'redirect = "192.0.2.7:3260"; redirect_permanent = true', text))
assert "redirect" in told, told
assert login(first, target + "-moved") == (0x102, ["TargetAddress=192.0.2.7:3260"])
s = Session(first, target + "-one", isid=6)
start = time.monotonic()
told = reload_config(lambda text: re.sub(r"(?m)^.*-one\".*\n", "", text))
assert 'removal of iSCSI target "%s-one"' % target in told and "not taken over" not in told, told
assert time.monotonic() - start < 2, "the reload does not wait for the sessions"
assert login(first, target + "-one")[0] == 0x203 and target + "-one" not in discover(first)
header, _ = s._receive()
assert (header[0], header[36]) == (0x32, 1), header.hex()
assert s.command(bytes(6))[0] == GOOD
header, _ = s._receive()
assert (header[0], header[36]) == (0x32, 2), header.hex()
assert s.socket.recv(1) == b""
assert time.monotonic() - start > 1.5
print("a LUN more is told by 3F/0E; a target that is removed has its sessions log out, and cuts them in the time that is said")
