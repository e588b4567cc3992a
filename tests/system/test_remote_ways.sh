# The ways to a disk of another machine: TLS with certificates and with a shared key, Unix sockets, iSCSI. Spares, and
# disks that are only looked for, are elsewhere as well. All machines lost at once are one network: nothing is marked.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/remotes.sh"

# --- certificates for machine a, a key for machine b ---

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=ca" -keyout "$DIR/ca.key" \
    -out "$DIR/ca.pem" -addext basicConstraints=critical,CA:true -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=a -keyout "$DIR/a.key" -out "$DIR/a.csr" 2>/dev/null
echo 'subjectAltName=IP:127.0.0.1' >"$DIR/extensions"
openssl x509 -req -in "$DIR/a.csr" -CA "$DIR/ca.pem" -CAkey "$DIR/ca.key" -CAcreateserial -days 2 -extfile "$DIR/extensions" \
    -out "$DIR/a.pem" 2>/dev/null
chmod 0600 "$DIR/a.key"
mkdir "$DIR/pki"
cp "$DIR/ca.pem" "$DIR/pki/ca-cert.pem"
(umask 077 && printf 'corbel:%064d\n' 7 >"$DIR/psk")

for name in a b c s; do make_remote "$name" 96M; done
sed -i "s|^nbd = { listen = \[ \(.*\) \];|nbd = { tls = { certificate = \"$DIR/a.pem\"; key = \"$DIR/a.key\"; }; listeners = ( { address = \1; tls = \"require\"; } );|" "$DIR/a.conf"
sed -i "s|^nbd = {|nbd = { tls = { psk = \"$DIR/psk\"; }; listeners = ( { address = \"unix:$DIR/b.nbd.sock\"; tls = \"require\"; } );|" "$DIR/b.conf"
for name in a b c s; do start_remote "$name"; done

A="$(nbd_of a | sed s/nbd:/nbds:/)?tls-certificates=$DIR/pki"
B="nbds+unix://corbel@/b?socket=$DIR/b.nbd.sock&tls-psk-file=$DIR/psk"
C=$(iscsi_of c)
DISKS="\"$A\", \"$B\", \"$C\""
EXTRA_TOP="disks = [ \"$(nbd_of s)\" ]; spares = [ \"$(nbd_of s)\" ];"
write_config raid5 'size = "64 MiB"; consistency = "bitmap";'
start_daemon
random_file "$DIR/want" 67108864 4
nbdcopy --flush "$DIR/want" "$NBD"
wait_idle
state_is optimal || fail "'$(array_state)' when created: $($CTL array list)"
same() { # when
    nbdcopy "$NBD_UNIX" "$DIR/out"
    cmp "$DIR/want" "$DIR/out" || fail "$1: other bytes"
}
same "created"

# All lost at once, while something is written: frozen, and started anew by itself when all of them are back, for NBD and for iSCSI.
qemu-io -f raw -c 'write -P 1 0 1M' "$NBD" >/dev/null
for name in a b c; do kill_remote "$name"; done
qemu-io -f raw -c 'write -P 2 0 16M' "$NBD" >/dev/null 2>&1 && fail "a write without disks"
wait_for state_is frozen || fail "'$(array_state)' without any disk"
start_remote a
wait_for_long grep -q 'answers again, and is not taken back: the array is frozen, and' "$LOG" || fail "nothing is said"
state_is frozen || fail "'$(array_state)' with one disk"
start_remote b
start_remote c
wait_for_long whole || fail "'$(array_state)' with all disks: $($CTL array list; tail -n 5 "$LOG")"
grep -q 'array r was frozen, and is started anew' "$LOG" || fail "not told that it is started anew"
grep -q 'left out\|was away' "$LOG" && fail "a disk was marked: $(cat "$LOG")"
qemu-img info "$ISCSI" >"$DIR/out.info" 2>&1 || fail "by iSCSI: $(cat "$DIR/out.info")"
nbdcopy --flush "$DIR/want" "$NBD_UNIX"
scrub_clean "frozen"
same "frozen"

# Machine a does not come back: the spare takes its place, and is a member at the next start.
kill_remote a
qemu-io -f raw -c 'write -P 3 0 1M' -c flush "$NBD" >/dev/null || fail "a write without a"
wait_for_long whole || fail "the spare was not taken: $($CTL status; tail -n 5 "$LOG")"
$CTL disk list | grep 'r/0' | grep -q "$(nbd_of s)" || fail "slot 0: $($CTL disk list)"
nbdcopy --flush "$DIR/want" "$NBD"
scrub_clean "spare"
stop_daemon
start_remote a
launch_daemon
state_is optimal || fail "'$(array_state)' with the spare: $($CTL array list)"
same "spare"
$CTL disk add-spare "$A" 2>"$DIR/out.ctl" && fail "a member's label was overwritten"
grep -q "is or was a member of array r" "$DIR/out.ctl" || fail "add-spare: $(cat "$DIR/out.ctl")"

# A copy to another disk, back to machine a; by force, since it was a member.
$CTL disk replace r/0 "$A" --force >/dev/null || fail "replace"
wait_for_long sh -c "$CTL disk list | grep 'r/0' | grep -q tls-certificates" || fail "not replaced: $($CTL disk list)"
same "replaced"
stop_daemon
stop_remotes
