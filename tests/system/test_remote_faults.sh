# NBD servers with faults as members: blocks that cannot be read are found and corrected, what a server cannot do is done
# another way or refused, one that is shut down or fails a flush is lost, and one that comes back as another is not taken.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/remotes.sh"

PORT=$(free_ports 1)
URI=nbd://127.0.0.1:$PORT/
serving() { nbdinfo --size "$URI"; }
server() { # flags, settings
    python3 "$(dirname "$0")/faulty_nbd_server.py" "$PORT" "$DIR/far" "$@" "faults=$DIR/faults" 2>"$DIR/server.log" &
    SERVER=$!
    PIDS="$PIDS $SERVER"
    wait_for serving || fail "the server: $(cat "$DIR/server.log")"
}
server_gone() { kill -KILL "$SERVER" && wait "$SERVER" 2>/dev/null || :; }
member() { $CTL disk list | awk -v slot="$1" '$1 == slot {print $2}'; }
fresh() { # flags, settings
    rm -f "$DIR/far" "$DIR/faults" "$DIR/d0"
    truncate -s 64M "$DIR/far" "$DIR/d0"
    DISKS="\"$DIR/d0\", \"$URI\""
    write_config raid1 'size = "32 MiB";'
    server "$@"
}
over() {
    stop_daemon
    server_gone
}

# What is offered.
fresh t
launch_daemon
$CTL apply --yes >"$DIR/out" 2>&1 && fail "a server without flush was taken"
grep -q "$URI cannot be used as a disk: the server offers no flush" "$DIR/out" || fail "no flush: $(cat "$DIR/out")"
server_gone
server fr
$CTL apply --yes >"$DIR/out" 2>&1 && fail "a read-only export was taken"
grep -q "disk $URI is read-only" "$DIR/out" || fail "read-only: $(cat "$DIR/out")"
server_gone
server f block=8192
$CTL apply --yes >"$DIR/out" 2>&1 && fail "blocks of 8 KiB were taken"
grep -q "blocks of 8192 bytes are not supported" "$DIR/out" || fail "blocks: $(cat "$DIR/out")"
over

# The least: flush and nothing else; and everything. Replies come in pieces.
random_file "$DIR/want" 33554432 3
for flags in f futz; do
    fresh "$flags"
    echo split >"$DIR/faults"
    start_daemon
    qemu-io -f raw -c 'write -z 0 1M' -c 'write -z -u 1M 3M' -c 'discard 8M 8M' -c 'write -P 5 -f 20M 64k' "$NBD" \
        >/dev/null || fail "$flags: qemu-io"
    rm "$DIR/faults"
    nbdcopy --flush "$DIR/want" "$NBD" || fail "$flags: a write"
    wait_idle
    $CTL disk fail r/0 >/dev/null
    nbdcopy "$NBD" "$DIR/out"
    cmp "$DIR/want" "$DIR/out" || fail "$flags: other bytes on the remote disk"
    over
done

# Bad blocks: two of 512 bytes, each found exactly, and written anew.
fresh futz
start_daemon
nbdcopy --flush "$DIR/want" "$NBD"
wait_idle
at=$(python3 -c 'import sys
image, disk = open(sys.argv[1], "rb").read(), open(sys.argv[2], "rb").read()
print(disk.find(image[:4096]))' "$DIR/want" "$DIR/far")
printf 'bad %s 512\nbad %s 512\n' $((at + 1048576 + 3 * 512)) $((at + 9 * 1048576)) >"$DIR/faults"
$CTL volume scrub r/v >/dev/null
wait_idle
[ "$(member r/1)" = online ] || fail "'$(member r/1)' after bad blocks"
[ "$($CTL disk list --json | grep -o '"corrected": [0-9]*' | sort | tail -n 1)" = '"corrected": 2' ] ||
    fail "corrected: $($CTL disk list --json | grep corrected)"
rm "$DIR/faults"
$CTL disk fail r/0 >/dev/null
nbdcopy "$NBD" "$DIR/out"
cmp "$DIR/want" "$DIR/out" || fail "other bytes after bad blocks"
over

# Shut down, and a flush that fails.
for fault in shutdown no-flush; do
    fresh futz
    start_daemon
    echo $fault >"$DIR/faults"
    qemu-io -f raw -c 'write -P 1 0 1M' -c flush "$NBD" >/dev/null || fail "$fault: a write"
    [ "$(member r/1)" = failed ] || fail "$fault: '$(member r/1)'"
    over
done

# It comes back within the pause as another disk: never taken for the one it was.
for change in label size; do
    fresh futz
    start_daemon
    qemu-io -f raw -c 'write -P 1 0 1M' -c flush "$NBD" >/dev/null
    wait_idle
    sleep 1
    server_gone
    if [ $change = label ]; then
        printf x | dd of="$DIR/far" bs=1 seek=5000 conv=notrunc status=none
    else
        truncate -s 32M "$DIR/far"
    fi
    server futz
    qemu-io -f raw -c 'write -P 2 0 1M' -c flush "$NBD" >/dev/null || fail "$change: a write"
    [ "$(member r/1)" = failed ] || fail "$change: '$(member r/1)'"
    grep -q "disk $URI is gone: it came back with another $change" "$LOG" || fail "$change: $(tail -n 5 "$LOG")"
    over
done

# Smaller at a start, or read-only: said with its name, and the array goes on without it.
for change in small read-only; do
    fresh futz
    start_daemon
    wait_idle
    stop_daemon
    server_gone
    flags=futz
    [ $change = small ] && truncate -s 32M "$DIR/far" || flags=fr
    server $flags
    launch_daemon
    [ "$(array_state)" = degraded ] || fail "$change: '$(array_state)' at the start"
    grep -q "disk $URI (slot 1 of array r) \(has shrunk to 33554432 bytes\|is read-only\)" "$LOG" || fail "$change: $(cat "$LOG")"
    over
done
