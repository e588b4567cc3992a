"""A stand-in for systemd's file descriptor store (sd_notify(3), FDSTORE=1).

    fd_store.py keep NOTIFY ASK        keeps what is sent to the socket NOTIFY; says what it does on standard output
    fd_store.py run ASK PROGRAM WORD.. becomes the program, passed what is kept as systemd would pass it
"""
import array
import os
import selectors
import socket
import sys

FIRST = 3


def received(connection, size=4096, most=64):
    data, ancillary, _, _ = connection.recvmsg(size, socket.CMSG_SPACE(4 * most))
    fds = array.array("i")
    for level, kind, payload in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(payload[:len(payload) // 4 * 4])
    return data.decode(), list(fds)


def take(store, text, fds):
    words = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    name = words.get("FDNAME", "stored")
    if words.get("FDSTORE") == "1":
        print("stored", name, os.fstat(fds[0]).st_size, flush=True)
        store[name] = fds.pop()
    if words.get("FDSTOREREMOVE") == "1":
        print("removed", name, name in store, flush=True)
        if name in store:
            os.close(store.pop(name))
    for fd in fds:  # of a barrier, too: that is its answer
        os.close(fd)


def keep(notify_path, ask_path):
    store = {}
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(notify_path)
    ask = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    ask.bind(ask_path)
    ask.listen()
    wait = selectors.DefaultSelector()
    wait.register(notify, selectors.EVENT_READ)
    wait.register(ask, selectors.EVENT_READ)
    while True:
        for key, _ in wait.select():
            if key.fileobj is notify:
                take(store, *received(notify))
                continue
            peer, _ = ask.accept()
            with peer:
                peer.sendmsg([(":".join(store) or "\n").encode()],
                             [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", store.values()))] if store else [])


def run(ask_path, program):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as ask:
        ask.connect(ask_path)
        names, fds = received(ask)
    if fds:
        high = [os.dup2(fd, 100 + i) for i, fd in enumerate(fds)]
        for i, fd in enumerate(high):
            os.dup2(fd, FIRST + i, inheritable=True)
            os.close(fd)
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(fds)), LISTEN_FDNAMES=names)
    os.execv(program[0], program)


if sys.argv[1] == "keep":
    keep(*sys.argv[2:])
else:
    run(sys.argv[2], sys.argv[3:])
