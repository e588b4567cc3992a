# corbelctl rescue: the script it prints is run with stand-ins for losetup, dmsetup and mdadm, and an independent reader
# assembles the volume from the members as Linux would: every level and rotation, whole and with members missing.
. "$(dirname "$0")/functions.sh"
here=$(cd "$(dirname "$0")" && pwd)
python=/usr/bin/python3
[ -x "$python" ] || python=python3
export TRACE="$DIR/trace" TMPDIR="$DIR"

# The stand-ins record words and table lines, separated by tabs.
mkdir "$DIR/bin"
cat >"$DIR/bin/losetup" <<'END'
#!/bin/sh
loop=/dev/loop$(wc -l <"$TRACE")
{ printf 'losetup\t%s\t' "$loop"; printf '%s\t' "$@"; echo; } >>"$TRACE"
echo "$loop"
END
cat >"$DIR/bin/dmsetup" <<'END'
#!/bin/sh
{ printf 'dmsetup\t'; printf '%s\t' "$@"; tr '\n' '\t'; echo; } >>"$TRACE"
END
cat >"$DIR/bin/mdadm" <<'END'
#!/bin/sh
{ printf 'mdadm\t'; printf '%s\t' "$@"; echo; } >>"$TRACE"
END
chmod +x "$DIR"/bin/*

# rescued NAME FILE: what the script in $DIR/script makes of volume NAME is FILE
rescued() {
    : >"$TRACE"
    PATH="$DIR/bin:$PATH" sh "$DIR/script" || fail "$what: the script fails"
    "$python" "$here/rescue_reader.py" "$TRACE" "/dev/mapper/corbel-r-$1" >"$DIR/out" || fail "$what: $(cat "$DIR/script")"
    cmp "$2" "$DIR/out" || fail "$what: volume $1 reads otherwise"
    rm -rf "$DIR"/tmp.*
}
# print_script WORDS...: from the disks alone
print_script() {
    "$BUILD_DIR/corbelctl" --socket "$DIR/nobody" rescue "$@" >"$DIR/script" 2>"$DIR/err" || fail "$what: $(cat "$DIR/err")"
}
# not_printed WORDS...: refused, with a reason, and no commands for volume v
not_printed() {
    got=0
    "$BUILD_DIR/corbelctl" --socket "$DIR/nobody" rescue "$@" >"$DIR/script" 2>"$DIR/err" || got=$?
    [ "$got" = 1 ] || fail "$what: status $got, not 1"
    [ -s "$DIR/err" ] && grep -q '^# no commands: ' "$DIR/script" || fail "$what: no reason in $(cat "$DIR/script")"
    ! grep -q '^[^#]*corbel-r-v' "$DIR/script" || fail "$what: commands all the same"
}
# without SLOTS: the paths of the other disks, into $rest
without() {
    rest=
    i=0
    while [ "$i" -lt "$disks" ]; do
        case " $1 " in *" $i "*) ;; *) rest="$rest $DIR/d$i" ;; esac
        i=$((i + 1))
    done
}

# level | disks | settings | sets of members to do without, separated by commas | sets that are refused
while IFS='|' read -r level disks settings lost refused; do
    rm -f "$DIR"/d[0-9]*
    make_disks "$disks" 40M
    write_config "$level" "size = \"$([ "$level" = span ] && echo 60 || echo 13) MiB\"; $settings"
    what="$level $settings"
    start_daemon
    size=$(nbdinfo --size "$NBD")
    random_file "$DIR/in" "$size" "$disks"
    nbdcopy --flush "$DIR/in" "$NBD"
    wait_idle
    what="$level $settings, by the daemon's status"
    $CTL rescue >"$DIR/script" || fail "$what"
    rescued v "$DIR/in"
    stop_daemon
    cat "$DIR"/d* | cksum >"$DIR/sum"
    what="$level $settings, all members"
    without none
    # shellcheck disable=SC2086
    print_script $rest
    rescued v "$DIR/in"
    oldifs=$IFS
    IFS=,
    for set in $lost; do
        IFS=$oldifs
        what="$level $settings, without $set"
        without "$set"
        # shellcheck disable=SC2086
        print_script $rest
        rescued v "$DIR/in"
        IFS=,
    done
    for set in $refused; do
        IFS=$oldifs
        what="$level $settings, without $set"
        without "$set"
        # shellcheck disable=SC2086
        not_printed $rest
        IFS=,
    done
    IFS=$oldifs
    cat "$DIR"/d* | cksum | cmp -s - "$DIR/sum" || fail "$level $settings: a member was written to"
done <<'END'
jbod|3|slot = 1;||1
span|3|||1
raid0|3|||1
raid1|3||0,1 2|
raid10|4||0,1 2,0 3|0 1
raid10|6|copies = 3; chunk = "128 KiB";|0 1,2 3 4|0 1 2
raid1e|3||0,1,2|0 1
raid1e|5|chunk = "256 KiB";|4,1 3|2 3
raid1e|5|copies = 3; chunk = "512 KiB";|0 1,3 4|
raid3|4||0,3|1 2
raid5|3||0,1,2|0 1
raid5|5|rotation = "left-asymmetric"; chunk = "16 KiB";|0,4|
raid5|4|rotation = "right-symmetric"; chunk = "1 MiB";|1|
raid5|4|rotation = "right-asymmetric";|2|
raid6|4||0,3,0 1,2 3|0 1 2
raid6|6|rotation = "right-symmetric"; chunk = "16 KiB";|5,0 5,2 3|
raid6|5|rotation = "left-asymmetric";|0,4,1 2|0 1 2
raid6|5|rotation = "right-asymmetric";|1,3,0 4|1 2 3
raidtp|5|||0
raidtp|7|chunk = "512 KiB"; rotation = "left-asymmetric";||6
raid30|6|spans = 2;|0,2 3|0 1
raid50|9|spans = 3; chunk = "16 KiB";|4,0 5 7|3 5
raid50|8|spans = 2; rotation = "right-asymmetric";|1 6|
raid60|8|spans = 2;|1,0 1 6 7|0 1 2
raid60|10|spans = 2; rotation = "left-asymmetric";|2 8,5 6|0 1 2
END

# Several volumes on one array, a disk that failed in service, names that a shell would take apart.
what="several volumes"
rm -f "$DIR"/d[0-9]*
disks=4
make_disks 3 40M
truncate -s 40M "$DIR/d 3 \$HOME's"
DISKS="$DISKS, \"$DIR/d 3 \$HOME's\""
EXTRA_VOLUMES=', { name = "m"; level = "raid10"; size = "5 MiB"; }, { name = "j"; level = "jbod"; slot = 3; size = "3 MiB"; }'
EXTRA_EXPORTS=', { name = "m"; volume = "r/m"; }, { name = "j"; volume = "r/j"; }'
write_config raid5 'size = "13 MiB";'
start_daemon
for name in v m j; do
    random_file "$DIR/$name" "$(nbdinfo --size "nbd://$NBD_ADDRESS/$name")" 3
    nbdcopy --flush "$DIR/$name" "nbd://$NBD_ADDRESS/$name"
done
wait_idle
$CTL disk fail r/1 >/dev/null
random_file "$DIR/v" 13631488 4
nbdcopy --flush "$DIR/v" "$NBD"
stop_daemon
print_script "$DIR"/d*
for name in v m j; do rescued "$name" "$DIR/$name"; done
cp "$DIR/d0" "$DIR/copy"
what="a disk that is no member among them"
print_script "$DIR"/d* "$DIR/v"
rescued v "$DIR/v"
grep -q "$DIR/v: no superblock" "$DIR/err" || fail "$what: it is not named: $(cat "$DIR/err")"
what="a copy of a disk beside it"
print_script "$DIR"/d* "$DIR/copy"
rescued v "$DIR/v"
cp "$DIR/d0" "$DIR/other"
what="two copies in place of a disk"
not_printed "$DIR"/d[1-9]* "$DIR/copy" "$DIR/other" "$DIR/d 3 \$HOME's"
what="one slot of the superblock left"
dd if=/dev/zero of="$DIR/d0" bs=4096 count=128 conv=notrunc status=none
print_script "$DIR"/d*
rescued v "$DIR/v"
got=0
"$BUILD_DIR/corbelctl" --socket "$DIR/nobody" rescue "$DIR/v" >"$DIR/script" 2>"$DIR/err" || got=$?
[ "$got" = 1 ] && grep -q "$DIR/v: no superblock" "$DIR/err" || fail "a file that is no member: $got, $(cat "$DIR/err")"
got=0
"$BUILD_DIR/corbelctl" --socket "$DIR/nobody" rescue >"$DIR/script" 2>"$DIR/err" || got=$?
[ "$got" = 4 ] && grep -q 'rescue DISK' "$DIR/err" || fail "no daemon and no disks: $got, $(cat "$DIR/err")"
