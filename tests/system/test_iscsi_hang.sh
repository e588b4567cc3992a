# A disk that hangs holds up neither aborts nor reinstatement nor others: it is a file through FUSE, and who serves it is stopped.
. "$(dirname "$0")/functions.sh"
python=/usr/bin/python3
[ -x "$python" ] || python=python3
export PYTHONDONTWRITEBYTECODE=1
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
if ! kill -0 "$FUSE" 2>/dev/null; then
    echo "FUSE cannot be mounted here; unit tests have disks that hang"
    exit 0
fi
cat >"$CONFIG" <<END
daemon = { control = "$SOCKET"; log = "info"; drain = "5 s"; };
arrays = ( { name = "r"; disks = [ "$DIR/hanging" ]; volumes = ( { name = "v"; level = "jbod"; } ); },
           { name = "s"; disks = [ "$DIR/d1" ]; volumes = ( { name = "v"; level = "jbod"; } ); } );
iscsi = { listen = [ "127.0.0.1:0" ]; targets = ( { name = "$TARGET"; luns = ( { lun = 0; volume = "r/v"; }, { lun = 1; volume = "s/v"; } ); } ); };
END
start_daemon
for digests in '' digests; do
    "$python" "$(dirname "$0")/iscsi_hang.py" "$ISCSI_ADDRESS" "$TARGET" "$PID" "$HELPER" $digests >"$DIR/cases" 2>&1 || {
        kill -CONT "$HELPER"
        fail "$(grep -v '^ok ' "$DIR/cases")"
    }
    cat "$DIR/cases"
done
stop_daemon
fusermount3 -u "$DIR/hanging"
wait "$FUSE" || :
kill "$HELPER"
wait "$HELPER" || :
PIDS=
