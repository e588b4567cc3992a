"""A thousand logins that do not get on: stalled_logins.py ADDRESS TARGET PID COUNT KIB

Beside them others log in, and how long that takes is printed. Then the target drops them all, and that is waited for.
Of COUNT + 200 connections COUNT must be let in (half_open), and each may hold KIB of memory."""
import os, select, socket, struct, sys, time

host, port = sys.argv[1].rsplit(":", 1)
target, pid, count, kib = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])


def exactly(s, n):
    data = b""
    while len(data) < n:
        part = s.recv(n - len(data))
        assert part, "closed"
        data += part
    return data


def login(number):
    """A whole login and logout of a well-behaved initiator; seconds."""
    start = time.monotonic()
    s = socket.create_connection((host, int(port)), timeout=20)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    text = "InitiatorName=iqn.2026-01.org.example:good%d\0TargetName=%s\0" % (number, target)
    bhs = bytearray(48)
    bhs[0], bhs[1] = 0x43, 0x87
    bhs[5:8] = struct.pack(">I", len(text))[1:]
    s.sendall(bytes(bhs) + text.encode() + b"\0" * (-len(text) % 4))
    answer = exactly(s, 48)
    assert answer[36:38] == b"\0\0", answer.hex()
    s.close()
    return time.monotonic() - start


def resident():
    with open("/proc/%d/statm" % pid) as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def still_open(sockets):
    """Those that the target has not closed."""
    poll = select.poll()
    by_fd = {s.fileno(): s for s in sockets}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    gone = {fd for fd, _ in poll.poll(0)}
    return [s for fd, s in by_fd.items() if fd not in gone]


for n in range(20):
    login(n)
before = resident()
stalled = []
for n in range(count + 200):
    s = socket.create_connection((host, int(port)), timeout=20)
    try:
        s.sendall(b"\x43\x87" + b"\0" * (10 if n % 2 else 0))
    except OSError:
        pass
    stalled.append(s)
deadline = time.monotonic() + 20
while len(still_open(stalled)) > count and time.monotonic() < deadline:
    time.sleep(0.01)
standing = still_open(stalled)
assert len(standing) == count, "%d of %d half-open connections stand" % (len(standing), count)
held = resident() - before
# A place for those who are well-behaved: at the limit nobody comes in.
for s in standing[:4]:
    s.close()
standing = standing[4:]
times = []
deadline = time.monotonic() + 20
while not times:
    try:
        times.append(login(100))
    except (AssertionError, ConnectionError):
        assert time.monotonic() < deadline, "places that became free are not given to others"
        time.sleep(0.01)
times += [login(101 + n) for n in range(50)]
beside = len(still_open(standing))
assert beside == len(standing), "%d of %d stalled connections stood while others logged in" % (beside, len(standing))
assert held / count <= kib * 1024, "%.1f KiB for each stalled login" % (held / 1024 / count)
print("50 of 50 logins beside %d stalled ones, in %.1f ms at the median, %.1f ms at most; %.1f KiB for each stalled one" %
      (beside, sorted(times)[len(times) // 2] * 1000, max(times) * 1000, held / 1024 / count))
deadline = time.monotonic() + 60
while still_open(standing):
    assert time.monotonic() < deadline, "%d stalled logins were not dropped" % len(still_open(standing))
    time.sleep(0.05)
login(999)
