# Access lists and CHAP, with raw PDUs and with libiscsi's and QEMU's initiators: who comes in, what he sees, what a reload changes.
. "$(dirname "$0")/functions.sh"
python=/usr/bin/python3
[ -x "$python" ] || python=python3
make_disks 3 64M
host_secret='correct horse battery' disk_secret='staple of the target' finder_secret='lost and found!'
secret() { # NAME TEXT
    (umask 077 && printf '%s\n' "$2" >"$DIR/$1")
}
secret host "$host_secret"
secret disk "$disk_secret"
secret finder "$finder_secret"
secret plain "plainsecret12"
EXAMPLE=iqn.2026-01.org.example
rules() { # of the target; $1: more for the rule of "plain"
    cat <<EOF
access = (
    { name = "mutual"; initiators = [ "$EXAMPLE:raw", "*:m*l" ]; user = "host"; secret_file = "$DIR/host";
      target_user = "disk"; target_secret_file = "$DIR/disk"; },
    { name = "hexadecimal"; initiators = [ "$EXAMPLE:raw" ]; user = "0x686f7374"; secret_file = "$DIR/host"; },
    { name = "base64"; initiators = [ "$EXAMPLE:raw" ]; user = "0baG9zdA=="; secret_file = "$DIR/host"; },
    { name = "plain"; initiators = [ "$EXAMPLE:plain" ]; addresses = [ "127.0.0.0/8" ]; user = "plain"; secret_file = "$DIR/plain"; $1 },
    { name = "elsewhere"; initiators = [ "$EXAMPLE:elsewhere" ]; addresses = [ "192.0.2.0/24", "2001:db8::/32" ]; },
    { name = "suite"; initiators = [ "$EXAMPLE:reader" ]; read_only = true; }
);
EOF
}
config() { # $1 as for rules
    cat >"$CONFIG" <<EOF
daemon = { control = "$SOCKET"; log = "info"; drain = "5 s"; };
arrays = ( { name = "r"; disks = [ $DISKS ];
             volumes = ( { name = "v"; level = "raid5"; size = "32 MiB"; }, { name = "w"; level = "raid5"; size = "16 MiB"; } ); } );
iscsi = { listen = [ "127.0.0.1:0" ];
    discovery = ( { name = "finders"; user = "finder"; secret_file = "$DIR/finder"; } );
    targets = ( { name = "$TARGET"; luns = ( { lun = 0; volume = "r/v"; }, { lun = 1; volume = "r/w"; } );
                  $(rules "$1") },
                { name = "$EXAMPLE:open"; luns = ( { lun = 0; volume = "r/w"; } ); } ); };
EOF
}
config ''

# Files that others can read: the config is refused, with the file's name and mode.
chmod 0640 "$DIR/host"
"$BUILD_DIR/corbeld" -t "$CONFIG" >"$DIR/check" 2>&1 && fail "a secret that others can read was taken"
grep -q "^$CONFIG:[0-9]*:[0-9]*: secret_file: $DIR/host has mode 0640" "$DIR/check" || fail "not said: $(cat "$DIR/check")"
chmod 0600 "$DIR/host"
"$BUILD_DIR/corbeld" -t "$CONFIG" >/dev/null || fail "the config is refused"
start_daemon
wait_idle

"$python" "$(dirname "$0")/access.py" "$ISCSI_ADDRESS" "$TARGET" >"$DIR/raw" 2>&1 || fail "$(cat "$DIR/raw")"
tail -n 1 "$DIR/raw"

# libiscsi and QEMU. The secrets go into the address; the initiator's name is its own.
url() { echo "iscsi://$1$ISCSI_ADDRESS/$TARGET/$2"; } # USER%SECRET@ LUN[?options]
quoted() { echo "$1" | sed 's/ /%20/g'; }
inq() { iscsi-inq -i "$EXAMPLE:$1" "$2" 2>&1; }
inq plain "$(url 'plain%plainsecret12@' 0)" | grep -q Vendor:CORBEL || fail "CHAP by libiscsi: $(inq plain "$(url 'plain%plainsecret12@' 0)")"
inq plain "$(url 'plain%plainsecret13@' 0)" | grep -q Vendor: && fail "a wrong secret was taken"
inq plain "$(url '' 0)" | grep -q Vendor: && fail "no secret was taken"
inq elsewhere "$(url '' 0)" | grep -q Vendor: && fail "an address no rule speaks for was taken"
inq nobody "$(url '' 0)" | grep -q Vendor: && fail "a name no rule speaks for was taken"
plain() { LIBISCSI_CHAP_USERNAME=plain LIBISCSI_CHAP_PASSWORD=plainsecret12 "$@"; }
mutual() {
    LIBISCSI_CHAP_USERNAME=host LIBISCSI_CHAP_PASSWORD=$host_secret \
        LIBISCSI_CHAP_TARGET_USERNAME=disk LIBISCSI_CHAP_TARGET_PASSWORD=$1 iscsi-inq -i "$EXAMPLE:mutual" "$(url '' 0)" 2>&1
}
mutual "$disk_secret" | grep -q Vendor:CORBEL || fail "mutual CHAP by libiscsi: $(mutual "$disk_secret")"
mutual "$host_secret" | grep -q Vendor: && fail "libiscsi took a wrong proof of the target"
io() { qemu-io -c "$1" "json:{\"driver\": \"raw\", \"file\": {\"driver\": \"iscsi\", \"transport\": \"tcp\", \"portal\": \"$ISCSI_ADDRESS\",
    \"target\": \"$TARGET\", \"lun\": ${4:-0}, \"user\": \"$2\", \"password-secret\": \"s\", \"initiator-name\": \"$EXAMPLE:plain\"}}" \
    --object "secret,id=s,data=$3" 2>&1; }
