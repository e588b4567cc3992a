# Every mistake gets a message that names file, line or disk, a non-zero status, and nothing is written.
. "$(dirname "$0")/functions.sh"
make_disks 4 64M
write_config raid5

# refused WHAT WORDS...: `corbeld -t` must fail with a message that has all the words
refused() {
    what=$1
    shift
    "$BUILD_DIR/corbeld" -t "$CONFIG" >"$DIR/out" 2>&1 && fail "$what: accepted"
    for word in "$@"; do grep -qF -- "$word" "$DIR/out" || fail "$what: no '$word' in: $(cat "$DIR/out")"; done
}
# with SED_SCRIPT WHAT WORDS...: the good config, edited
with() {
    write_config raid5
    sed -i "$1" "$CONFIG"
    shift
    refused "$@"
}
"$BUILD_DIR/corbeld" -t "$CONFIG" >"$DIR/out" 2>&1 || fail "the good config: $(cat "$DIR/out")"
with 's/log = /lgo = /' "unknown key" "$CONFIG:1:" 'did you mean "log"'
with 's/drain = "5 s"/drain = 5/' "number for a time" "$CONFIG:1:" 'unit'
with 's/"raid5"/"raid7"/' "unknown level" "$CONFIG:4:" 'raid7'
with 's/level = "raid5";/level = "raid5"; size = 1073741824;/' "number for a size" "$CONFIG:4:" '64 KiB'
with 's/level = "raid5";/level = "raid5"; size = "1 GB";/' "powers of ten" 'GiB'
with 's/level = "raid5";/level = "raid5"; chunk = "5 KiB";/' "odd chunk" "$CONFIG:4:"
with 's/level = "raid5";/level = "raid60";/' "too few members" "$CONFIG:4:" 'raid60'
with 's/name = "v"; level/level/' "missing name" "$CONFIG:4:" 'name' 'is missing'
with "s|\"$DIR/d1\"|\"$DIR/d0\"|" "disk twice" 'given twice'
with 's|volume = "r/v"; description|volume = "r/x"; description|' "unknown volume" "$CONFIG:7:" 'r/x'
with 's|listen = \[ "127.0.0.1:0", |listen = [ "127.0.0.1:99999", |' "bad port" "$CONFIG:6:" '99999'
for uri in nbd://host:99999/v nbd://2001:db8::1/v 'nbd://host/v?sokcet=\/s' 'nbd+unix:///v' 'nbd+unix:///v?socket=run' iscsi://host/iqn.2026-01.org.x:t \
    iscsi://host:0/iqn.2026-01.org.x:t/0 http://host/v; do
    with "s|\"$DIR/d1\"|\"$uri\"|" "$uri" "$CONFIG:3:" "disks: \"$(echo "$uri" | tr -d '\\')\" "
done
with "s|$TARGET|not-a-name|" "bad iSCSI name" 'not-a-name'
with 's/lun = 0/lun = 999/' "LUN out of range" "$CONFIG:9:"
with 's/^);$/)/;s/^nbd = {/nbd = {{/' "syntax" "$CONFIG:6:" 'syntax error'
EXTRA_TOP='arrays2 = 1;' write_config raid5
refused "unknown section" 'arrays2'
write_config raid5
sed -i 's/^);$/  , { name = "r"; disks = [ "\/x1", "\/x2" ]; volumes = (); } );/' "$CONFIG"
refused "array name twice" 'given twice' '"r"'
CONFIG_SAVED=$CONFIG
CONFIG=$DIR/pipe.conf
mkfifo "$CONFIG"
for text in '' "@include \"$DIR/pipe.conf\""; do # nobody writes to it: the daemon would wait for ever, in a reload too
    echo "$text" >"$DIR/including.conf"
    [ -z "$text" ] || CONFIG=$DIR/including.conf
    timeout 10 "$BUILD_DIR/corbeld" -t "$CONFIG" >"$DIR/out" 2>&1 && fail "a pipe as config: accepted"
    grep -q 'cannot be read: it is a pipe' "$DIR/out" || fail "a pipe as config: $(cat "$DIR/out")"
done
CONFIG=$CONFIG_SAVED
CONFIG=$DIR/nothere refused "no such file" "$DIR/nothere" 'No such file'
CONFIG=$DIR refused "a folder" "$DIR"
CONFIG=$CONFIG_SAVED

