# Rounds of kill -9 for a cache, behind cache_functions.sh.
python=/usr/bin/python3
[ -x "$python" ] || python=python3
here=$(dirname "$0")

# A stand-in for the file descriptor store of systemd.
start_store() {
    "$python" "$here/fd_store.py" keep "$DIR/notify" "$DIR/ask-store" >"$DIR/stored" &
    PIDS="$PIDS $!"
    wait_for [ -S "$DIR/ask-store" ] || fail "no stand-in for the store"
    export NOTIFY_SOCKET="$DIR/notify"
    LAUNCHER="$python $here/fd_store.py run $DIR/ask-store"
}

writer() { "$python" "$here/cache_writer.py" "$@"; }
check_promises() { writer check "$NBD_UNIX" "$DIR/state" >"$DIR/checked" 2>&1 || fail "$1: $(tail -n 1 "$DIR/checked")"; }
load_runs() { [ "$(grep -c 'nbd: unix:: serving' "$LOG")" -ge 5 ]; }

# Killed while it starts: anywhere between its first line and the moment it is ready.
kill_starting() {
    ${LAUNCHER:-} "$BUILD_DIR/corbeld" -c "$CONFIG" --pidfile "$DIR/pid" 2>"$LOG" &
    PID=$!
    sleep "0.$(printf '%03d' $(($1 * 53 % 250)))"
    kill_daemon
}

# Without a disk the same bytes are there: what was taken over has its redundancy.
check_redundancy() {
    wait_idle
    $CTL cache flush r/v >/dev/null || fail "$1: cache flush"
    $CTL disk fail "r/$(($2 % 4))" >/dev/null || fail "$1: disk fail"
    check_promises "$1, without a disk"
    $CTL disk online "r/$(($2 % 4))" >/dev/null || fail "$1: disk online"
    wait_idle
}

# rounds_of NAME ROUNDS answered|flushed CACHE_SETTINGS
rounds_of() {
    rm -f "$DIR"/state.* "$DIR"/d[0-9]
    make_disks 4 64M
    write_config raid5 "size = \"48 MiB\"; cache = { size = \"16 MiB\"; write = \"back\"; $4 };"
    start_daemon
    round=0 found=0
    while [ "$round" -lt "$2" ]; do
        round=$((round + 1))
        start_load "$round"
        writer write "$NBD_UNIX" "$DIR/state" "$3" &
        WRITER=$!
        PIDS="$PIDS $WRITER"
        wait_for load_runs || fail "$1, round $round: the load does not begin: $(cat "$DIR/fio")"
        sleep "0.$((round * 37 % 90 + 10))"
        kill_daemon
        wait "$WRITER" || fail "$1, round $round: a writer"
        end_load
        PIDS=${PIDS%" $LOAD $WRITER"}
        [ $((round % 3)) != 0 ] || kill_starting "$round"
        launch_daemon
        ! grep -qE 'answered writes were found in its arena|blocks were written from its log' "$LOG" || found=$((found + 1))
        check_promises "$1, round $round"
        [ $((round % 20)) != 2 ] || check_redundancy "$1, round $round" "$round"
    done
    stop_daemon
    launch_daemon
    check_promises "$1, after a stop"
    stop_daemon
    echo "$1: $round rounds, $found with dirty data found; $(cat "$DIR/checked")"
}
