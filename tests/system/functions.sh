# Shared by the system tests: a daemon of their own, in a folder of its own, on free ports, stopped by pid.
#
#   . functions.sh           at the top of a test; it runs in a fresh $DIR that is removed at the end
#   make_disks 6 256M        sparse files $DIR/d0 .. d5
#   write_config LEVEL...    an array "r" with a volume "v" (and more by EXTRA_VOLUMES), an export "v", a target with LUN 0
#   start_daemon             returns when it serves; $NBD (uri), $ISCSI (url) and $CTL are set
#   stop_daemon, kill_daemon
#   fail "why"               ends the test
#
# A test prints nothing when all is well but what it wants to show; its exit status is the verdict.
set -eu
BUILD_DIR=${BUILD_DIR:?the folder with corbeld and corbelctl}
DIR=$(mktemp -d "${TMPDIR:-/tmp}/corbel-test.XXXXXX")
CONFIG=$DIR/corbel.conf
SOCKET=$DIR/control.sock
LOG=$DIR/log
TARGET=iqn.2026-01.org.example:r
PID=
PIDS= # of other processes the test started
CTL="$BUILD_DIR/corbelctl --socket $SOCKET"
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:log_path=$DIR/san" UBSAN_OPTIONS="print_stacktrace=1:log_path=$DIR/san"

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

cleanup() {
    status=$?
    trap - EXIT
    for p in $PIDS; do kill "$p" 2>/dev/null || :; done
    if [ -n "$PID" ]; then
        kill -9 "$PID" 2>/dev/null || :
        wait "$PID" 2>/dev/null || :
    fi
    if ls "$DIR"/san.* >/dev/null 2>&1; then
        cat "$DIR"/san.* >&2
        status=1
    fi
    if [ "$status" != 0 ] && [ -f "$LOG" ]; then
        echo "--- the daemon's log:" >&2
        tail -n 40 "$LOG" >&2
    fi
    rm -rf "$DIR"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

make_disks() {
    i=0
    DISKS=
    while [ "$i" -lt "$1" ]; do
        truncate -s "$2" "$DIR/d$i"
        DISKS="$DISKS${DISKS:+, }\"$DIR/d$i\""
        i=$((i + 1))
    done
}

# write_config LEVEL [volume settings, e.g. 'size = "64 MiB"; spans = 2;']; EXTRA_VOLUMES, EXTRA_DAEMON, EXTRA_TOP go in as they are
write_config() {
    cat >"$CONFIG" <<EOF
daemon = { control = "$SOCKET"; log = "info"; drain = "5 s"; ${EXTRA_DAEMON:-} };
arrays = (
    { name = "r"; disks = [ $DISKS ];
      volumes = ( { name = "v"; level = "$1"; ${2:-} } ${EXTRA_VOLUMES:-} ); }
);
nbd = { listen = [ "${NBD_LISTEN:-127.0.0.1:0}", "unix:$DIR/nbd.sock" ];
        exports = ( { name = "v"; volume = "r/v"; description = "test volume"; } ${EXTRA_EXPORTS:-} ); };
iscsi = { listen = [ "127.0.0.1:0" ];
          targets = ( { name = "$TARGET"; luns = ( { lun = 0; volume = "r/v"; } ${EXTRA_LUNS:-} ); } ${EXTRA_TARGETS:-} ); };
${EXTRA_TOP:-}
EOF
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

daemon_ready() { grep -q 'is ready' "$LOG" || ! kill -0 "$PID" 2>/dev/null; }

launch_daemon() {
    : >"$LOG"
    ${LAUNCHER:-} "$BUILD_DIR/corbeld" -c "$CONFIG" --pidfile "$DIR/pid" 2>"$LOG" &
    PID=$!
    wait_for daemon_ready || fail "the daemon did not become ready"
    kill -0 "$PID" 2>/dev/null || fail "the daemon ended: $(tail -n 3 "$LOG")"
    addresses
}

addresses() {
    status=$($CTL status || :)
    NBD_ADDRESS=$(echo "$status" | sed -n 's/^nbd listens on \([^u].*\)/\1/p' | head -n 1)
    ISCSI_ADDRESS=$(echo "$status" | sed -n 's/^iscsi listens on \(.*\)/\1/p' | head -n 1)
    NBD=nbd://$NBD_ADDRESS/v
    NBD_UNIX="nbd+unix:///v?socket=$DIR/nbd.sock"
    ISCSI=iscsi://$ISCSI_ADDRESS/$TARGET/0
}

# Start, and create what the config says.
start_daemon() {
    launch_daemon
    $CTL apply --yes >"$DIR/apply.out" 2>&1 || fail "apply: $(cat "$DIR/apply.out")"
}

stop_daemon() {
    kill -TERM "$PID"
    stop_status=0
    wait "$PID" || stop_status=$?
    PID=
    [ "$stop_status" = 0 ] || fail "the daemon ended with status $stop_status"
}

kill_daemon() {
    kill -KILL "$PID"
    wait "$PID" 2>/dev/null || :
    PID=
}

# A field of the status: status_field '"state"' prints its values, one a line.
status_field() { $CTL --json status | sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p"; }
array_state() { $CTL array list | awk '$1 == "r" {print $2}'; }
# The last row of a rebuild is done a little before its disk is online.
no_jobs() { [ -z "$($CTL status | grep -E '^  (resync|rebuild|scrub|patrol|init) of|^[^ ]*/[0-9]* *rebuilding ' || :)" ]; }
wait_idle() { wait_for_long no_jobs || fail "jobs did not end: $($CTL status | grep ' of ')"; }
wait_for_long() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 1200 ] || return 1
        sleep 0.1
    done
}

# Bytes that depend on a seed: random_file NAME BYTES SEED
random_file() { openssl enc -aes-128-ctr -K "$(printf '%032d' "$3")" -iv 0 -nosalt -in /dev/zero 2>/dev/null | head -c "$2" >"$1"; }
