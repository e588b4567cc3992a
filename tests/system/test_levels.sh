# Every level over both protocols: healthy, then without as many disks as it bears.
. "$(dirname "$0")/functions.sh"
# level, disks, settings, disks to fail
while IFS='|' read -r level disks settings lost; do
    rm -f "$DIR"/d*
    make_disks "$disks" 64M
    write_config "$level" "size = \"24 MiB\"; $settings"
    start_daemon
    random_file "$DIR/in" 25165824 "$disks"
    nbdcopy --flush "$DIR/in" "$NBD"
    for slot in $lost; do $CTL disk fail "r/$slot" >/dev/null || fail "$level: disk fail r/$slot"; done
    rm -f "$DIR/out"
    qemu-img convert -f raw -O raw "$ISCSI" "$DIR/out"
    cmp "$DIR/in" "$DIR/out" || fail "$level: healthy write, degraded read"
    qemu-io -f raw -c 'write -P 0x11 512 200704' -c 'write -P 0x22 1048576 3000320' -c 'read -P 0x11 512 200704' \
        -c 'read -P 0x22 1048576 3000320' "$ISCSI" >"$DIR/io" 2>&1 || fail "$level: $(cat "$DIR/io")"
    grep -q 'verification failed' "$DIR/io" && fail "$level: degraded write and read"
    stop_daemon
done <<'EOF'
jbod|3|slot = 1;|
span|3||
raid0|3||
raid1|3||0 2
raid10|4||0 3
raid1e|5||1
raid3|4||2
raid5|3||0
raid5|5|rotation = "right-asymmetric"; chunk = "16 KiB";|4
raid6|5|rotation = "left-asymmetric";|1 2
raidtp|6||0 3 5
raid30|6|spans = 2;|0 4
raid50|6|spans = 2;|2 5
raid60|8|spans = 2;|0 2 5 7
EOF
