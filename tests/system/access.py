"""CHAP with raw PDUs, for test_access.sh: access.py ADDRESS TARGET

The target wants user "host" (mutual: "disk"), or users named as binary values are written. Each case is a function."""
import base64, hashlib, os, socket, struct, sys

host, port = sys.argv[1].rsplit(":", 1)
target = sys.argv[2]
HOST_SECRET, DISK_SECRET = b"correct horse battery", b"staple of the target"
HASHES = {5: "md5", 6: "sha1", 7: "sha256", 8: "sha3_256"}
NAMES = ["InitiatorName=iqn.2026-01.org.example:raw", "TargetName=" + target]
SECURITY, OPERATIONAL, FULL, T = 0, 4, 3, 0x80


def connect():
    s = socket.create_connection((host, int(port)), timeout=10)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def exactly(s, n):
    data = b""
    while len(data) < n:
        part = s.recv(n - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def login(s, flags, keys):
    """One login request; (status, flags, keys of the answer)."""
    data = b"".join(k.encode("latin-1") + b"\0" for k in keys)
    bhs = bytearray(48)
    bhs[0], bhs[1] = 0x43, flags
    bhs[5:8] = struct.pack(">I", len(data))[1:]
    bhs[8:14] = b"\x80\0\0\0\0\7"
    s.sendall(bytes(bhs) + data + b"\0" * (-len(data) % 4))
    bhs = exactly(s, 48)
    assert bhs[0] == 0x23, bhs.hex()
    length = int.from_bytes(bhs[5:8], "big")
    text = exactly(s, length + (-length % 4))[:length]
    pairs = [p.split(b"=", 1) for p in text.split(b"\0") if p]
    return int.from_bytes(bhs[36:38], "big"), bhs[1], {k.decode(): v.decode() for k, v in pairs}


def response(algorithm, identifier, secret, challenge):
    return hashlib.new(HASHES[algorithm], bytes([identifier]) + secret + challenge).digest()


def ask(s, algorithms="5", names=NAMES, flags=SECURITY):
    """To the challenge: (algorithm, identifier, challenge)."""
    status, got, keys = login(s, flags, names + ["AuthMethod=CHAP,None"])
    assert status == 0 and keys["AuthMethod"] == "CHAP" and not got & T, (status, keys)
    status, got, keys = login(s, flags, ["CHAP_A=" + algorithms])
    if status != 0:
        return status, None, None
    assert not got & T and keys["CHAP_C"].startswith("0x")
    return int(keys["CHAP_A"]), int(keys["CHAP_I"]), bytes.fromhex(keys["CHAP_C"][2:])


def finish(algorithms="5", user="host", secret=HOST_SECRET, form="hex", extra=(), flags=T | SECURITY | FULL, change=None):
    """A whole login; (status, keys of the last answer)."""
    s = connect()
    algorithm, identifier, challenge = ask(s, algorithms)
    if challenge is None:
        return algorithm, {}
    answer = response(algorithm, identifier, secret, challenge)
    answer = change(answer) if change else answer
    text = "0x" + answer.hex() if form == "hex" else "0b" + base64.b64encode(answer).decode()
    status, got, keys = login(s, flags, ["CHAP_N=" + user, "CHAP_R=" + text, *[e(identifier, challenge) for e in extra]])
    assert (status == 0) == bool(got & T), (hex(status), got)
    s.close()
    return status, keys


# --- the suite's iSCSICHAP, by the names of its tests ---

def case_simple():
    assert finish("5,6,7,8") == finish("5")
    assert finish("5,6,7,8")[0] == 0


def case_invalid():
    assert finish("56")[0] == 0x0201
    assert finish("")[0] == 0x0201


def case_hex_name():
    assert finish(user="0x686f7374")[0] == 0
    assert finish(user="host", secret=DISK_SECRET)[0] == 0x0201


def case_base64():
    assert finish(form="base64")[0] == 0


def case_base64_oversize():
    assert finish(form="base64", change=lambda r: r + b"\0")[0] == 0x0201
    assert finish(form="base64", change=lambda r: r * 100)[0] == 0x0201


def case_base64_name():
    assert finish(user="0baG9zdA==")[0] == 0


# --- and more ---

def case_each_algorithm_and_first_of_the_list():
    for algorithms, chosen, size in (("5", 5, 16), ("6", 6, 20), ("7", 7, 32), ("8", 8, 32), ("8,7,6,5", 8, 32), ("9,55,6", 6, 20)):
        s = connect()
        algorithm, _, challenge = ask(s, algorithms)
        assert algorithm == chosen and 16 <= len(challenge) == size <= 32, (algorithms, algorithm)
        s.close()
        assert finish(algorithms)[0] == 0, algorithms


def case_mutual_with_t_all_along():
    """As iPXE does: T=1 in every request; the target's proof comes with the answer that grants it."""
    for algorithms in "5678":
        s = connect()
        algorithm, identifier, challenge = ask(s, algorithms, flags=T | SECURITY | FULL)
        theirs = os.urandom(1024 if algorithms == "7" else 16)
        status, got, keys = login(s, T | SECURITY | FULL, [
            "CHAP_N=host", "CHAP_R=0x" + response(algorithm, identifier, HOST_SECRET, challenge).hex(),
            "CHAP_I=77", "CHAP_C=0x" + theirs.hex()])
        assert status == 0 and got & T, hex(status)
        assert keys["CHAP_N"] == "disk" and keys["CHAP_R"] == "0x" + response(algorithm, 77, DISK_SECRET, theirs).hex()
        s.close()


def case_reflection():
    own = [lambda i, c: "CHAP_I=%d" % i, lambda i, c: "CHAP_C=0x" + c.hex()]
    assert finish(extra=own)[0] == 0x0201
    assert finish(secret=DISK_SECRET)[0] == 0x0201


def case_ways_round():
    for flags, keys in ((T | OPERATIONAL | FULL, []), (T | SECURITY | FULL, []), (T | SECURITY | 1, ["AuthMethod=None"]),
                        (SECURITY, ["AuthMethod=KRB5"]), (SECURITY, ["CHAP_N=host", "CHAP_R=0x00"])):
        s = connect()
        status, got, _ = login(s, flags, NAMES + keys)
        assert status == 0x0201 and not got & T, (keys, hex(status))
        s.close()


def case_statuses():
    for keys, wanted in ((["InitiatorName=iqn.2026-01.org.example:stranger", "TargetName=" + target], 0x0202),
                         (["InitiatorName=iqn.2026-01.org.example:raw", "TargetName=iqn.2026-01.org.example:none"], 0x0203),
                         (["TargetName=" + target], 0x0207), (["SessionType=Discovery"] + NAMES[:1], 0x0201)):
        s = connect()
        status, _, _ = login(s, T | OPERATIONAL | FULL, keys)
        assert status == wanted, (keys, hex(status))
        s.close()


cases = [(name, function) for name, function in list(globals().items()) if name.startswith("case_")]
for name, function in cases:
    try:
        function()
    except Exception as error:
        print("%s: %s: %s" % (name, type(error).__name__, error))
        raise
print("%d cases of CHAP" % len(cases))
