# A file system made in a 1 GiB volume through NBD is read back and checked through iSCSI, healthy and without two disks.
. "$(dirname "$0")/functions.sh"
make_disks 6 384M
write_config raid6 'size = "1 GiB";'
start_daemon
mkdir "$DIR/files"
random_file "$DIR/files/a" 5000000 1
random_file "$DIR/files/b" 12345 2
cp "$(dirname "$0")"/*.sh "$DIR/files/"
# In place through FUSE where that may be mounted; else made in a file and copied.
: >"$DIR/mount"
nbdfuse "$DIR/mount" "$NBD" 2>"$DIR/fuse.log" &
FUSE=$!
PIDS=$FUSE
mounted() { [ "$(stat -c %s "$DIR/mount")" = 1073741824 ] || ! kill -0 "$FUSE" 2>/dev/null; }
wait_for mounted || fail "nbdfuse neither mounts nor ends: $(cat "$DIR/fuse.log")"
if kill -0 "$FUSE" 2>/dev/null; then
    mke2fs -q -F -t ext4 -d "$DIR/files" "$DIR/mount"
    fusermount3 -u "$DIR/mount"
    wait "$FUSE" || fail "nbdfuse: $(cat "$DIR/fuse.log")"
    echo "mke2fs in place through FUSE"
else
    truncate -s 1G "$DIR/image"
    mke2fs -q -F -t ext4 -d "$DIR/files" "$DIR/image"
    qemu-img convert -n -f raw -O raw "$DIR/image" "$NBD"
    echo "mke2fs in a file, copied: FUSE cannot be mounted here"
fi
PIDS=
iscsi-ls -s "iscsi://$ISCSI_ADDRESS/" | grep -q "$TARGET" || fail "iscsi-ls does not list the target"

check() {
    rm -f "$DIR/back"
    qemu-img convert -f raw -O raw "$ISCSI" "$DIR/back"
    e2fsck -fn "$DIR/back" >"$DIR/fsck" 2>&1 || fail "e2fsck: $(cat "$DIR/fsck")"
    for file in a b run.sh; do
        debugfs -R "dump $file $DIR/dumped" "$DIR/back" 2>/dev/null
        cmp "$DIR/files/$file" "$DIR/dumped" || fail "$file came back otherwise"
    done
}
check
$CTL disk fail r/1 >/dev/null
$CTL disk fail r/4 >/dev/null
check

# And the other way: through iSCSI in, through NBD out, degraded.
random_file "$DIR/more" 67108864 3
qemu-img convert -n -f raw -O raw "$DIR/more" "$ISCSI"
nbdcopy "$NBD" "$DIR/back"
cmp -n 67108864 "$DIR/more" "$DIR/back" || fail "what was written through iSCSI reads otherwise through NBD"
stop_daemon
