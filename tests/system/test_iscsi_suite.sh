# libiscsi's conformance suite: what must pass is listed; nothing may crash or hang the daemon. See iscsi_suite.txt.
. "$(dirname "$0")/functions.sh"
make_disks 4 96M
write_config raid5 'size = "128 MiB";'
start_daemon
wait_idle
expected=$(dirname "$0")/iscsi_suite.txt
: >"$DIR/passed"
: >"$DIR/other"
# Suite by suite, so that one that hangs costs only itself.
for suite in $(grep -v '^#' "$expected" | cut -d. -f1 | sort -u); do
    timeout 60 iscsi-test-cu --dataloss --allow-sanitize --verbose -t "ALL.$suite" "$ISCSI" "$ISCSI" >"$DIR/suite" 2>&1 || :
    kill -0 "$PID" 2>/dev/null || fail "the daemon died in suite $suite"
    awk -v suite="$suite" -v passed="$DIR/passed" -v other="$DIR/other" '
        /^ *Test: / { name = $2; skipped = 0; text = $0; next }
        name != "" && /\[SKIPPED\]/ { skipped = 1 }
        name != "" && /passed$/ { print suite "." name > (skipped ? other : passed); name = ""; next }
        name != "" && /FAILED/ { print suite "." name " failed" > other; name = "" }' "$DIR/suite"
    $CTL status >/dev/null || [ $? -le 6 ] || fail "the daemon does not answer after suite $suite"
done
sort -u "$DIR/passed" >"$DIR/passed.sorted"
grep -v '^#' "$expected" | sort -u >"$DIR/expected.sorted"
missing=$(comm -13 "$DIR/passed.sorted" "$DIR/expected.sorted")
[ -z "$missing" ] || fail "these do not pass any more: $missing"
echo "$(wc -l <"$DIR/passed.sorted") tests of the suite pass"
qemu-io -f raw -c 'write -P 7 0 65536' -c 'read -P 7 0 65536' "$ISCSI" >/dev/null || fail "the target does not serve after the suite"
stop_daemon
