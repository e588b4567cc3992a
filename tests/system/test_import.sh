# Arrays of Linux md, made byte by byte, are read where they are: each level and rotation, whole, degraded, with a stale
# member, with bad blocks; by NBD and iSCSI, read-only, and not a byte of the disks changes. What cannot be taken is
# refused with its reason.
. "$(dirname "$0")/functions.sh"
here=$(cd "$(dirname "$0")" && pwd)
python=/usr/bin/python3
[ -x "$python" ] || python=python3
export PYTHONDONTWRITEBYTECODE=1
md() { "$python" "$here/md_writer.py" "$@"; }
checked() { "$BUILD_DIR/corbelctl" --socket "$DIR/nobody" import check "$@" >"$DIR/check" 2>&1; }
sums() { (cd "$DIR" && sha256sum md-*) >"$DIR/$1"; }

# name | level | layout | disks | chunk KiB | size KiB | disks to do without | bitmap
cat >"$DIR/shapes" <<'END'
stripe|0|0|3|64|2048||
pair|1|0|2|0|2080|1|bitmap
four|4|0|4|64|2048|3|
la|5|0|4|64|2048|0|
ra|5|1|5|32|2048|2|bitmap
ls|5|2|3|512|4096|1|bitmap
rs|5|3|4|64|2048|3|
first|5|4|4|64|2048|2|
last|5|5|4|64|2048|2|
six|6|2|5|64|2048|0 3|bitmap
sixla|6|0|6|64|2048|1 4|
sixra|6|1|5|32|2048|2 3|
sixrs|6|3|4|64|2048|0 2|
sixfirst|6|4|5|64|2048|3 4|
ten|10|0x102|4|64|2048|0 3|bitmap
odd|10|0x102|3|64|2048|1|
twins|5|2|2|64|2048|0|
END
import() { # LIST NAME FILES...: a line in a list of imports
    list=$1 name=$2 paths=''
    shift 2
    for path in "$@"; do paths="$paths${paths:+, }\"$path\""; done
    echo "$name $paths" >>"$DIR/$list"
}
serve() { # LIST LUN: a daemon that serves all of it
    cat >"$CONFIG" <<EOF
daemon = { control = "$SOCKET"; log = "info"; drain = "5 s"; };
imports = ( $(sed 's/\([^ ]*\) \(.*\)/{ name = "\1"; disks = [ \2 ]; }/; $!s/$/,/' "$DIR/$1") );
nbd = { listen = [ "127.0.0.1:0" ];
        exports = ( $(sed 's/\([^ ]*\) .*/{ name = "\1"; volume = "\1"; }/; $!s/$/,/' "$DIR/$1") ); };
iscsi = { listen = [ "127.0.0.1:0" ]; targets = ( { name = "$TARGET"; luns = ( { lun = 0; volume = "$2"; } ); } ); };
EOF
    "$BUILD_DIR/corbeld" -t "$CONFIG" >"$DIR/out" 2>&1 || fail "the config: $(cat "$DIR/out")"
    launch_daemon
}
is_like() { # EXPORT FILE
    qemu-img compare -f raw -F raw "nbd://$NBD_ADDRESS/$1" "$DIR/$2" >"$DIR/out" 2>&1 || fail "$1: $(cat "$DIR/out")"
}
all_like() { while read -r name rest; do is_like "$name" "data-$name"; done <"$DIR/$1"; }
seed=1
while IFS='|' read -r name level layout disks chunk size lost bitmap; do
    bytes=$(md size "$level" "$layout" "$disks" "$chunk" "$size")
    random_file "$DIR/data-$name" "$bytes" "$seed"
    md make "$DIR/md-$name-" "$level" "$layout" "$disks" "$chunk" "$size" "$DIR/data-$name" $bitmap
    # shellcheck disable=SC2046
    set -- $(ls -r "$DIR/md-$name-"*) # in any order
    import whole "$name" "$@"
    checked "$@" || fail "$name: $(cat "$DIR/check")"
    grep -q "^can be imported: raid$level of $disks disks, " "$DIR/check" || fail "$name: $(cat "$DIR/check")"
    if [ -n "$lost" ]; then
        some=''
        for path in "$@"; do
            case " $lost " in *" ${path##*-} "*) ;; *) some="$some $path" ;; esac
        done
        # shellcheck disable=SC2086
        import degraded "$name" $some
    fi
    seed=$((seed + 1))
