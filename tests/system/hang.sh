# A disk that hangs at will, for tests: the file $DIR/hanging through FUSE; $HELPER, who serves it, is stopped and let go on with signals.
#
#   mount_hanging       64 MiB, those of $DIR/d0; false: FUSE cannot be mounted here
#   unmount_hanging
hanging_is_decided() { [ "$(stat -c %s "$DIR/hanging")" = 67108864 ] || ! kill -0 "$FUSE" 2>/dev/null; }

mount_hanging() {
    mkdir "$DIR/mount"
    qemu-nbd -f raw -t -k "$DIR/helper.sock" --shared=8 "$DIR/d0" &
    HELPER=$!
    PIDS=$HELPER
    wait_for test -S "$DIR/helper.sock" || fail "no helper"
    : >"$DIR/hanging"
    nbdfuse "$DIR/hanging" --unix "$DIR/helper.sock" 2>"$DIR/fuse.log" &
    FUSE=$!
    PIDS="$HELPER $FUSE"
    wait_for hanging_is_decided || fail "nbdfuse neither mounts nor ends: $(cat "$DIR/fuse.log")"
    kill -0 "$FUSE" 2>/dev/null || return 1
    trap unmount_after_failure EXIT
}

unmount_after_failure() {
    status=$?
    set +e
    kill -CONT "$HELPER" || :
    fusermount3 -u -z "$DIR/hanging" || :
    (exit $status)
    cleanup
}

unmount_hanging() {
    trap cleanup EXIT
    fusermount3 -u "$DIR/hanging"
    wait "$FUSE" || :
    kill "$HELPER"
    wait "$HELPER" || :
    PIDS=
}
