# A disk that is being rebuilt is put online once more: it is in service already, and never taken for one that ran on by itself.
. "$(dirname "$0")/functions.sh"
make_disks 5 64M
write_config raid6 'size = "64 MiB";'
start_daemon
wait_idle
qemu-io -f raw -c 'write -P 5 0 64M' "$NBD" >/dev/null
for _ in 1 2 3 4 5 6; do
    $CTL disk fail r/1 >/dev/null || fail "disk fail"
    dd if=/dev/zero of="$DIR/d1" bs=1M count=1 conv=notrunc status=none
    dd if=/dev/zero of="$DIR/d1" bs=1M seek=63 count=1 conv=notrunc status=none
    $CTL disk online r/1 >/dev/null || fail "disk online"
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        $CTL disk online "$DIR/d1" >"$DIR/out" 2>&1 && fail "a disk that is being rebuilt was put online"
        grep -q 'in service already' "$DIR/out" || fail "online of a disk that is being rebuilt: $(cat "$DIR/out")"
    done
    wait_idle
done
stop_daemon
