# A disk that hangs behind an export: others are served, dead clients leave nothing behind, and nothing of them lands later. The disk is
# a file through FUSE, and who serves it is stopped.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/nbd_functions.sh"
cases=0 runs=0
make_disks 2 64M
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
    kill -CONT "$HELPER" || :
    fusermount3 -u -z "$DIR/hanging" || :
    (exit $status)
    cleanup
}
if ! kill -0 "$FUSE" 2>/dev/null; then
    echo "FUSE cannot be mounted here; unit tests have disks that hang"
    exit 0
fi
trap unmount EXIT
cat >"$CONFIG" <<END
daemon = { control = "$SOCKET"; log = "info"; drain = "5 s"; };
arrays = ( { name = "r"; disks = [ "$DIR/hanging" ]; volumes = ( { name = "v"; level = "jbod"; } ); },
           { name = "s"; disks = [ "$DIR/d1" ]; volumes = ( { name = "v"; level = "jbod"; } ); } );
nbd = { listen = [ "127.0.0.1:0" ]; exports = ( { name = "v"; volume = "r/v"; }, { name = "other"; volume = "s/v"; } ); };
END
make_certificates
start_daemon
TLS_ADDRESS=$(tls_address)
for mode in $MODES; do
    theme hang "$HELPER" "$mode"
    theme hang "$HELPER" "$mode" tls
done
stop_daemon
trap cleanup EXIT
fusermount3 -u "$DIR/hanging"
wait "$FUSE" || :
kill "$HELPER"
wait "$HELPER" || :
PIDS=
echo "$cases cases with a disk that hangs"
