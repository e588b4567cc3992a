# Two data threads, two arrays: each array has its home; a target with LUNs on both reaches one through a proxy. And the
# engine of threads, for machines without io_uring.
. "$(dirname "$0")/functions.sh"
for engine in auto threads; do
    rm -f "$DIR"/d* "$DIR"/e*
    make_disks 4 64M
    first=$DISKS
    DISKS=
    for i in 0 1 2; do
        truncate -s 64M "$DIR/e$i"
        DISKS="$DISKS${DISKS:+, }\"$DIR/e$i\""
    done
    second=$DISKS
    DISKS=$first
    EXTRA_DAEMON="reactors = 2; io = \"$engine\";"
    EXTRA_LUNS=', { lun = 7; volume = "s/w"; }'
    EXTRA_EXPORTS=', { name = "w"; volume = "s/w"; }'
    write_config raid6 'size = "32 MiB";'
    sed -i "s|^);\$|, { name = \"s\"; disks = [ $second ]; volumes = ( { name = \"w\"; level = \"raid5\"; size = \"32 MiB\"; } ); } );|" "$CONFIG"
    start_daemon
    random_file "$DIR/a" 33554432 1
    random_file "$DIR/b" 33554432 2
    nbdcopy --flush "$DIR/a" "nbd://$NBD_ADDRESS/v" &
    copy=$!
    nbdcopy --flush "$DIR/b" "nbd://$NBD_ADDRESS/w" || fail "$engine: copy to w"
    wait "$copy" || fail "$engine: copy to v"
    qemu-img compare -f raw -F raw "$DIR/a" "iscsi://$ISCSI_ADDRESS/$TARGET/0" >/dev/null || fail "$engine: LUN 0 at home"
    qemu-img compare -f raw -F raw "$DIR/b" "iscsi://$ISCSI_ADDRESS/$TARGET/7" >/dev/null || fail "$engine: LUN 7 through the proxy"
    qemu-io -f raw -c 'write -P 9 4096 1048576' -c 'read -P 9 4096 1048576' -c 'write -z 0 65536' -c 'flush' -c 'read -P 0 0 65536' \
        "iscsi://$ISCSI_ADDRESS/$TARGET/7" >"$DIR/io" 2>&1 || fail "$engine: $(cat "$DIR/io")"
    grep -q 'verification failed' "$DIR/io" && fail "$engine: $(cat "$DIR/io")"
    $CTL disk fail s/1 >/dev/null || fail "$engine: disk fail"
    nbdcopy "nbd://$NBD_ADDRESS/w" "$DIR/out"
    cmp -i 4194304 "$DIR/b" "$DIR/out" || fail "$engine: degraded"
    stop_daemon
done
