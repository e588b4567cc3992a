#!/bin/sh
# The shape of the code: no file over 900 lines, no function over 110 (tables are data), no line over 120 columns but where
# clang-format is off (raid/, cache/ and their tests are not looked at for that), no words that do not belong.
set -eu
cd "$(dirname "$0")/../.."
bad=0
sources=$(git ls-files 'core/*.[ch]' 'raid/*.[ch]' 'cache/*.[ch]' 'target/*.[ch]' 'daemon/*.[ch]')
for file in $sources; do
    lines=$(wc -l <"$file")
    [ "$lines" -le 900 ] || { echo "$file has $lines lines"; bad=1; }
    awk -v file="$file" '
        /^[a-z].*\)$/ || /^[a-z].*[^;]$/ { head = $0 }
        /^\{$/ { start = NR; name = head }
        /^\}$/ { if (start && NR - start > 110) { print file ":" start ": a function of " NR - start " lines: " name; found = 1 } start = 0 }
        END { exit found }' "$file" || bad=1
done
for file in $(git ls-files '*.c' '*.h' | grep -vE '^(raid|cache|tests/(sim|unit/raid|unit/cache))/'); do
    awk -v file="$file" '
        /clang-format off/ { off = 1 }
        /clang-format on/ { off = 0 }
        !off && length($0) > 120 { print file ":" NR ": " length($0) " columns"; found = 1 }
        END { exit found }' "$file" || bad=1
done
# shellcheck disable=SC2086
if grep -nE '\b(TODO|FIXME|XXX|HACK)\b' $sources tests/unit/*/*.[ch] Makefile; then
    echo "left open"
    bad=1
fi
exit $bad
