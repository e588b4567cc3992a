# SIGTERM with NBD clients in every state: the end comes in seconds, and what was answered is there after a restart.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/nbd_functions.sh"
cases=0 runs=0
make_disks 3 96M
write_config raid5 'size = "96 MiB";'
sed -i 's/drain = "5 s"/drain = "3 s"/' "$CONFIG"
make_certificates
export GRACE=3 WRITTEN="$DIR/written"
start_daemon
wait_idle
stop() { # MODE [tls]
    TLS_ADDRESS=$(tls_address)
    theme stop "$@"
    stopped=0
    wait "$PID" || stopped=$?
    PID=
    [ "$stopped" = 0 ] || fail "the daemon ended with status $stopped"
    launch_daemon
    theme written "$1"
}
case $BUILD_DIR in
*san*) stop extended tls ;;
*)
    stop simple
    stop structured tls
    stop extended
    stop simple tls
    ;;
esac
stop_daemon
