# The NBD server by raw bytes, case by case, in each mode of the protocol, on a healthy volume, while it is scrubbed, on one that
# lacks a disk, and while it is rebuilt; docs/nbd-conformance.md says which case stands for what.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/nbd_functions.sh"
cases=0 runs=0
# shellcheck disable=SC3045
ulimit -n 4096
make_disks 4 104M
EXTRA_VOLUMES=', { name = "w"; level = "raid5"; size = "32 MiB"; }'
EXTRA_EXPORTS=', { name = "ro"; volume = "r/w"; read_only = true; }, { name = "secret"; volume = "r/w"; hidden = true; },
    { name = ""; volume = "r/w"; }, { name = "long-'$(printf 'n%.0s' $(seq 250))'"; volume = "r/w"; }'
write_config raid5 'size = "168 MiB"; priority = 5; max_rate = "64 KiB";'
truncate -s 5G "$DIR/b0" "$DIR/b1"
sed -i "s|^arrays = (|& { name = \"b\"; disks = [ \"$DIR/b0\", \"$DIR/b1\" ]; volumes = ( { name = \"v\"; level = \"raid1\"; } ); },|
s|exports = (|& { name = \"big\"; volume = \"b/v\"; },|" "$CONFIG"
make_certificates
export ALLOW="$DIR/allow.sock"
everything() { # STATE HOW: all commands and contexts, each run by HOW
    state=$1
    for mode in $MODES; do
        "$2" commands "$mode"
        "$2" commands "$mode" tls
        [ "$mode" != simple ] || continue
        "$2" contexts "$mode"
        "$2" contexts "$mode" tls
    done
}
is_running() { $CTL status | grep -q "$1 of v"; }
fill() { qemu-io -f raw -c 'write -q -P 0x5a 0 168M' "$NBD" >"$DIR/io" || fail "$(cat "$DIR/io")"; }
rebuild() {
    [ "$(array_state)" = degraded ] || $CTL disk fail r/1 >/dev/null || fail "disk fail"
    fill
    $CTL disk online r/1 --force >/dev/null || fail "disk online"
}
scrub() {
    fill
    $CTL volume scrub r/v >/dev/null || fail "volume scrub"
}
beside() { # JOB, a theme, which the job outlasts; what is trimmed needs no work, so it may be over too soon
    job=$1
    shift
    for try in 1 2 3; do
        if ! is_running "$job"; then
            "$job"
            wait_for is_running "$job" || fail "no $job: $($CTL status)"
        fi
        theme "$@"
        ! is_running "$job" || return 0
    done
    fail "the $job was over too soon, $try times"
}
beside_a_rebuild() { beside rebuild "$@"; }
start_daemon
wait_idle
TLS_ADDRESS=$(tls_address)
case $BUILD_DIR in
*san*) # each theme in the modes that differ most
    state=sanitized
    theme handshake simple
    theme starttls simple tls
    theme commands structured
    theme commands extended tls
    theme contexts extended
    theme field simple tls
    stop_daemon
    echo "$cases cases with raw requests passed in $runs runs"
    exit 0
    ;;
esac
for mode in $MODES; do
    theme handshake "$mode"
    theme handshake "$mode" tls
    theme field "$mode"
    [ "$mode" = structured ] || theme field "$mode" tls
    theme starttls "$mode" tls
    theme big "$mode"
done
theme big extended tls
theme replay
everything healthy theme
export KEPT=33554432
state='while a scrub runs'
beside scrub commands simple tls
beside scrub commands extended
beside scrub contexts structured
$CTL volume scrub-stop r/v >/dev/null || fail "scrub-stop"
unset KEPT
$CTL disk fail r/1 >/dev/null || fail "disk fail"
everything degraded theme
export KEPT=33554432
everything 'while a rebuild runs' beside_a_rebuild
$CTL volume rate r/v --max '900 MiB' >/dev/null || fail "volume rate"
wait_idle
$CTL status >"$DIR/status" || fail "not healthy at the end: $(cat "$DIR/status")"
stop_daemon
echo "$cases cases with raw requests passed in $runs runs"