# Disks: nothing is created, nothing is written.
before() { cat "$DIR"/d* | cksum; }
apply_refused() {
    what=$1
    shift
    launch_daemon
    sum=$(before)
    $CTL apply --yes >"$DIR/out" 2>&1 && fail "$what: applied"
    for word in "$@"; do grep -qF -- "$word" "$DIR/out" || fail "$what: no '$word' in: $(cat "$DIR/out")"; done
    [ "$sum" = "$(before)" ] || fail "$what: something was written"
    stop_daemon
}
write_config raid5
sed -i "s|\"$DIR/d3\"|\"$DIR/missing\"|" "$CONFIG"
apply_refused "missing disk" "$CONFIG:3" "$DIR/missing" 'No such file'
write_config raid5
mke2fs -q -F "$DIR/d2"
apply_refused "foreign data" "$CONFIG:3" "$DIR/d2" 'ext2' '--force'
rm "$DIR/d2"
truncate -s 64M "$DIR/d2"
write_config raid5 'size = "1 TiB";'
apply_refused "too large" '1 TiB'
truncate -s 1M "$DIR/d2"
write_config raid5
apply_refused "tiny disk" "$DIR/d2"
truncate -s 64M "$DIR/d2"
ln -s d1 "$DIR/link"
sed -i "s|\"$DIR/d3\"|\"$DIR/link\"|" "$CONFIG"
apply_refused "the same disk under two names" "$DIR/link"
rm "$DIR/link"

# A disk of another array.
write_config raid5 'size = "32 MiB";'
start_daemon
wait_idle
stop_daemon
cp "$DIR/d0" "$DIR/foreign"
rm "$DIR"/d*
make_disks 3 64M
DISKS="\"$DIR/foreign\", $DISKS"
write_config raid5
sed -i 's/name = "r"; disks/name = "other"; disks/; s|"r/v"|"other/v"|g' "$CONFIG"
apply_refused "disk of another array" "$DIR/foreign" 'array r'

# A busy port, and a second daemon.
rm -f "$DIR"/d* "$DIR/foreign"
make_disks 4 64M
write_config raid5 'size = "32 MiB";'
start_daemon
sed "s|127.0.0.1:0\", \"unix|$NBD_ADDRESS\", \"unix|; s|$SOCKET|$SOCKET.2|; s|nbd.sock|nbd2.sock|" "$CONFIG" >"$DIR/second.conf"
sum=$(before)
"$BUILD_DIR/corbeld" -c "$DIR/second.conf" >"$DIR/out" 2>&1 && fail "a busy port was no error"
grep -q "$DIR/second.conf:6: .*in use" "$DIR/out" || fail "busy port: $(cat "$DIR/out")"
"$BUILD_DIR/corbeld" -c "$CONFIG" >"$DIR/out" 2>&1 && fail "a second daemon on the same config started"
grep -q 'another corbeld' "$DIR/out" || fail "second daemon: $(cat "$DIR/out")"
$CTL status >/dev/null || fail "the first daemon does not answer any more"
sed "s|$SOCKET|$DIR/none/control.sock|; s|nbd.sock|nbd3.sock|" "$CONFIG" >"$DIR/third.conf"
"$BUILD_DIR/corbeld" -c "$DIR/third.conf" >"$DIR/out" 2>&1 && fail "a socket in no folder was no error"
grep -q "none/control.sock: its folder does not exist" "$DIR/out" || fail "no folder: $(cat "$DIR/out")"

# A control socket in the place of somebody's file.
echo precious >"$DIR/file"
sed "s|$SOCKET|$DIR/file|" "$CONFIG" >"$DIR/second.conf"
"$BUILD_DIR/corbeld" -c "$DIR/second.conf" >"$DIR/out" 2>&1 && fail "a file was taken for a control socket"
grep -q "$DIR/file: is in use" "$DIR/out" || fail "control socket on a file: $(cat "$DIR/out")"
[ "$(cat "$DIR/file")" = precious ] || fail "the file in the control socket's place is gone"

# Wrong commands.
for words in 'frobnicate' 'disk fail' 'disk fail nothere' 'disk online r/0' 'array list extra'; do
    # shellcheck disable=SC2086
    $CTL $words >"$DIR/out" 2>&1 && fail "corbelctl $words succeeded"
    [ -s "$DIR/out" ] || fail "corbelctl $words said nothing"
done
stop_daemon
$CTL status >"$DIR/out" 2>&1 && fail "status without a daemon succeeded"
grep -q "$SOCKET" "$DIR/out" || fail "status without a daemon: $(cat "$DIR/out")"
