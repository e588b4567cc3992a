# A disk that hangs behind an export: others are served, dead clients leave nothing behind, and nothing of them lands later. First the disk is
# a server's that turns the order of what waits round when it goes on; then a file through FUSE, and who serves it is stopped.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/nbd_functions.sh"
. "$(dirname "$0")/remotes.sh"
cases=0 runs=0
make_disks 2 64M
serve() { # THE DISK THAT HANGS
    cat >"$CONFIG" <<END
daemon = { control = "$SOCKET"; log = "info"; drain = "5 s"; };
arrays = ( { name = "r"; disks = [ "$1" ]; volumes = ( { name = "v"; level = "jbod"; } ); },
           { name = "s"; disks = [ "$DIR/d1" ]; volumes = ( { name = "v"; level = "jbod"; } ); } );
nbd = { listen = [ "127.0.0.1:0" ]; exports = ( { name = "v"; volume = "r/v"; }, { name = "other"; volume = "s/v"; } ); };
END
    make_certificates
    start_daemon
    TLS_ADDRESS=$(tls_address)
}
PORT=$(free_ports 1)
truncate -s 64M "$DIR/far"
"${python:?}" "${here:?}/reordering_nbd_server.py" "$PORT" "$DIR/far" "$DIR/hold" 2>"$DIR/server.log" &
FAR=$!
PIDS=$FAR
serving() { nbdinfo --size "nbd://127.0.0.1:$PORT/"; }
wait_for serving || fail "no server: $(cat "$DIR/server.log")"
serve "nbd://127.0.0.1:$PORT/"
for mode in simple extended; do theme hang "$DIR/hold" "$mode"; done
stop_daemon
kill "$FAR"
wait "$FAR" || :
truncate -s 0 "$DIR/d1"
truncate -s 64M "$DIR/d1"

mkdir "$DIR/mount"
qemu-nbd -f raw -t -k "$DIR/helper.sock" --shared=8 "$DIR/d0" &
HELPER=$!
PIDS=$HELPER
wait_for test -S "$DIR/helper.sock" || fail "no helper"
: >"$DIR/hanging"
nbdfuse "$DIR/hanging" --unix "$DIR/helper.sock" 2>"$DIR/fuse.log" &
FUSE=$!
PIDS="$HELPER $FUSE"
mounted() { [ "$(stat -c %s "$DIR/hanging")" = 67108864 ] || ! kill -0 "$FUSE" 2>/dev/null; }
wait_for mounted || fail "nbdfuse neither mounts nor ends: $(cat "$DIR/fuse.log")"
unmount() { # also after a failure
    status=$?
    set +e
    kill -CONT "$HELPER" || :
    fusermount3 -u -z "$DIR/hanging" || :
    (exit $status)
    cleanup
}
if ! kill -0 "$FUSE" 2>/dev/null; then
    echo "FUSE cannot be mounted here; $cases cases with a disk that turns the order round"
    exit 0
fi
trap unmount EXIT
serve "$DIR/hanging"
theme hang "$HELPER" structured tls
stop_daemon
trap cleanup EXIT
fusermount3 -u "$DIR/hanging"
wait "$FUSE" || :
kill "$HELPER"
wait "$HELPER" || :
PIDS=
echo "$cases cases with a disk that hangs"
