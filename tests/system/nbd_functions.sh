# For the tests with raw NBD requests, besides functions.sh: cases are run and counted.
python=/usr/bin/python3
[ -x "$python" ] || python=python3
export PYTHONDONTWRITEBYTECODE=1 LOG
here=$(dirname "$0")
MODES=${MODES:-simple structured extended}
# A certificate of the server that clients can check, and a shared key; and listeners that want TLS (TCP), or allow it (Unix).
make_certificates() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=CA" -keyout "$DIR/ca.key" -out "$DIR/ca.pem" \
        -addext basicConstraints=critical,CA:true -addext keyUsage=critical,keyCertSign 2>/dev/null || fail "openssl req"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=server" -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" \
        -keyout "$DIR/server.key" -out "$DIR/server.csr" 2>/dev/null || fail "openssl req"
    openssl x509 -req -in "$DIR/server.csr" -CA "$DIR/ca.pem" -CAkey "$DIR/ca.key" -CAcreateserial -days 2 -copy_extensions copy \
        -out "$DIR/server.pem" 2>/dev/null || fail "openssl x509"
    chmod 0600 "$DIR/server.key"
    NBD_CA=$DIR/ca.pem
    export NBD_CA
    (umask 077 && printf 'carol:%064d\n' 1 >"$DIR/psk")
    TLS="tls = { mode = \"off\"; certificate = \"$DIR/server.pem\"; key = \"$DIR/server.key\"; psk = \"$DIR/psk\"; };
        listeners = ( { address = \"127.0.0.1:0\"; tls = \"require\"; }, { address = \"[::1]:0\"; tls = \"require\"; },
                      { address = \"unix:$DIR/allow.sock\"; tls = \"allow\"; mode = \"0600\"; } );"
    sed -i "s|^nbd = {|& $(echo "$TLS" | tr '\n' ' ')|" "$CONFIG"
}
tls_address() { $CTL status | sed -n 's/^nbd listens on \(127.*\)/\1/p' | sed -n 2p; } # those of listeners come behind those of listen

theme() { # NAME [what the theme wants, mode, tls]
    name=$1
    shift
    address=$NBD_ADDRESS
    case " $* " in
    *" tls "*) address=$TLS_ADDRESS ;;
    esac
    WITHOUT=${WITHOUT:-} "$python" "$here/nbd_$name.py" "$address" "$PID" "$@" >"$DIR/cases" 2>&1 ||
        fail "$name $*${state:+, $state}: $(grep -v '^ok ' "$DIR/cases")"
    cat "$DIR/cases"
    cases=$((cases + $(grep -c '^ok ' "$DIR/cases" || :)))
    runs=$((runs + 1))
}
