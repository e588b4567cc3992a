"""Raw peers for test_limits.sh: limits.py NBD_SOCKET                      many that hold pages
                                limits.py NBD_SOCKET CONTROL_SOCKET PID   many that hold descriptors"""
import os, socket, struct, sys, time

OPT = 0x49484156454F5054


def connect(path):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(15)
    s.connect(path)
    return s


def exactly(s, n):
    data = b""
    while len(data) < n:
        part = s.recv(n - len(data))
        if not part:
            raise EOFError("closed after %d of %d bytes" % (len(data), n))
        data += part
    return data


def go():
    s = connect(sys.argv[1])
    exactly(s, 18)
    s.sendall(struct.pack(">IQIII", 3, OPT, 7, 7, 1) + b"v" + struct.pack(">H", 0))
    while True:
        _, _, kind, length = struct.unpack(">QIII", exactly(s, 20))
        exactly(s, length)
        if kind == 1:
            return s
        assert kind == 3, hex(kind)


def request(kind, off, length):
    return struct.pack(">IHHQQI", 0x25609513, 0, kind, 1, off, length)


def read_as_a_fresh_client(length, within):
    start = time.time()
    s = go()
    s.sendall(request(0, 0, length))
    assert struct.unpack(">IIQ", exactly(s, 16)) == (0x67446698, 0, 1)
    exactly(s, length)
    s.close()
    took = time.time() - start
    assert took < within, "a read of %d bytes took %.1f s" % (length, took)


def pages():
    """100 connections announce more than there is memory, and send next to nothing of it."""
    held = [go() for _ in range(100)]
    for s in held:
        s.sendall(request(1, 0, 16 << 20) + b"x" * 1000)
    read_as_a_fresh_client(512, 10)
    read_as_a_fresh_client(65536, 10)
    for s in held:
        s.close()
    read_as_a_fresh_client(1 << 20, 10)
    print("100 held writes of 16 MiB")


def cpu_ticks(pid):
    fields = open("/proc/%s/stat" % pid).read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def descriptors(control, pid):
    held = []
    for path in [sys.argv[1]] * 80 + [control] * 8:
        held.append(connect(path))
    while len(os.listdir("/proc/%s/fd" % pid)) < 60:
        time.sleep(0.02)
    before = cpu_ticks(pid)
    time.sleep(1)
    used = (cpu_ticks(pid) - before) / os.sysconf("SC_CLK_TCK")
    assert used < 0.5, "%.2f s of CPU in a second without descriptors" % used
    for s in held:
        s.close()
    print("88 connections for 64 descriptors")


if len(sys.argv) > 2:
    descriptors(sys.argv[2], sys.argv[3])
else:
    pages()
