# For run.sh: servers to measure. Each start_X puts a server on core 0, waits until it serves, and tells by `add_server`
# how to reach it; whatever was started is stopped by its pid, whatever was made is in $DIR, when run.sh ends.
#
# All backing files lie in $DIR on tmpfs. The peers share one, for only one server at a time has work.

PIDS=    # to be ended by SIGTERM
KILLS=   # to be ended by SIGKILL: tgtd stays otherwise
LEFT=    # files outside $DIR
SERVERS= # names of those to measure
TLS=     # what a load by TLS needs, once there are certificates
COUNTER= # a library that has a server's system calls counted in $DIR/calls.NAME
BYTES=1073741824 # of the peers' backing file

die() {
    echo "bench: $*" >&2
    [ ! -f "$DIR/log" ] || tail -n 20 "$DIR/log" >&2
    exit 1
}

stop_servers() {
    for p in $PIDS; do kill -TERM "$p" 2>/dev/null || :; done
    for p in $KILLS; do kill -KILL "$p" 2>/dev/null || :; done
    for p in $PIDS $KILLS; do wait "$p" 2>/dev/null || :; done
    for f in $LEFT; do rm -f "$f"; done
    rm -rf "${DIR:?}"/*
    PIDS='' KILLS='' LEFT='' SERVERS='' TLS='' COUNTER=''
}

# Run "$@" until it succeeds, for at most 20 seconds.
wait_for() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || return 1
        sleep 0.1
    done
}

# A TCP port of 127.0.0.1 that nobody listens on, in $PORT.
NEXT_PORT=$((20000 + $$ % 10000))
find_port() {
    NEXT_PORT=$((NEXT_PORT + 1))
    while grep -q ":$(printf '%04X' "$NEXT_PORT") " /proc/net/tcp; do NEXT_PORT=$((NEXT_PORT + 1)); done
    PORT=$NEXT_PORT
}

# add_server NAME PID PROGRAM ARGUMENT...: how the load reaches it
add_server() {
    name=$1
    echo "$2" >"$DIR/$name.pid"
    shift 2
    echo "$*" >"$DIR/$name.load"
    SERVERS="$SERVERS $name"
}

on_server_core() { exec taskset -c 0 "$@" >>"$DIR/log" 2>&1 </dev/null; }

# The same, NAME first, and its calls are counted if somebody wants to know.
on_server_core_counted() {
    counts=$DIR/calls.$1
    shift
    on_server_core ${COUNTER:+env "LD_PRELOAD=$COUNTER" "COUNT_CALLS=$counts"} "$@"
}

make_backing() { [ -f "$DIR/peer" ] || head -c "$BYTES" /dev/urandom >"$DIR/peer"; }

# An authority, a server's certificate for 127.0.0.1 and a client's, under the names that qemu, nbdkit and load_tls.c look for; then
# $TLS has a load use them.
make_certificates() {
    [ ! -f "$DIR/tls/client-cert.pem" ] || return 0
    mkdir -p "$DIR/tls"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=bench" -keyout "$DIR/tls/ca-key.pem" \
        -out "$DIR/tls/ca-cert.pem" 2>>"$DIR/log" || die "no certificate"
    for role in server client; do
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$role" -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" \
            -keyout "$DIR/tls/$role-key.pem" -out "$DIR/tls/$role.csr" 2>>"$DIR/log"
        openssl x509 -req -in "$DIR/tls/$role.csr" -CA "$DIR/tls/ca-cert.pem" -CAkey "$DIR/tls/ca-key.pem" -CAcreateserial -days 2 \
            -copy_extensions copy -out "$DIR/tls/$role-cert.pem" 2>>"$DIR/log" || die "no certificate for the $role"
    done
    chmod 0600 "$DIR/tls/server-key.pem"
    TLS="--tls $DIR/tls"
}

# One small read by the load itself, in TLS where that is the section.
serves_nbd() {
    # shellcheck disable=SC2086
    timeout 5 "$BUILD_DIR/tests/bench/load_nbd" --uri "127.0.0.1:$PORT" --export "$1" --depth 1 --seconds 0.01 $TLS
}

# $1: name of the server, $2: of its export; the rest: the command, which listens on $PORT
start_nbd_peer() {
    name=$1
    export=$2
    shift 2
    make_backing
    on_server_core "$@" &
    peer=$!
    if [ "$name" = nbd-server ]; then # it goes to the background by itself
        wait "$peer" && wait_for test -s "$DIR/nbd-server.pid" || die "$name does not start"
        peer=$(cat "$DIR/nbd-server.pid")
    fi
    PIDS="$PIDS $peer"
    wait_for serves_nbd "$export" || die "$name does not serve"
    add_server "$name" "$peer" load_nbd --uri "127.0.0.1:$PORT" --export "'$export'" "$TLS"
}

start_qemu_nbd() {
    find_port
    # shellcheck disable=SC2046
    start_nbd_peer qemu-nbd "" qemu-nbd -t -e 16 -f raw --cache=none --aio=io_uring -b 127.0.0.1 -p "$PORT" \
        $([ -z "$TLS" ] || echo "--object tls-creds-x509,id=tls0,dir=$DIR/tls,endpoint=server,verify-peer=off --tls-creds tls0") "$DIR/peer"
}

start_qemu_storage_daemon() {
    find_port
    # shellcheck disable=SC2046
    start_nbd_peer qemu-storage-daemon peer qemu-storage-daemon \
        $([ -z "$TLS" ] || echo "--object tls-creds-x509,id=tls0,dir=$DIR/tls,endpoint=server,verify-peer=off") \
        --blockdev "driver=file,node-name=peer,filename=$DIR/peer,cache.direct=on,aio=io_uring" \
        --nbd-server "addr.type=inet,addr.host=127.0.0.1,addr.port=$PORT,max-connections=16${TLS:+,tls-creds=tls0}" \
        --export type=nbd,id=peer,node-name=peer,name=peer,writable=on
}

start_nbdkit() {
    find_port
    # shellcheck disable=SC2046
    start_nbd_peer nbdkit "" nbdkit -f -i 127.0.0.1 -p "$PORT" $([ -z "$TLS" ] || echo "--tls=require --tls-certificates=$DIR/tls") \
        file "$DIR/peer"
}

# It serves each connection by a process of its own, whose time counts as its parent's once it has ended.
start_nbd_server() {
    find_port
    cat >"$DIR/nbd-server.conf" <<CONF
[generic]
listenaddr = 127.0.0.1
port = $PORT
${TLS:+force_tls = true
certfile = $DIR/tls/server-cert.pem
keyfile = $DIR/tls/server-key.pem
cacertfile = $DIR/tls/ca-cert.pem}
[peer]
exportname = $DIR/peer
CONF
    start_nbd_peer nbd-server peer nbd-server -C "$DIR/nbd-server.conf" -p "$DIR/nbd-server.pid"
}

# $1: the kind of backing store, aio or rdwr
start_tgtd() {
    make_backing
    find_port
    control=$((1000 + PORT % 30000)) # names its control socket
    target=iqn.2026-01.org.example:$1
    on_server_core tgtd -f -C "$control" --iscsi "portal=127.0.0.1:$PORT" &
    tgtd=$!
    KILLS="$KILLS $tgtd"
    LEFT="$LEFT /var/run/tgtd/socket.$control /var/run/tgtd/socket.$control.lock"
    wait_for tgtadm -C "$control" --lld iscsi --mode target --op new --tid 1 -T "$target" || die "tgtd does not serve"
    tgtadm -C "$control" --lld iscsi --mode logicalunit --op new --tid 1 --lun 1 -b "$DIR/peer" --bstype "$1" --blocksize 4096
    tgtadm -C "$control" --lld iscsi --mode target --op bind --tid 1 -I ALL
    for digest in HeaderDigest DataDigest; do # what the initiator wants
        tgtadm -C "$control" --lld iscsi --mode target --op update --tid 1 --name "$digest" --value CRC32C,None
    done
    add_server "tgtd-$1" "$tgtd" load_iscsi --uri "127.0.0.1:$PORT" --export "$target" --lun 1
}

# -- Corbel -------------------------------------------------------------------------------------------------------------------

# disks PREFIX COUNT SIZE: sparse files, as a list for the config
disks() {
    i=0
    while [ "$i" -lt "$2" ]; do
        truncate -s "$3" "$DIR/$1$i"
        printf '%s"%s"' "${list:+, }" "$DIR/$1$i"
        list=y
        i=$((i + 1))
    done
}

write_config() {
    tls_settings=
    [ -z "$TLS" ] || tls_settings="tls = { mode = \"allow\"; certificate = \"$DIR/tls/server-cert.pem\"; key = \"$DIR/tls/server-key.pem\"; };"
    cat >"$DIR/corbel.conf" <<CONF
daemon = { control = "$DIR/control"; log = "info"; };
arrays = (
    { name = "one"; disks = [ $(disks one 1 1200M) ]; volumes = ( { name = "jbod"; level = "jbod"; size = "1 GiB"; } ); },
    { name = "two"; disks = [ $(disks two 2 800M) ]; volumes = ( { name = "raid1"; level = "raid1"; size = "512 MiB"; } ); },
    { name = "six"; disks = [ $(disks six 6 600M) ];
      volumes = ( { name = "raid0"; level = "raid0"; size = "512 MiB"; }, { name = "raid5"; level = "raid5"; size = "512 MiB"; },
                  { name = "raid6"; level = "raid6"; size = "512 MiB"; } ); },
    { name = "policies"; disks = [ $(disks policy 6 600M) ];
      volumes = ( { name = "raid5-bitmap"; level = "raid5"; size = "256 MiB"; consistency = "bitmap"; },
                  { name = "raid5-ppl"; level = "raid5"; size = "256 MiB"; consistency = "ppl"; },
                  { name = "raid5-journal"; level = "raid5"; size = "256 MiB"; consistency = "journal"; },
                  { name = "raid6-bitmap"; level = "raid6"; size = "256 MiB"; consistency = "bitmap"; },
                  { name = "raid6-journal"; level = "raid6"; size = "256 MiB"; consistency = "journal"; } ); },
    { name = "seven"; disks = [ $(disks seven 1 600M) ];
      volumes = ( { name = "cached"; level = "jbod"; size = "256 MiB";
                    cache = { size = "320 MiB"; write = "back"; protection = "forced"; }; } ); }
);
nbd = { listen = [ "127.0.0.1:0" ]; $tls_settings
        exports = ( { name = "jbod"; volume = "one/jbod"; }, { name = "raid1"; volume = "two/raid1"; },
                    { name = "raid0"; volume = "six/raid0"; }, { name = "raid5"; volume = "six/raid5"; },
                    { name = "raid6"; volume = "six/raid6"; },
                    { name = "raid5-bitmap"; volume = "policies/raid5-bitmap"; },
                    { name = "raid5-ppl"; volume = "policies/raid5-ppl"; },
                    { name = "raid5-journal"; volume = "policies/raid5-journal"; },
                    { name = "raid6-bitmap"; volume = "policies/raid6-bitmap"; },
                    { name = "raid6-journal"; volume = "policies/raid6-journal"; },
                    { name = "cached"; volume = "seven/cached"; } ); };
iscsi = { listen = [ "127.0.0.1:0" ];
          targets = ( { name = "iqn.2026-01.org.example:corbel"; luns = ( { lun = 0; volume = "one/jbod"; } ); } ); };
CONF
}

ctl() { "$BUILD_DIR/corbelctl" --socket "$DIR/control" "$@"; }
corbel_address() { ctl status | sed -n "s/^$1 listens on //p" | head -n 1; }
no_jobs() { ! ctl status | grep -qE '^  (init|resync|rebuild) of'; }

start_corbel() {
    write_config
    on_server_core_counted corbel "$BUILD_DIR/corbeld" -c "$DIR/corbel.conf" --pidfile "$DIR/corbel.pid" &
    CORBEL=$!
    PIDS="$PIDS $CORBEL"
    wait_for grep -q "is ready" "$DIR/log" || die "corbeld does not serve"
    ctl apply --yes >>"$DIR/log" 2>&1 || die "corbeld could not make the arrays"
    wait_for no_jobs || die "the arrays are not ready"
}

# $1: an export; its bytes are written once, for Corbel does not read what was never written
add_corbel_export() {
    address=$(corbel_address nbd)
    bytes=$(nbdinfo --size "nbd://$address/$1")
    qemu-io -f raw -c "write -q -P 0x5a 0 $bytes" "nbd://$address/$1" >>"$DIR/log" 2>&1 || die "$1 cannot be filled"
    add_server "$2" "$CORBEL" load_nbd --uri "$address" --export "$1" "$TLS"
}

add_corbel_lun() { add_server "$1" "$CORBEL" load_iscsi --uri "$(corbel_address iscsi)" --export iqn.2026-01.org.example:corbel --lun 0; }

cache_counts() { ctl --json cache list | sed -n "s/^ *\"$1\": \([0-9]*\),\{0,1\}\$/\1/p"; }

# All of the volume `cached` comes to be in its cache: so the second time nothing is missing.
warm_cache() {
    read_cached() { qemu-io -f raw -c "read -q 0 268435456" "nbd://$address/cached" >>"$DIR/log" 2>&1 || die "the cache cannot be filled"; }
    read_cached
    misses=$(cache_counts misses)
    read_cached
    [ "$(cache_counts misses)" = "$misses" ] || die "not all of the volume is in its cache"
}

# -- nothing: see null_server.c -----------------------------------------------------------------------------------------------

serves_null() { grep -q '^nbd listens on' "$DIR/null.said"; }

start_null() {
    on_server_core_counted null sh -c 'exec "$@" >"$0"' "$DIR/null.said" "$BUILD_DIR/tests/bench/null_server" 268435456 "$DIR/null.pidfile" &
    null=$!
    PIDS="$PIDS $null"
    wait_for serves_null || die "null_server does not serve"
    for export in null pages; do
        add_server "$export" "$null" load_nbd --uri "$(sed -n 's/^nbd listens on //p' "$DIR/null.said")" --export "$export"
    done
    [ ! -f "$DIR/calls.null" ] || ln "$DIR/calls.null" "$DIR/calls.pages"
}