done <"$DIR/shapes"
# A member that was away holds other bytes, and an older count of events; of another one some blocks are bad.
md make "$DIR/md-stale-" 5 2 4 64 2048 "$DIR/data-la"
dd if=/dev/urandom of="$DIR/md-stale-1" bs=64k seek=17 count=32 conv=notrunc 2>/dev/null
md patch "$DIR/md-stale-1" 200 '<Q' 999
import special stale "$DIR/md-stale-0" "$DIR/md-stale-1" "$DIR/md-stale-2" "$DIR/md-stale-3"
md make "$DIR/md-bad-" 6 2 5 64 2048 "$DIR/data-six"
md bad "$DIR/md-bad-2" 256 128
dd if=/dev/urandom of="$DIR/md-bad-2" bs=64k seek=20 count=1 conv=notrunc 2>/dev/null
import special bad "$DIR/md-bad-0" "$DIR/md-bad-1" "$DIR/md-bad-2" "$DIR/md-bad-3" "$DIR/md-bad-4"
# One that was not stopped, and one that lacks too much.
random_file "$DIR/data-twins3" 4194304 77
md make "$DIR/md-dirty-" 5 2 3 64 2048 "$DIR/data-twins3"
for slot in 0 1 2; do md patch "$DIR/md-dirty-$slot" 208 '<Q' 0; done
import special dirty "$DIR/md-dirty-0" "$DIR/md-dirty-1" "$DIR/md-dirty-2"
md make "$DIR/md-lacking-" 5 2 4 64 2048 "$DIR/data-la"
import special lacking "$DIR/md-lacking-0" "$DIR/md-lacking-2"

sums before
serve whole la
all_like whole
[ "$($CTL import list | grep -c ' optimal ')" = 17 ] || fail "not all are optimal: $($CTL import list)"
[ "$(status_field health)" = ok ] || fail "health: $(status_field health)"
# Nothing can be written, by whichever way.
! qemu-io -f raw -c 'write -q 0 4k' "nbd://$NBD_ADDRESS/la" >"$DIR/out" 2>&1 || fail "la was written by NBD"
! qemu-io -f raw -c 'write -q 0 4k' "$ISCSI" >"$DIR/out" 2>&1 || fail "la was written by iSCSI"
nbdinfo --json "nbd://$NBD_ADDRESS/la" | grep -q '"is_read_only": true' || fail "NBD does not say that it is read-only"
qemu-img compare -f raw -F raw "$ISCSI" "$DIR/data-la" >"$DIR/out" 2>&1 || fail "by iSCSI: $(cat "$DIR/out")"
# Nobody else gets the disks.
! flock -n "$DIR/md-la-0" true || fail "a disk can be taken by others"
stop_daemon

serve degraded six
all_like degraded
[ "$($CTL import list | grep -c ' degraded ')" = 16 ] || fail "not all are degraded: $($CTL import list)"
[ "$(status_field health)" = degraded ] || fail "health: $(status_field health)"
stop_daemon

serve special stale
is_like stale data-la
is_like bad data-six
$CTL import list >"$DIR/list"
grep -q '^bad  *optimal ' "$DIR/list" && grep -q '^stale  *degraded .*no current disk for slots 1$' "$DIR/list" &&
    grep -q '^dirty  *not started .*not stopped cleanly' "$DIR/list" &&
    grep -q '^lacking  *not started .*no current disk for slots 1, 3$' "$DIR/list" || fail "$(cat "$DIR/list")"
[ "$(status_field health)" = failed ] || fail "health: $(status_field health)"
grep -q 'NBD export "dirty" is not served' "$LOG" || fail "the log says nothing of dirty"
# What was missing is there: a reload, or apply, starts it.
$CTL apply --dry-run >"$DIR/out" 2>&1 && fail "apply would start dirty: $(cat "$DIR/out")"
grep -q 'because it was not stopped cleanly' "$DIR/out" || fail "the plan: $(cat "$DIR/out")"
for slot in 0 1 2; do md patch "$DIR/md-dirty-$slot" 208 '<Q' 0xffffffffffffffff; done
sed -i "s|\"$DIR/md-lacking-2\"|&, \"$DIR/md-lacking-1\"|" "$CONFIG"
$CTL apply --dry-run >"$DIR/out" 2>&1 || fail "the plan: $(cat "$DIR/out")"
grep -q 'read md array dirty where it is: raid5 of 3 disks$' "$DIR/out" || fail "the plan: $(cat "$DIR/out")"
$CTL apply --yes >"$DIR/out" 2>&1 || fail "apply: $(cat "$DIR/out")"
is_like dirty data-twins3
is_like lacking data-la
stop_daemon

# Files that hold none, and disks that do not go together: all arrays here have the same UUID, but not the same shape.
checked "$DIR/data-la" && fail "data is no array"
grep -q 'no md superblock of version 1.2' "$DIR/check" || fail "$(cat "$DIR/check")"
checked "$DIR/md-la-0" "$DIR/md-la-1" "$DIR/md-six-2" && fail "disks of other arrays go together"
echo "17 shapes whole, 16 degraded: bytes as md laid them out, disks unchanged"
for slot in 0 1 2; do md patch "$DIR/md-dirty-$slot" 208 '<Q' 0; done
sums after
cmp "$DIR/before" "$DIR/after" || fail "disks were changed"
