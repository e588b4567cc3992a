"""Raw NBD sockets and TLS: what may not be sent in clear, old versions of TLS, STARTTLS by the document.

    nbd_tls.py PORT FOLDER PID               FOLDER has ca.pem, alice.pem, alice.key, allow.sock, off.sock
    nbd_tls.py PORT FOLDER fingerprint       of the server's certificate
    nbd_tls.py PORT FOLDER PID stop          with clients in every state of TLS, SIGTERM ends the daemon in seconds
"""
import hashlib
import os
import signal
import socket
import ssl
import struct
import sys
import time

PORT, FOLDER, PID = int(sys.argv[1]), sys.argv[2], sys.argv[3]
EXPORT_NAME, ABORT, LIST, STARTTLS, INFO, GO, STRUCTURED_REPLY, SET_META = 1, 2, 3, 5, 6, 7, 8, 10
ACK, SERVER = 1, 2
FIGURES = []
POLICY, INVALID, TLS_REQD, UNKNOWN = (1 << 31 | n for n in (2, 3, 5, 6))


def context(**versions):
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    c.check_hostname = False
    c.load_verify_locations(FOLDER + "/ca.pem")
    c.load_cert_chain(FOLDER + "/alice.pem", FOLDER + "/alice.key")
    for name, value in versions.items():
        setattr(c, name, value)
    return c


class Client:
    def __init__(self, where=None, flags=3):
        if where is None:
            self.s = socket.create_connection(("127.0.0.1", PORT), 20)
        else:
            self.s = socket.socket(socket.AF_UNIX)
            self.s.settimeout(20)
            self.s.connect(f"{FOLDER}/{where}.sock")
        assert self.take(18) == b"NBDMAGICIHAVEOPT\0\3"
        self.s.sendall(struct.pack(">I", flags))

    def take(self, n):
        got = b""
        while len(got) < n:
            part = self.s.recv(n - len(got))
            if not part:
                raise EOFError(got)
            got += part
        return got

    def ask(self, option, data=b""):
        self.s.sendall(b"IHAVEOPT" + struct.pack(">II", option, len(data)) + data)

    def reply(self, option):
        magic, of, kind, size = struct.unpack(">QIII", self.take(20))
        assert magic == 0x3E889045565A9 and of == option, (hex(magic), of)
        return kind, self.take(size)

    def option(self, option, data=b""):
        self.ask(option, data)
        return self.reply(option)[0]

    def info(self, name, option=INFO):
        self.ask(option, struct.pack(">I", len(name)) + name + b"\0\0")
        kind, data = self.reply(option)
        return kind if kind >> 31 else self.reply(option)[0]

    def start_tls(self, c=None):
        assert self.option(STARTTLS) == ACK
        self.s = (c or context()).wrap_socket(self.s)
        return self

    def closed(self):
        try:
            return self.s.recv(1) == b""
        except ConnectionResetError:
            return True


def secured_twice_is_invalid():
    c = Client().start_tls()
    assert c.option(STARTTLS) == INVALID
    assert c.info(b"v") == ACK


def data_to_starttls_is_invalid():
    for where in (None, "allow"):
        c = Client(where)
        assert c.option(STARTTLS, b"x") == INVALID
        assert c.start_tls().info(b"v") == ACK


def starttls_where_there_is_none_is_a_matter_of_policy():
    c = Client("off")
    assert c.option(STARTTLS) == POLICY
    assert c.info(b"v") == ACK
    assert c.info(b"safe") == UNKNOWN, "no TLS_REQD where there is no TLS"


def forced_tls_answers_all_but_starttls_and_abort():
    c = Client()
    for option in (LIST, STRUCTURED_REPLY, SET_META, 11, 99):
        assert c.option(option) == TLS_REQD, option
    for option in (INFO, GO):
        assert c.info(b"v", option) == TLS_REQD
        assert c.info(b"none", option) == TLS_REQD
    assert c.option(ABORT) == ACK and c.closed()


def forced_tls_closes_at_export_name():
    c = Client()
    c.ask(EXPORT_NAME, b"v")
    assert c.closed()


def selective_tls_is_asked_for_by_the_export():
    c = Client("allow")
    assert c.info(b"v") == ACK and c.info(b"safe") == TLS_REQD and c.info(b"safe", GO) == TLS_REQD
    assert c.start_tls().info(b"safe") == ACK
    c = Client("allow")
    c.ask(EXPORT_NAME, b"safe")
    assert c.closed()


def without_fixed_newstyle_there_is_no_tls():
    c = Client("allow", 0)
    c.ask(STARTTLS)
    assert c.closed()


def structured_replies_are_forgotten():
    c = Client("allow")
    assert c.option(STRUCTURED_REPLY) == ACK
    c.start_tls()
    name = b"v"
    c.ask(GO, struct.pack(">I", len(name)) + name + b"\0\0")
    flags = struct.unpack(">H", c.reply(GO)[1][10:12])[0]
    assert not flags & 1 << 7, "SEND_DF goes with structured replies"


def bytes_in_clear_behind_starttls_end_the_connection():
    c = Client()
    hidden = b"IHAVEOPT" + struct.pack(">II", STRUCTURED_REPLY, 0)
    c.s.sendall(b"IHAVEOPT" + struct.pack(">II", STARTTLS, 0) + hidden)
    assert c.closed()


def bytes_in_clear_after_the_answer_end_the_connection():
    c = Client()
    assert c.option(STARTTLS) == ACK
    c.ask(LIST)
    got = b""
    try:
        while part := c.s.recv(100):
            got += part
    except ConnectionResetError:
        pass
    assert b"\x00\x03\xe8\x89" not in got, "nothing but an alert of TLS"


