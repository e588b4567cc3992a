#!/bin/sh
# The shape of the code: no file over 900 lines, no function over 110 (tables are data), no words that do not belong.
set -eu
cd "$(dirname "$0")/../.."
bad=0
for file in core/*.[ch] raid/*.[ch] cache/*.[ch] target/*/*.[ch] daemon/*.[ch]; do
    lines=$(wc -l <"$file")
    [ "$lines" -le 900 ] || { echo "$file has $lines lines"; bad=1; }
    awk -v file="$file" '
        /^[a-z].*\)$/ || /^[a-z].*[^;]$/ { head = $0 }
        /^\{$/ { start = NR; name = head }
        /^\}$/ { if (start && NR - start > 110) { print file ":" start ": a function of " NR - start " lines: " name; found = 1 } start = 0 }
        END { exit found }' "$file" || bad=1
done
if grep -nE '\b(TODO|FIXME|XXX|HACK)\b' core/*.[ch] raid/*.[ch] cache/*.[ch] target/*/*.[ch] daemon/*.[ch] tests/unit/*/*.[ch] Makefile; then
    echo "left open"
    bad=1
fi
exit $bad
