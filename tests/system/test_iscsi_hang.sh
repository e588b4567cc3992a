# A disk that hangs holds up neither aborts nor reinstatement nor others: it is a file through FUSE, and who serves it is stopped.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/hang.sh"
python=/usr/bin/python3
[ -x "$python" ] || python=python3
export PYTHONDONTWRITEBYTECODE=1
make_disks 2 64M
if ! mount_hanging; then
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
    "$python" "$(dirname "$0")/iscsi_hang.py" "$ISCSI_ADDRESS" "$TARGET" "$PID" "$HELPER" $digests >"$DIR/cases" 2>&1 ||
        fail "$(grep -v '^ok ' "$DIR/cases")"
    cat "$DIR/cases"
done
stop_daemon
unmount_hanging
