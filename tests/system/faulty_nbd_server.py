"""An NBD server with faults, for tests of members on other machines: simple replies, fixed newstyle, a file.

faulty_nbd_server.py PORT FILE FLAGS [NAME=VALUE...]
    FLAGS     letters of what it offers: f flush, u FUA, t trim, z zeroes, r read-only
    block=N   minimum block size
    faults=F  a file that says what goes wrong, looked at for each request: lines of
                  bad OFFSET LENGTH   reads that touch these bytes answer EIO, until a write covers them
                  shutdown            everything answers ESHUTDOWN
                  no-flush            flushes answer EIO
                  full OFFSET LENGTH  writes that touch these bytes answer ENOSPC
                  split               replies are sent in two pieces, some time apart
                  slow MS             writes and flushes take so long, one after the other
"""
import os
import socket
import struct
import sys
import threading
import time

MAGIC, OPTION, REPLY = 0x4E42444D41474943, 0x49484156454F5054, 0x3E889045565A9
READ, WRITE, DISC, FLUSH, TRIM, ZEROES = 0, 1, 2, 3, 4, 6
EIO, EINVAL, ENOSPC, ESHUTDOWN = 5, 22, 28, 108
FLAG = {"r": 1 << 1, "f": 1 << 2, "u": 1 << 3, "t": 1 << 5, "z": 1 << 6}


class Gone(Exception):
    pass


class Server:
    def __init__(self, port, path, flags, **settings):
        self.file = os.open(path, os.O_RDWR)
        self.size = os.fstat(self.file).st_size
        self.flags = 1 | sum(FLAG[letter] for letter in flags)
        self.block = int(settings.get("block", 1))
        self.faults_path = settings.get("faults", "")
        self.mended = []
        self.listener = socket.create_server(("127.0.0.1", port))

    def faults(self):
        try:
            with open(self.faults_path) as file:
                return [line.split() for line in file]
        except OSError:
            return []

    def says(self, word):
        return any(fault and fault[0] == word for fault in self.faults())

    def bad_blocks(self, offset, length):
        """Of 512 bytes, that these bytes touch."""
        return [block for fault in self.faults() if fault and fault[0] == "bad"
                for block in range(int(fault[1]), int(fault[1]) + int(fault[2]), 512)
                if offset < block + 512 and block < offset + length and block not in self.mended]

    def is_full(self, offset, length):
        return any(fault and fault[0] == "full" and offset < int(fault[1]) + int(fault[2]) and int(fault[1]) < offset + length
                   for fault in self.faults())

    def mend(self, offset, length):
        self.mended += self.bad_blocks(offset, length)

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.talk, args=(connection,), daemon=True).start()

    def talk(self, connection):
        try:
            if self.handshake(connection):
                while self.request(connection):
                    pass
        except (Gone, OSError):
            pass
        connection.close()

    @staticmethod
    def take(connection, count):
        data = b""
        while len(data) < count:
            more = connection.recv(count - len(data))
            if not more:
                raise Gone
            data += more
        return data

    def handshake(self, connection):
        connection.sendall(struct.pack(">QQH", MAGIC, OPTION, 3))
        self.take(connection, 4)
        while True:
            _, option, length = struct.unpack(">QII", self.take(connection, 16))
            self.take(connection, length)

            def reply(kind, data=b"", option=option):
                connection.sendall(struct.pack(">QIII", REPLY, option, kind, len(data)) + data)

            if option == 7:  # GO
                reply(3, struct.pack(">HQH", 0, self.size, self.flags))
                reply(3, struct.pack(">HIII", 3, self.block, max(4096, self.block), 1 << 25))
                reply(1)
                return True
            if option == 2:  # ABORT
                reply(1)
                return False
            reply(1 << 31 | 1)

    def answer(self, connection, cookie, error, data=b""):
        reply = struct.pack(">IIQ", 0x67446698, error, cookie) + data
        if self.says("split"):
            half = len(reply) // 2
            connection.sendall(reply[:half])
            time.sleep(0.02)
            reply = reply[half:]
        connection.sendall(reply)

    def request(self, connection):
        _, flags, command, cookie, offset, length = struct.unpack(">IHHQQI", self.take(connection, 28))
        data = self.take(connection, length) if command == WRITE else b""
        if command == DISC:
            return False
        error = 0
        if command in (WRITE, FLUSH):
            time.sleep(sum(float(fault[1]) for fault in self.faults() if fault and fault[0] == "slow") / 1000)
        if self.says("shutdown"):
            error = ESHUTDOWN
        elif command in (WRITE, ZEROES) and self.is_full(offset, length):
            error = ENOSPC
        elif command == READ:
            error = EIO if self.bad_blocks(offset, length) else 0
            data = b"" if error else os.pread(self.file, length, offset)
        elif command == WRITE:
            os.pwrite(self.file, data, offset)
            self.mend(offset, length)
        elif command == FLUSH:
            error = EIO if self.says("no-flush") else 0
        elif (command == TRIM and self.flags & FLAG["t"]) or (command == ZEROES and self.flags & FLAG["z"]):
            os.pwrite(self.file, bytes(length), offset)
            self.mend(offset, length)
        else:
            error = EINVAL
        if flags & 1 and not self.flags & FLAG["u"]:
            error = EINVAL
        if (offset | length) % self.block != 0 and command != FLUSH:
            error = EINVAL
        self.answer(connection, cookie, error, data if command == READ else b"")
        return True


if __name__ == "__main__":
    Server(int(sys.argv[1]), sys.argv[2], sys.argv[3], **dict(word.split("=", 1) for word in sys.argv[4:])).serve()
