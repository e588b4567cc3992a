"""A small iSCSI initiator for tests: one session, one command at a time, data at once or in one R2T.

    with Session("127.0.0.1:3260", "iqn...", name="iqn.client", isid=1) as s:
        status, data, sense = s.command(bytes(6))
"""
import socket
import struct


class Session:
    def __init__(self, address, target, name="iqn.2026-01.org.example:client", isid=1, lun=0):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=30)
        self.lun = struct.pack(">H6x", lun)
        self.itt = self.cmdsn = self.expstatsn = 1
        keys = {"InitiatorName": name, "TargetName": target, "SessionType": "Normal", "ImmediateData": "Yes",
                "InitialR2T": "Yes", "MaxRecvDataSegmentLength": "262144"}
        text = b"".join(f"{k}={v}".encode() + b"\0" for k, v in keys.items())
        header = bytearray(48)
        header[0:2] = b"\x43\x87"
        header[8:14] = b"\x80" + isid.to_bytes(5, "big")
        self._send(header, text)
        reply, _ = self._receive()
        assert reply[0] == 0x23 and reply[36] == 0, f"login refused: {reply[36:38].hex()}"
        self.cmdsn = struct.unpack(">I", reply[28:32])[0]
        while self.command(bytes(6))[2][2:3] == b"\x06":  # what is new to every session
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def _send(self, header, data=b""):
        header[5:8] = len(data).to_bytes(3, "big")
        struct.pack_into(">III", header, 16, self.itt, *struct.unpack(">II", header[20:28]))
        self.socket.sendall(bytes(header) + data + bytes(-len(data) % 4))

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            assert more, "the target closed the connection"
            data += more
        return data

    def _receive(self):
        header = self._exactly(48)
        length = int.from_bytes(header[5:8], "big")
        data = self._exactly(length + -length % 4)[:length]
        if header[0] in (0x21, 0x23, 0x25) and (header[0] != 0x25 or header[1] & 1):
            self.expstatsn = struct.unpack(">I", header[24:28])[0] + 1
        return header, data

    def command(self, cdb, out=b"", expect=0):
        """(status, data in, sense); `expect`: bytes that may come."""
        self.itt += 1
        header = bytearray(48)
        header[0] = 0x01
        header[1] = 0x80 | (0x20 if out else 0x40 if expect else 0)
        header[8:16] = self.lun
        struct.pack_into(">III", header, 20, len(out) or expect, self.cmdsn, self.expstatsn)
        header[32:32 + len(cdb)] = cdb
        self.cmdsn += 1
        self._send(header, out)
        got = b""
        while True:
            reply, data = self._receive()
            if reply[0] == 0x25:
                got += data
                if reply[1] & 1:
                    return reply[3], got, b""
            elif reply[0] == 0x21:
                sense = data[2:] if len(data) > 2 else b""
                return reply[3], got, sense


GOOD, CHECK, CONFLICT = 0, 2, 0x18


def persist_out(session, action, kind=0, key=0, action_key=0, flags=0):
    parameters = struct.pack(">QQIB3x", key, action_key, 0, flags)
    status, _, sense = session.command(bytes([0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0]), parameters)
    return status, sense


def persist_in(session, action):
    status, data, sense = session.command(bytes([0x5E, action, 0, 0, 0, 0, 0, 0x10, 0, 0]), expect=4096)
    assert status == GOOD, f"PERSISTENT RESERVE IN: status {status}, sense {sense.hex()}"
    return data
