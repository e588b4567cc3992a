# NBD clients that stall with 32 MiB announced, that never end their handshake, and hundreds that idle: bounded memory, others are served.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/nbd_functions.sh"
cases=0 runs=0
# shellcheck disable=SC3045
ulimit -n 4096
make_disks 3 96M
write_config raid5 'size = "160 MiB";'
sed -i 's/^nbd = {/& connections = 1200; half_open = 1200; half_open_per_address = 1200; negotiation = "3 s";/' "$CONFIG"
"$BUILD_DIR/corbeld" --config-keys | grep -A 2 'nbd.negotiation' | grep -q '10 s' || fail "handshakes may take longer than 10 s by default"
export NEGOTIATION=3 POOL=256 KIB=256
[ -z "$(echo "$BUILD_DIR" | grep san)" ] || KIB=2000 # the sanitizer's own
make_certificates
start_daemon
wait_idle
TLS_ADDRESS=$(tls_address)
theme stalled simple
theme stalled extended tls
stop_daemon
