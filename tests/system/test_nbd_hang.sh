# A disk that hangs behind an export: others are served, dead clients leave nothing behind, and nothing of them lands later. First the disk is
# a server's that turns the order of what waits round when it goes on; then a file through FUSE, and who serves it is stopped.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/nbd_functions.sh"
. "$(dirname "$0")/remotes.sh"
. "$(dirname "$0")/hang.sh"
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

if ! mount_hanging; then
    echo "FUSE cannot be mounted here; $cases cases with a disk that turns the order round"
    exit 0
fi
serve "$DIR/hanging"
theme hang "$HELPER" structured tls
stop_daemon
unmount_hanging
echo "$cases cases with a disk that hangs"
