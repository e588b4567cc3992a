# A mirror of two LUNs of other machines, then one of a LUN, an NBD export and a file. A machine is killed under load, and
# comes back. The secret of one is in a file, and in no log.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/remotes.sh"

for name in a b; do make_remote "$name" 96M; done
# Machine b asks for a secret.
printf 'twelve-bytes-and-more\n' >"$DIR/secret"
chmod 600 "$DIR/secret"
sed -i "s|luns = |access = ( { name = \"x\"; user = \"me\"; secret_file = \"$DIR/secret\"; } ); luns = |" "$DIR/b.conf"
for name in a b; do start_remote "$name"; done
iscsi_b=$(echo "$(iscsi_of b)?secret_file=$DIR/secret" | sed 's|//|//me@|')

mirror() { # disks
    DISKS=$1
    write_config raid1 'size = "48 MiB"; consistency = "bitmap";'
    start_daemon
    state_is optimal || fail "'$(array_state)' when created: $($CTL array list)"
    load 5
    sleep 1.5
    kill_remote b
    wait_for state_is degraded || fail "'$(array_state)' without b"
    start_remote b
    wait_for_long whole || fail "b did not come back: $($CTL status; tail -n 5 "$LOG")"
    load_over "$1"
    scrub_clean "$1"
    stop_daemon
    launch_daemon
    state_is optimal || fail "'$(array_state)' after a restart: $($CTL array list)"
    stop_daemon
    grep -q 'twelve-bytes' "$LOG" "$DIR/corbel.conf" && fail "the secret is in the log"
    return 0
}

mirror "\"$(iscsi_of a)\", \"$iscsi_b\""
stop_remotes
for name in a b; do
    rm "$DIR/$name.disk"
    truncate -s 96M "$DIR/$name.disk"
    start_remote "$name"
done
truncate -s 96M "$DIR/d0"
mirror "\"$(nbd_of a)\", \"$iscsi_b\", \"$DIR/d0\""

# A wrong secret is said.
printf 'another-twelve-bytes\n' >"$DIR/wrong"
chmod 600 "$DIR/wrong"
sed -i "s|$DIR/secret|$DIR/wrong|" "$CONFIG"
launch_daemon
state_is degraded || fail "'$(array_state)' with a wrong secret"
grep -q "127.0.0.1.*cannot be used as a disk: .*[Aa]uth" "$LOG" || fail "a wrong secret: $(tail -n 5 "$LOG")"
stop_daemon
stop_remotes
