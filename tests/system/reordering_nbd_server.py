"""An NBD server that turns the order of writes round: reordering_nbd_server.py PORT FILE HOLD

While the file HOLD exists all that changes FILE, and all flushes, wait; when it is gone they are done, the last one first.
Reads go on. So two writes of the same place in flight together end with the earlier one, which a disk may do."""
import os, socket, struct, sys, threading, time

READ, WRITE, DISC, FLUSH, TRIM, ZEROES = 0, 1, 2, 3, 4, 6
OPTION, REPLY = 0x49484156454F5054, 0x3E889045565A9
FLAGS = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 8  # flush, FUA, trim, zeroes, several connections

file = os.open(sys.argv[2], os.O_RDWR)
size = os.fstat(file).st_size
hold, lock = sys.argv[3], threading.Lock()
waiting = []  # of all connections, in order of arrival


def exactly(s, n):
    data = bytearray()
    while len(data) < n:
        part = s.recv(n - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def negotiate(s):
    s.sendall(struct.pack(">QQH", 0x4E42444D41474943, OPTION, 3))
    exactly(s, 4)
    while True:
        _, option, length = struct.unpack(">QII", exactly(s, 16))
        data = exactly(s, length)
        if option == 1:
            s.sendall(struct.pack(">QH", size, FLAGS))
            return
        if option in (6, 7):
            s.sendall(struct.pack(">QIIIHQH", REPLY, option, 3, 12, 0, size, FLAGS))
        s.sendall(struct.pack(">QIII", REPLY, option, 1 if option in (2, 6, 7) else 1 << 31 | 1, 0))
        if option in (2, 7):
            return


def carry_out(s, sending, type, cookie, offset, length, data):
    out = b""
    if type == READ:
        out = os.pread(file, length, offset)
    elif type != FLUSH:
        os.pwrite(file, data if type == WRITE else bytes(length), offset)
    try:
        with sending:
            s.sendall(struct.pack(">IIQ", 0x67446698, 0, cookie) + out)
    except OSError:
        pass


def serve(s):
    sending = threading.Lock()
    try:
        negotiate(s)
        while True:
            magic, _, type, cookie, offset, length = struct.unpack(">IHHQQI", exactly(s, 28))
            data = exactly(s, length) if type == WRITE else b""
            if type == DISC:
                return
            request = (s, sending, type, cookie, offset, length, data)
            with lock:
                if type != READ and (waiting or os.path.exists(hold)):
                    waiting.append(request)
                    continue
                carry_out(*request)
    except (EOFError, OSError):
        pass
    finally:
        s.close()


def release():
    while True:
        time.sleep(0.005)
        with lock:
            if waiting and not os.path.exists(hold):
                while waiting:
                    carry_out(*waiting.pop())


threading.Thread(target=release, daemon=True).start()
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