io 'write -P 7 0 64k' plain plainsecret12 | grep -q 'wrote 65536' || fail "QEMU with CHAP: $(io 'read 0 512' plain plainsecret12)"
io 'read -P 7 0 64k' plain plainsecret12 | grep -q 'read 65536' || fail "QEMU with CHAP reads other bytes"
io 'read 0 512' plain wrongsecret12 | grep -q 'read 512' && fail "QEMU came in with a wrong secret"

# Discovery: by its own list, and of what may be used.
listing() { iscsi-ls -i "$EXAMPLE:$1" "iscsi://$2$ISCSI_ADDRESS/" 2>&1; }
listing plain '' | grep -q "Target:" && fail "discovery without a secret"
found=$(LIBISCSI_CHAP_USERNAME=finder LIBISCSI_CHAP_PASSWORD=$finder_secret listing plain '')
echo "$found" | grep -q "Target:$TARGET " && echo "$found" | grep -q "Target:$EXAMPLE:open " || fail "discovery: $found"
found=$(LIBISCSI_CHAP_USERNAME=finder LIBISCSI_CHAP_PASSWORD=$finder_secret listing elsewhere '')
echo "$found" | grep -q "Target:$TARGET " && fail "told a target that it may not use: $found"
echo "$found" | grep -q "Target:$EXAMPLE:open " || fail "discovery: $found"

# Read-only, for this initiator.
reader() { qemu-io -f raw -c "$1" "json:{\"driver\": \"raw\", \"file\": {\"driver\": \"iscsi\", \"transport\": \"tcp\",
    \"portal\": \"$ISCSI_ADDRESS\", \"target\": \"$TARGET\", \"lun\": 0, \"initiator-name\": \"$EXAMPLE:reader\"}}" 2>&1; }
reader 'write 0 512' | grep -q 'wrote' && fail "a read-only initiator wrote"
qemu-io -r -f raw -c 'read -P 7 0 512' "json:{\"driver\": \"raw\", \"file\": {\"driver\": \"iscsi\", \"transport\": \"tcp\",
    \"portal\": \"$ISCSI_ADDRESS\", \"target\": \"$TARGET\", \"lun\": 0, \"initiator-name\": \"$EXAMPLE:reader\"}}" | grep -q 'read 512' ||
    fail "a read-only initiator cannot read"

# A reload: another secret, and the volumes under other numbers.
secret plain anothersecret
config 'luns = ( { lun = 0; volume = "r/w"; }, { lun = 9; volume = "r/v"; read_only = true; } );'
$CTL reload >"$DIR/reload" 2>&1 || fail "reload: $(cat "$DIR/reload")"
inq plain "$(url 'plain%plainsecret12@' 0)" | grep -q Vendor: && fail "the old secret still holds"
grep -qF "taken over: new secrets of iSCSI target \"$TARGET\"" "$DIR/reload" || fail "secrets untold: $(cat "$DIR/reload")"
for lun in 0 9; do
    grep -qF "taken over: iscsi.targets \"$TARGET\".access \"plain\".luns $lun" "$DIR/reload" || fail "LUN $lun untold: $(cat "$DIR/reload")"
done
capacity() { plain_secret=$1 && LIBISCSI_CHAP_USERNAME=plain LIBISCSI_CHAP_PASSWORD=$plain_secret iscsi-readcapacity16 -i "$EXAMPLE:plain" "$(url '' "$2")" 2>&1; }
capacity anothersecret 0 | grep -q 'Total size:16777216' || fail "LUN 0 is not the other volume: $(capacity anothersecret 0)"
capacity anothersecret 9 | grep -q 'Total size:33554432' || fail "LUN 9 is not there: $(capacity anothersecret 9)"
capacity anothersecret 1 | grep -q 'Total size' && fail "LUN 1 is still there"

# A target that everybody could use gets a list.
sed -i "s/ luns = ( { lun = 0; volume = \"r\/w\"; } ); } ); };/ luns = ( { lun = 0; volume = \"r\/w\"; } ); access = ( { name = \"few\"; initiators = [ \"$EXAMPLE:few\" ]; } ); } ); };/" "$CONFIG"
$CTL reload >"$DIR/reload" 2>&1 || fail "reload: $(cat "$DIR/reload")"
grep -qxF "taken over: iscsi.targets \"$EXAMPLE:open\".access \"few\"" "$DIR/reload" || fail "the new list is untold: $(cat "$DIR/reload")"
[ "$($CTL reload)" = "nothing to take over" ] || fail "a second reload: $($CTL reload)"

# What people are told, and what nobody is.
grep -q "refused: $EXAMPLE:stranger at 127.0.0.1:[0-9]*, to $TARGET: no rule of the access list speaks for it (0202)" "$LOG" ||
    fail "a refusal is not in the log"
$CTL --json status >"$DIR/status"
for word in "$host_secret" "$disk_secret" "$finder_secret" plainsecret12 anothersecret; do
    grep -q -- "$word" "$LOG" "$DIR/status" "$DIR/reload" && fail "a secret was told: $word"
done
stop_daemon
