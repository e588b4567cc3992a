#!/bin/sh
# Run the system tests: run.sh BUILD_DIR [test...]. Each is a program of its own; prints a line a test and a count.
set -u
BUILD_DIR=$(cd "$1" && pwd) || exit 2
export BUILD_DIR
shift
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- "$here"/test_*.sh
passed=0 failed=0
for test in "$@"; do
    name=$(basename "$test" .sh)
    start=$(date +%s)
    out=$(mktemp)
    if timeout --kill-after=10 "${TEST_TIMEOUT:-600}" sh "$test" >"$out" 2>&1; then
        passed=$((passed + 1))
        printf '  ok      %s (%s s)\n' "$name" $(($(date +%s) - start))
        tail -n 3 "$out" | sed 's/^/            /'
    else
        failed=$((failed + 1))
        printf '  FAILED  %s\n' "$name"
        tail -n 50 "$out" | cut -c 1-400 | sed 's/^/            /'
    fi
    rm -f "$out"
done
echo "system: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
