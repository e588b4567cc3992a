# libiscsi's conformance suite: what must pass is listed; nothing may crash or hang the daemon. See iscsi_suite.txt.
. "$(dirname "$0")/functions.sh"
make_disks 4 96M
write_config raid5 'size = "128 MiB";'
start_daemon
wait_idle
expected=$(dirname "$0")/iscsi_suite.txt
here=$(dirname "$0")
: >"$DIR/results"
# Suite by suite, so that one that hangs costs only itself; on zeroes, since one of its tests forgets to write its last block.
for suite in $(grep -v '^#' "$expected" | cut -d. -f1 | sort -u); do
    qemu-io -f raw -c 'write -z 0 1M' "$NBD" >/dev/null || fail "no zeroes before suite $suite"
    timeout 200 iscsi-test-cu --dataloss --allow-sanitize --verbose -t "ALL.$suite" "$ISCSI" "$ISCSI" >"$DIR/suite" 2>&1 </dev/null || :
    kill -0 "$PID" 2>/dev/null || fail "the daemon died in suite $suite"
    awk -v suite="$suite" -f "$here/iscsi_results.awk" "$DIR/suite" >>"$DIR/results"
    $CTL status >/dev/null || fail "the daemon does not answer after suite $suite"
done
sed -n 's/ passed$//p' "$DIR/results" >"$DIR/passed"
sort -u "$DIR/passed" >"$DIR/passed.sorted"
grep -v '^#' "$expected" | sort -u >"$DIR/expected.sorted"
missing=$(comm -13 "$DIR/passed.sorted" "$DIR/expected.sorted")
[ -z "$missing" ] || fail "these do not pass any more: $missing"
echo "$(grep -c ' passed$' "$DIR/results") as listed in iscsi_suite.txt, $(grep -c ' skipped$' "$DIR/results") skipped by the tool"
echo "known not to hold: $(sed -n 's/ failed$//p' "$DIR/results" | tr '\n' ' ')"
qemu-io -f raw -c 'write -P 7 0 65536' -c 'read -P 7 0 65536' "$ISCSI" >/dev/null || fail "the target does not serve after the suite"
stop_daemon
