# Parts of the tests that run libiscsi's conformance suite, after functions.sh: suite by suite, so that one that hangs costs only itself;
# on zeroes, since one of its tests forgets to write its last block. $FIRST and $SECOND are the two paths.
EXPECTED=$(dirname "$0")/iscsi_suite.txt
RESULTS=$DIR/results

# Two portals, and beside LUN 0 the same volume as LUN 1 without a word of its physical blocks, as LUN 2, read only, as LUN 3, which is
# sanitized slowly, and as LUN 4, which can be ejected.
write_suite_config() {
    EXTRA_LUNS=', { lun = 1; volume = "r/v"; hide_physical = true; }, { lun = 2; volume = "r/v"; read_only = true; },
        { lun = 3; volume = "r/v"; sanitize_rate = "20 MiB"; },
        { lun = 4; volume = "r/v"; removable = true; }'
    write_config "$@"
    # Who sleeps for a minute answers no pings.
    sed -i 's/^iscsi = { listen = \[ "127.0.0.1:0"/iscsi = { ping_interval = "300 s"; listen = [ "127.0.0.1:0", "127.0.0.2:0"/' "$CONFIG"
}

suite_paths() {
    FIRST=iscsi://$ISCSI_ADDRESS/$TARGET
    SECOND=iscsi://$($CTL status | sed -n 's/^iscsi listens on \(127.0.0.2.*\)/\1/p')/$TARGET
}

# run_suite SUITE[.TEST] LUN
run_suite() {
    qemu-io -f raw -c 'write -z 0 1M' "$NBD" >/dev/null || fail "no zeroes before suite $1"
    timeout 200 iscsi-test-cu --dataloss --allow-sanitize --verbose -t "ALL.$1" "$FIRST/$2" "$SECOND/$2" >"$DIR/suite" 2>&1 </dev/null || :
    kill -0 "$PID" 2>/dev/null || fail "the daemon died in suite $1"
    awk -v suite="${1%%.*}" -f "$(dirname "$0")/iscsi_results.awk" "$DIR/suite" >>"$RESULTS"
    $CTL array list >/dev/null || fail "the daemon does not answer after suite $1"
}

# All that is listed; some on the LUNs they are meant for, too. Sanitize.Reset wants to find the unit busy for four seconds, and sleeps for
# a minute; and not behind Sanitize.Reservations, which leaves a session with a reservation.
run_suites() {
    : >"$RESULTS"
    for suite in $(grep -v '^#' "$EXPECTED" | cut -d. -f1 | sort -u); do
        run_suite "$suite" 0
    done
    run_suite GetLBAStatus 1
    run_suite ReadOnly 2
    run_suite Sanitize.Reset 3
    for suite in NoMedia PreventAllow StartStopUnit; do
        run_suite "$suite" 4
    done
}

# Those in the list must have passed; a failure is one that passed on no LUN.
check_suites() {
    sed -n 's/ passed$//p' "$RESULTS" | sort -u >"$DIR/passed"
    grep -v '^#' "$EXPECTED" | sort -u >"$DIR/expected"
    missing=$(comm -13 "$DIR/passed" "$DIR/expected")
    [ -z "$missing" ] || fail "these do not pass any more: $missing"
    failed=$(sed -n 's/ failed$//p' "$RESULTS" | sort -u | comm -23 - "$DIR/passed")
    [ -z "$failed" ] || fail "these fail, and are not in the list: $failed"
    all=$(iscsi-test-cu --list 2>/dev/null | grep -c '^ALL\..*\.' || :)
    echo "$(wc -l <"$DIR/passed") of $all passed, 0 failed; the others are skipped by the tool"
}