def old_versions_are_refused():
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        old = context(minimum_version=version, maximum_version=version)
        old.set_ciphers("ALL:@SECLEVEL=0")
        try:
            Client().start_tls(old)
        except (ssl.SSLError, ConnectionResetError, EOFError):
            continue
        raise AssertionError(version)


def versions_of_today_are_spoken():
    for version, name in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
        c = Client().start_tls(context(minimum_version=version, maximum_version=version))
        assert c.s.version() == name and c.info(b"v") == ACK


def go(c, name=b"v"):
    assert c.info(name, GO) == ACK
    return c


def a_goodbye_is_answered_by_one():
    c = go(Client().start_tls())
    c.s.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 2, 1, 0, 0))
    assert c.s.recv(1) == b"", "close_notify, or recv() fails"


def torn_and_merged_records_are_one_stream():
    c = go(Client().start_tls())
    write = struct.pack(">IHHQQI", 0x25609513, 0, 1, 7, 4096, 40960) + bytes(range(256)) * 160
    for at in range(0, 100):
        c.s.sendall(write[at : at + 1])
    c.s.sendall(write[100:])
    assert c.take(16) == struct.pack(">IIQ", 0x67446698, 0, 7)
    c.s.sendall(b"".join(struct.pack(">IHHQQI", 0x25609513, 0, 0, i, 4096, 40960) for i in range(50)))
    for i in range(50):
        got = c.take(40976)
        assert got[16:] == write[28:] and got[:8] == struct.pack(">II", 0x67446698, 0)


def a_client_that_reads_late_gets_all():
    c = go(Client().start_tls())
    c.s.sendall(b"".join(struct.pack(">IHHQQI", 0x25609513, 0, 0, i, 0, 4 << 20) for i in range(16)))
    time.sleep(1)  # until all buffers are full, in the middle of a record
    for i in range(16):
        c.take(16 + (4 << 20))


def contexts_are_forgotten():
    context_of_v = struct.pack(">I", 1) + b"v" + struct.pack(">II", 1, 15) + b"base:allocation"
    c = Client("allow")
    assert c.option(STRUCTURED_REPLY) == ACK
    c.ask(SET_META, context_of_v)
    assert c.reply(SET_META)[0] == 4 and c.reply(SET_META)[0] == ACK
    c.start_tls()
    c.ask(SET_META, context_of_v)
    assert c.reply(SET_META)[0] == INVALID, "not without structured replies"
    assert c.option(STRUCTURED_REPLY) == ACK
    go(c)
    c.s.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 7, 1, 0, 4096))
    magic, flags, kind, cookie, size = struct.unpack(">IHHQI", c.take(20))
    assert kind >> 15 and struct.unpack(">I", c.take(size)[:4])[0] == 22, "BLOCK_STATUS without a context"


def resident():
    with open(f"/proc/{PID}/statm") as f:
        return int(f.read().split()[1]) * 4096


def sanitized():
    with open(f"/proc/{PID}/maps") as f:
        return "asan" in f.read()


def descriptors():
    return len(os.listdir(f"/proc/{PID}/fd"))


def cpu():
    with open(f"/proc/{PID}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(wish):
    end = time.monotonic() + 10
    while not wish():
        assert time.monotonic() < end, wish.__name__
        time.sleep(0.05)


def idle_connections_hold_little_and_leave_nothing():
    open_before = descriptors()
    until(lambda: descriptors() <= open_before)
    go(Client().start_tls())
    before = resident()
    clients = [go(Client("allow").start_tls()) for _ in range(200)]
    held = (resident() - before) / 200
    FIGURES.append("idle ones hold %.0f KiB each" % (held / 1024))
    assert held < 300 * 1024 or sanitized(), held
    for c in clients:
        c.s.close()
    until(lambda: descriptors() <= open_before)


def who_leaves_without_a_word_costs_nothing():
    open_before = descriptors()
    for state in range(3):
        for _ in range(10 if state else 2):  # refusals in the log are limited
            c = Client()
            if state == 0:
                assert c.option(STARTTLS) == ACK
            elif state == 1:
                c.start_tls()
            else:
                go(c.start_tls()).s.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 1, 1, 0, 1 << 20) + b"half")
            socket.socket(fileno=os.dup(c.s.fileno())).shutdown(socket.SHUT_RDWR)
            c.s.close()
    until(lambda: descriptors() <= open_before)
    before = cpu()
    time.sleep(1)
    assert cpu() - before < 0.3, "it is busy with nobody"


def stop():
    waiting = [Client() for _ in range(3)]
    asked = [Client() for _ in range(3)]
    assert all(c.option(STARTTLS) == ACK for c in asked)
    idle = [go(Client().start_tls()) for _ in range(3)]
    half = [go(Client().start_tls()) for _ in range(3)]
    for c in half:
        c.s.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 1, 1, 0, 1 << 20) + b"half")
    begun = time.monotonic()
    os.kill(int(PID), signal.SIGTERM)
    for c in waiting + asked + idle + half:
        c.closed()
    assert time.monotonic() - begun < 8, "the time to drain is 5 s"
    print("SIGTERM with clients in every state of TLS: %.1f s" % (time.monotonic() - begun))


def main():
    if sys.argv[4:] == ["stop"]:
        stop()
        return
    if PID == "fingerprint":
        print(hashlib.sha256(Client().start_tls().s.getpeercert(True)).hexdigest())
        return
    cases = [f for f in list(globals().values()) if callable(f) and f.__module__ == "__main__" and f not in (Client, context, go, main, stop, resident, sanitized, descriptors, cpu, until)]
    for case in cases:
        try:
            case()
        except BaseException:
            print("in", case.__name__)
            raise
    Client().start_tls().info(b"v")
    print(f"{len(cases)} cases of STARTTLS and TLS;", *FIGURES)


main()
