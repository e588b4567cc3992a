# What NBD clients are told when the disk beneath fails: lost blocks, and flushes that do not work. The disk is another server's.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/nbd_functions.sh"
. "$(dirname "$0")/remotes.sh"
cases=0 runs=0
PORT=$(free_ports 1)
URI=nbd://127.0.0.1:$PORT/
FAULTS=$DIR/faults
export FAULTS DATA
serving() { nbdinfo --size "$URI"; }
for mode in $MODES; do
    rm -f "$DIR/far"
    truncate -s 64M "$DIR/far"
    "${python:?}" "${here:?}/faulty_nbd_server.py" "$PORT" "$DIR/far" futz "faults=$FAULTS" 2>"$DIR/server.log" &
    SERVER=$!
    PIDS=$SERVER
    wait_for serving || fail "the server: $(cat "$DIR/server.log")"
    DISKS="\"$URI\""
    write_config jbod 'size = "32 MiB";'
    make_certificates
    start_daemon
    TLS_ADDRESS=$(tls_address)
    # Where the volume begins is what finds its bytes on the disk.
    qemu-io -f raw -c 'write -q -P 0x77 0 512' -c flush "$NBD" >"$DIR/io" || fail "$(cat "$DIR/io")"
    DATA=$("$python" -c 'import sys; print(open(sys.argv[1], "rb").read().find(b"\x77" * 512))' "$DIR/far")
    [ "$DATA" -gt 0 ] || fail "the volume is not found on its disk"
    theme errors "$mode" tls
    kill_daemon
    kill -KILL "$SERVER"
    wait "$SERVER" 2>/dev/null || :
done
PIDS=
echo "$cases cases with a disk that fails"
