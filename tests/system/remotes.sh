# Other machines: daemons that each serve one disk, for tests of arrays whose members are elsewhere.
#
#   make_remote NAME BYTES    a config, with ports that stay the same
#   nbd_of NAME, iscsi_of NAME   the URIs of its disk
#   start_remote NAME         ready when it returns
#   remote_pid NAME           to stop it with signals
#   kill_remote NAME          kill -9
#   stop_remotes              all of them
#   load SECONDS, load_over   fio with checksums over the daemon's volume; without an error
REMOTES=

state_is() { [ "$(array_state)" = "$1" ]; }
whole() { state_is optimal && no_jobs; }

load() { # seconds
    fio --name=load --ioengine=nbd --uri="$NBD_UNIX" --bsrange=4k-64k --rw=randrw --iodepth=8 --size=24m --verify=crc32c \
        --verify_fatal=1 --verify_state_save=0 --time_based --runtime="$1" --fsync=16 --output="$DIR/fio.out" \
        >/dev/null 2>&1 &
    FIO=$!
    PIDS="$PIDS $FIO"
}

load_over() { # when
    wait "$FIO" || fail "$1: fio: $(tail -n 20 "$DIR/fio.out")"
    grep -q 'err= 0' "$DIR/fio.out" || fail "$1: fio: $(cat "$DIR/fio.out")"
}

scrub_clean() { # when
    $CTL volume scrub r/v >/dev/null || fail "$1: scrub"
    wait_idle
    $CTL volume scrub-show r/v | grep -q ': 0 blocks' || fail "$1: $($CTL volume scrub-show r/v)"
}

free_ports() { # how many
    python3 - "$1" <<'PORTS'
import socket, sys
sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in sockets:
    s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))
PORTS
}

make_remote() {
    ports=$(free_ports 2)
    set -- "$1" "$2" "${ports% *}" "${ports#* }"
    truncate -s "$2" "$DIR/$1.disk"
    cat >"$DIR/$1.conf" <<CONF
daemon = { control = "$DIR/$1.sock"; log = "info"; drain = "1 s"; memory = "64 MiB"; };
arrays = ( { name = "far"; disks = [ "$DIR/$1.disk" ]; volumes = ( { name = "v"; level = "jbod"; } ); } );
nbd = { listen = [ "127.0.0.1:$3" ]; exports = ( { name = "$1"; volume = "far/v"; } ); };
iscsi = { listen = [ "127.0.0.1:$4" ];
          targets = ( { name = "iqn.2026-01.org.example:$1"; luns = ( { lun = 0; volume = "far/v"; } ); } ); };
CONF
    echo "nbd://127.0.0.1:$3/$1" >"$DIR/$1.nbd"
    echo "iscsi://127.0.0.1:$4/iqn.2026-01.org.example:$1/0" >"$DIR/$1.iscsi"
    REMOTES="$REMOTES $1"
}

remote_ready() { grep -q 'is ready' "$DIR/$1.log"; }

start_remote() {
    : >"$DIR/$1.log"
    "$BUILD_DIR/corbeld" -c "$DIR/$1.conf" 2>"$DIR/$1.log" &
    echo $! >"$DIR/$1.pid"
    PIDS="$PIDS $!"
    wait_for remote_ready "$1" || fail "$1 did not become ready: $(cat "$DIR/$1.log")"
    "$BUILD_DIR/corbelctl" --socket "$DIR/$1.sock" apply --yes >"$DIR/out.remote" 2>&1 ||
        fail "$1: apply: $(cat "$DIR/out.remote")"
}

remote_pid() { cat "$DIR/$1.pid"; }
nbd_of() { cat "$DIR/$1.nbd"; }
iscsi_of() { cat "$DIR/$1.iscsi"; }

kill_remote() {
    kill -KILL "$(remote_pid "$1")"
    wait "$(remote_pid "$1")" 2>/dev/null || :
}

stop_remotes() {
    for name in $REMOTES; do
        kill -TERM "$(remote_pid "$name")" 2>/dev/null || :
        wait "$(remote_pid "$name")" 2>/dev/null || :
    done
    PIDS=
}
