# Where NBD listens: IPv4 and IPv6, Unix sockets with their mode and group, sockets that systemd passes; how many may
# negotiate at once, and how many an export takes.
. "$(dirname "$0")/functions.sh"
python=/usr/bin/python3
[ -x "$python" ] || python=python3
make_disks 2 64M
config() { # $1: listen, $2: more
    cat >"$CONFIG" <<EOF
daemon = { control = "$SOCKET"; log = "info"; drain = "5 s"; };
arrays = ( { name = "r"; disks = [ $DISKS ]; volumes = ( { name = "v"; level = "raid1"; size = "16 MiB"; } ); } );
nbd = { listen = [ $1 ]; half_open = 6; half_open_per_address = 4; $2
        exports = ( { name = ""; volume = "r/v"; description = "default"; }, { name = "v"; volume = "r/v"; connections = 2; },
                    { name = "secret"; volume = "r/v"; hidden = true; } ); };
EOF
}
group=$(id -G | tr ' ' '\n' | tail -n 1)
config '"127.0.0.1:0", "[::1]:0"' "listeners = ( { address = \"unix:$DIR/own.sock\"; mode = \"0604\"; group = \"$group\"; } );"
start_daemon
v4=$($CTL status | sed -n 's/^nbd listens on \(127.*\)/\1/p') v6=$($CTL status | sed -n 's/^nbd listens on \(\[.*\)/\1/p')
size() { nbdinfo --size "$1" 2>&1; }
for uri in "nbd://$v4" "nbd://$v6" "nbd://$v4/v" "nbd://$v4/secret" "nbd+unix:///v?socket=$DIR/own.sock"; do
    [ "$(size "$uri")" = 16777216 ] || fail "$uri: $(size "$uri")"
done
[ "$(stat -c '%a %g' "$DIR/own.sock")" = "604 $group" ] || fail "mode and group: $(stat -c '%a %g' "$DIR/own.sock")"
nbdinfo --list "nbd://$v4" | grep -q secret && fail "a hidden export is listed"

cat >"$DIR/limits.py" <<'EOF'
import socket, struct, sys
host, port, path = sys.argv[1].rsplit(":", 1) + [sys.argv[2]]
def dial(unix=False):
    s = socket.socket(socket.AF_UNIX) if unix else socket.create_connection((host, int(port)), 10)
    if unix:
        s.connect(path)
    s.settimeout(10)
    return s
def greeted(s):
    return len(s.recv(18)) == 18
def go(s, name=b"v"):
    assert greeted(s)
    s.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">III", 7, 6 + len(name), len(name)) + name + b"\0\0")
    while True:
        kind, size = struct.unpack(">II", s.recv(20, socket.MSG_WAITALL)[12:])
        s.recv(size, socket.MSG_WAITALL) if size else None
        if kind != 3:
            return kind
first = [dial() for _ in range(4)]
assert all(greeted(s) for s in first)
assert not greeted(dial()), "a fifth negotiation of one address"
others = [dial(True) for _ in range(2)]
assert all(greeted(s) for s in others), "others have room"
assert not greeted(dial(True)), "and no more than there is"
for s in first + others:
    s.close()
import time
time.sleep(0.3)
serving = [dial() for _ in range(2)]
assert [go(s) for s in serving] == [1, 1]
assert go(dial()) == 1 << 31 | 2, "the export takes two: ERR_POLICY"
assert go(dial(), b"") == 1, "another one takes more"
print("limits of negotiations and of an export hold")
EOF
"$python" "$DIR/limits.py" "$v4" "$DIR/own.sock"
grep -q 'NBD: refused: someone at 127.0.0.1:[0-9]*, to NBD: too many negotiations of its address are under way' "$LOG" || fail "not logged"
grep -q 'NBD: refused: someone at 127.0.0.1:[0-9]*, to v: the export has as many connections as may be' "$LOG" || fail "not logged"
stop_daemon
[ ! -e "$DIR/own.sock" ] || fail "the socket's file is left"

# --- sockets of systemd: two of one name and one of another, which nobody asked for ---

config '"systemd:nbd"' ''
cat >"$DIR/activate.py" <<'EOF'
import os, socket, subprocess, sys, time
config, folder, daemon = sys.argv[1:4]
tcp = socket.create_server(("127.0.0.1", 0))
unix = socket.socket(socket.AF_UNIX)
unix.bind(folder + "/passed.sock")
unix.listen()
other = socket.create_server(("127.0.0.1", 0))
open(folder + "/passed.port", "w").write(str(tcp.getsockname()[1]))
with open(folder + "/waited", "w") as waited:  # a client that is there before the daemon
    subprocess.Popen(["nbdinfo", "--size", "nbd://127.0.0.1:%d" % tcp.getsockname()[1]], stdout=waited, stderr=waited)
time.sleep(0.3)
kept = [os.dup(s.fileno()) for s in (tcp, other, unix)]
kept = [os.dup2(os.dup2(fd, 100 + i), 100 + i) for i, fd in enumerate(kept)]
for i in range(3):
    os.dup2(100 + i, 3 + i, inheritable=True)
names = sys.argv[4]
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="3", LISTEN_FDNAMES=names)
os.execv(daemon, [daemon, "-c", config])
EOF
activate() { # NAMES
    : >"$LOG"
    rm -f "$DIR/passed.sock"
    "$python" "$DIR/activate.py" "$CONFIG" "$DIR" "$BUILD_DIR/corbeld" "$1" 2>"$LOG" &
    PID=$!
    wait_for daemon_ready || fail "no daemon"
}
activate nbd:other:nbd
port=$(cat "$DIR/passed.port")
wait_for grep -q . "$DIR/waited" && [ "$(cat "$DIR/waited")" = 16777216 ] || fail "who waited for the daemon got: $(cat "$DIR/waited")"
[ "$(size "nbd://127.0.0.1:$port")" = 16777216 ] || fail "over systemd's TCP socket: $(size "nbd://127.0.0.1:$port")"
[ "$(size "nbd+unix:///v?socket=$DIR/passed.sock")" = 16777216 ] || fail "over systemd's Unix socket"
[ "$($CTL status | grep -c '^nbd listens on')" = 2 ] || fail "listeners: $($CTL status | grep listens)"
stop_daemon
[ -e "$DIR/passed.sock" ] || fail "a socket of systemd was removed"
activate other:other:other
status=0
wait "$PID" || status=$?
PID=
[ "$status" != 0 ] || fail "it started without its socket"
grep -q "corbel.conf:[0-9]*: nbd.listen: systemd passed no socket named \"nbd\"" "$LOG" || fail "not said: $(cat "$LOG")"

# Exports and no address at all are most likely a mistake: that is said, at the start.
sed -i 's/nbd = { listen = \[[^]]*\];/nbd = {/' "$CONFIG"
launch_daemon
grep -q 'warning: there are NBD exports, and no address' "$LOG" || fail "no address, and not a word: $(cat "$LOG")"
stop_daemon
