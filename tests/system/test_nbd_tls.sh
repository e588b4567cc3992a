# NBD over TLS with real clients (libnbd by GnuTLS, QEMU, openssl): certificates and shared keys, off, allow and require, who
# is let in to what, what is refused, and what a reload changes.
. "$(dirname "$0")/functions.sh"
python=/usr/bin/python3
[ -x "$python" ] || python=python3
make_disks 4 64M

# --- certificates ---

new_ca() { # NAME
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=CA $1" -keyout "$DIR/$1.key" \
        -out "$DIR/$1.pem" -addext basicConstraints=critical,CA:true -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
}
new_certificate() { # CA NAME SUBJECT ALTERNATIVE-NAMES
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$3" -keyout "$DIR/$2.key" -out "$DIR/$2.csr" 2>/dev/null
    printf 'subjectAltName=%s\n' "$4" >"$DIR/extensions"
    openssl x509 -req -in "$DIR/$2.csr" -CA "$DIR/$1.pem" -CAkey "$DIR/$1.key" -CAcreateserial -days 2 -extfile "$DIR/extensions" \
        -out "$DIR/$2.pem" 2>/dev/null
    chmod 0600 "$DIR/$2.key"
}
client_folder() { # NAME CA-THAT-IT-BELIEVES [CERTIFICATE]: what libnbd and QEMU expect
    mkdir -p "$DIR/$1"
    cp "$DIR/$2.pem" "$DIR/$1/ca-cert.pem"
    [ $# -lt 3 ] || { cp "$DIR/$3.pem" "$DIR/$1/client-cert.pem" && cp "$DIR/$3.key" "$DIR/$1/client-key.pem"; }
}
new_ca ca
new_ca other
new_certificate ca server /CN=server "DNS:localhost,IP:127.0.0.1,IP:::1"
new_certificate ca alice /CN=alice "DNS:alice.example.org"
new_certificate ca bob /CN=bob "DNS:bob.example.com"
new_certificate other mallory /CN=alice "DNS:alice.example.org"
client_folder as-alice ca alice
client_folder as-bob ca bob
client_folder as-nobody ca
client_folder as-mallory ca mallory
client_folder deceived other alice
(umask 077 && printf '# keys\ncarol:%064d\ndave:%064d\n' 1 2 >"$DIR/psk")
printf 'carol:%064d\n' 1 >"$DIR/carol.psk"
printf 'carol:%064d\n' 3 >"$DIR/wrong.psk"
printf 'eve:%064d\n' 1 >"$DIR/eve.psk"
printf 'dave:%064d\n' 2 >"$DIR/dave.psk"

config() { # $1: access of the export "few"
    cat >"$CONFIG" <<EOF
daemon = { control = "$SOCKET"; log = "info"; drain = "5 s"; reactors = 2; };
arrays = ( { name = "s"; disks = [ "$DIR/d3" ]; volumes = ( { name = "w"; level = "jbod"; size = "16 MiB"; } ); },
           { name = "r"; disks = [ "$DIR/d0", "$DIR/d1", "$DIR/d2" ]; volumes = ( { name = "v"; level = "raid5"; size = "32 MiB"; } ); } );
nbd = { listen = [ "127.0.0.1:0" ];
        listeners = ( { address = "unix:$DIR/allow.sock"; tls = "allow"; mode = "0600"; },
                      { address = "unix:$DIR/off.sock"; tls = "off"; mode = "0666"; } );
        tls = { certificate = "$DIR/server.pem"; key = "$DIR/server.key"; ca = "$DIR/ca.pem"; psk = "$DIR/psk";
                verify_clients = ${VERIFY:-true}; };
        exports = ( { name = "v"; volume = "r/v"; description = "for all"; },
                    { name = "safe"; volume = "r/v"; tls = "require"; },
                    { name = "plain"; volume = "r/v"; tls = "off"; },
                    { name = "few"; volume = "s/w"; access = ( $1 ); } ); };
EOF
}
RULES='{ name = "writers"; clients = [ "cn:alice", "psk:carol" ]; },
       { name = "readers"; clients = [ "dns:*.example.com" ]; addresses = [ "127.0.0.0/8" ]; read_only = true; }'
config "$RULES"

# --- files that do not do ---

refused_config() { # WHAT-IS-SAID
    "$BUILD_DIR/corbeld" -t "$CONFIG" >"$DIR/check" 2>&1 && fail "taken, though $1"
    grep -q "^$CONFIG:[0-9]*:[0-9]*: $1" "$DIR/check" || fail "not said: $1: $(cat "$DIR/check")"
}
chmod 0640 "$DIR/server.key" && refused_config "key: $DIR/server.key has mode 0640" && chmod 0600 "$DIR/server.key"
chmod 0644 "$DIR/psk" && refused_config "psk: $DIR/psk has mode 0644" && chmod 0600 "$DIR/psk"
cp -p "$DIR/server.key" "$DIR/kept" && cp -p "$DIR/bob.key" "$DIR/server.key" && refused_config "key: $DIR/server.key holds no key of the certificate"
cp -p "$DIR/kept" "$DIR/server.key"
start_daemon
wait_idle
P=${NBD_ADDRESS##*:}

# --- libnbd ---

x509() { echo "nbds://127.0.0.1:$P/$2?tls-certificates=$DIR/$1"; }
psk() { echo "nbds://$1@127.0.0.1:$P/$3?tls-psk-file=$DIR/$2.psk"; }
size() { nbdinfo --size "$1" 2>&1; }
served() { [ "$(size "$1")" = "$2" ] || fail "$1: $(size "$1")"; }
refused() { # URI WHY
    said=$(size "$1") && fail "$1 was served: $said"
    [ $# -lt 2 ] || tail -n 20 "$LOG" | grep -q "NBD: refused: .*$2" || fail "the refusal of $1 is not in the log: $2"
}
served "$(x509 as-alice v)" 33554432
served "$(psk carol carol v)" 33554432
served "$(psk dave dave v)" 33554432
refused "$(x509 as-nobody v)" 'peer did not return a certificate'
refused "$(x509 as-mallory v)" 'certificate'
refused "$(x509 deceived v)"
refused "$(psk carol wrong v)"
refused "$(psk eve eve v)"
refused "nbd://127.0.0.1:$P/v"
served "nbd+unix:///v?socket=$DIR/off.sock" 33554432
served "nbd+unix:///v?socket=$DIR/allow.sock" 33554432
served "nbds+unix://carol@/v?socket=$DIR/allow.sock&tls-psk-file=$DIR/carol.psk" 33554432
refused "nbds+unix://carol@/v?socket=$DIR/off.sock&tls-psk-file=$DIR/carol.psk"

# What an export says of TLS.
refused "nbd+unix:///safe?socket=$DIR/off.sock" safe
refused "nbd+unix:///safe?socket=$DIR/allow.sock"
served "nbds+unix://carol@/safe?socket=$DIR/allow.sock&tls-psk-file=$DIR/carol.psk" 33554432
served "nbd+unix:///plain?socket=$DIR/allow.sock" 33554432
refused "$(psk carol carol plain)" plain

# Who may use what, and what they see of it.
served "$(x509 as-alice few)" 16777216
served "$(psk carol carol few)" 16777216
refused "$(psk dave dave few)" 'psk:dave at 127.0.0.1:[0-9]*, to few'
read_only() { nbdinfo "$1" 2>/dev/null | sed -n 's/.*is_read_only: //p'; }
[ "$(read_only "$(x509 as-alice few)")" = false ] || fail "alice may not write"
[ "$(read_only "$(x509 as-bob few)")" = true ] || fail "bob may write"
listed() { nbdinfo --list "$1" 2>/dev/null | sed -n 's/^export="\(.*\)":$/\1/p' | tr '\n' ' '; }
[ "$(listed "$(x509 as-alice '')")" = "v safe few " ] || fail "alice sees $(listed "$(x509 as-alice '')")"
[ "$(listed "$(psk dave dave '')")" = "v safe " ] || fail "dave sees $(listed "$(psk dave dave '')")"
[ "$(listed "nbd+unix:///?socket=$DIR/allow.sock")" = "v plain " ] || fail "in clear: $(listed "nbd+unix:///?socket=$DIR/allow.sock")"
[ "$(listed "nbd+unix:///?socket=$DIR/off.sock")" = "v plain " ] || fail "without TLS: $(listed "nbd+unix:///?socket=$DIR/off.sock")"
[ "$(stat -c %a "$DIR/allow.sock") $(stat -c %a "$DIR/off.sock")" = "600 666" ] || fail "modes: $(stat -c %a "$DIR"/*.sock)"

# Data, over many connections at once.
random_file "$DIR/in" 33554432 1
nbdcopy --flush --connections=4 --requests=64 "$DIR/in" "$(x509 as-alice v)" || fail "nbdcopy over TLS"
nbdcopy --connections=4 "$(psk carol carol v)" "$DIR/out" || fail "nbdcopy with a shared key"
cmp "$DIR/in" "$DIR/out" || fail "other bytes came back over TLS"
nbdcopy "nbd+unix:///v?socket=$DIR/off.sock" "$DIR/out" && cmp "$DIR/in" "$DIR/out" || fail "TLS wrote other bytes"

# --- QEMU ---

mkdir "$DIR/qemu-psk" && cp "$DIR/carol.psk" "$DIR/qemu-psk/keys.psk"
qemu_x509() { # TOOL... ; with @ for the image
    creds=$1 && shift
    "$@" --object "tls-creds-x509,id=t,endpoint=client,dir=$DIR/$creds" --image-opts "driver=nbd,host=127.0.0.1,port=$P,export=v,tls-creds=t" 2>&1
}
qemu_x509 as-alice qemu-img info | grep -q '32 MiB' || fail "QEMU: $(qemu_x509 as-alice qemu-img info)"
qemu_x509 as-mallory qemu-img info | grep -q '32 MiB' && fail "QEMU came in with a certificate of another CA"
qemu_x509 deceived qemu-img info | grep -q '32 MiB' && fail "QEMU believed a certificate of another CA"
# The older version, with certificates and keys.
for version in 1.2 1.3; do
    qemu-img info --object "tls-creds-x509,id=t,endpoint=client,dir=$DIR/as-alice,priority=NORMAL:-VERS-ALL:+VERS-TLS$version" --image-opts \
        "driver=nbd,host=127.0.0.1,port=$P,export=v,tls-creds=t" 2>&1 | grep -q '32 MiB' || fail "QEMU by TLS $version"
    qemu-img info --object "tls-creds-psk,id=t,endpoint=client,dir=$DIR/qemu-psk,username=carol,priority=NORMAL:-VERS-ALL:+VERS-TLS$version" \
        --image-opts "driver=nbd,host=127.0.0.1,port=$P,export=v,tls-creds=t" 2>&1 | grep -q '32 MiB' || fail "QEMU with a key by TLS $version"
done
qemu_x509 as-alice qemu-io -c 'write -P 7 0 2M' -c 'read -P 7 0 2M' -c 'write -z 1M 64k' -c 'read -P 0 1M 64k' -c flush >"$DIR/io"
grep -qi fail "$DIR/io" && fail "qemu-io over TLS: $(cat "$DIR/io")"
qemu-io --object "tls-creds-psk,id=t,endpoint=client,dir=$DIR/qemu-psk,username=carol" -c 'read -P 7 0 1M' --image-opts \
    "driver=nbd,host=127.0.0.1,port=$P,export=v,tls-creds=t" >"$DIR/io" 2>&1 || fail "qemu-io with a shared key: $(cat "$DIR/io")"
grep -q 'read 1048576' "$DIR/io" || fail "qemu-io with a shared key: $(cat "$DIR/io")"

# --- raw: versions of TLS, and what may not be sent in clear ---

"$python" "$(dirname "$0")/nbd_tls.py" "$P" "$DIR" "$PID" >"$DIR/raw" 2>&1 || fail "$(cat "$DIR/raw")"
tail -n 1 "$DIR/raw"

# --- a reload: other rules, another certificate ---

fingerprint() { "$python" "$(dirname "$0")/nbd_tls.py" "$P" "$DIR" fingerprint; }
before=$(fingerprint)
new_certificate ca server /CN=server2 "DNS:localhost,IP:127.0.0.1"
config '{ name = "writers"; clients = [ "psk:dave" ]; }'
$CTL reload >"$DIR/reload" 2>&1 || fail "reload: $(cat "$DIR/reload")"
grep -qF 'taken over: certificates and keys of nbd.tls' "$DIR/reload" || fail "the certificate is untold: $(cat "$DIR/reload")"
grep -qF 'taken over: nbd.exports "few".access "writers".clients' "$DIR/reload" || fail "the rules are untold: $(cat "$DIR/reload")"
[ "$(fingerprint)" != "$before" ] || fail "the old certificate is still shown"
served "$(psk dave dave few)" 16777216
refused "$(x509 as-alice few)" 'cn:alice at'
[ "$($CTL reload)" = "nothing to take over" ] || fail "a second reload: $($CTL reload)"
cp -p "$DIR/psk" "$DIR/kept" && chmod 0644 "$DIR/psk"
$CTL reload >"$DIR/reload" 2>&1 && fail "keys that all can read were taken: $(cat "$DIR/reload")"
grep -q "psk: $DIR/psk has mode 0644" "$DIR/reload" || fail "not said: $(cat "$DIR/reload")"
served "$(psk dave dave few)" 16777216
for word in "$(printf %064d 1)" "$(printf %064d 2)"; do
    grep -q -- "$word" "$LOG" "$DIR/reload" && fail "a key was told"
done
"$python" "$(dirname "$0")/nbd_tls.py" "$P" "$DIR" "$PID" stop || fail "SIGTERM"
wait "$PID" || fail "the daemon ended with status $?"
PID=
