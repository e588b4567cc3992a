#!/bin/sh
# The floors, proved from the archives: `layers.sh BUILD_DIR`.
#   1. raid, cache and target refer to no symbol of the outside world (FORBIDDEN, an extended regular expression);
#      the fortified spellings (__printf_chk) count as well.
#   2. no floor refers to a symbol that only a higher floor defines.
#   3. no file includes a header of a higher floor.
set -eu
dir=$1
bad=0
nm=${NM:-nm}

symbols() { "$nm" "$1" "$dir/$2.a" 2>/dev/null | awk 'NF && $1 !~ /:$/ {print $NF}' | sed 's/@.*//' | sort -u; }

for floor in raid cache target; do
    reach=$(symbols -u "$floor" | sed -E 's/^__(.*)_chk$/\1/' | grep -Ex "$FORBIDDEN" | tr '\n' ' ' || :)
    [ -z "$reach" ] || { echo "$floor.a reaches the world by itself: $reach"; bad=1; }
done

for pair in core:raid core:cache core:target raid:cache raid:target cache:target; do
    low=${pair%:*} high=${pair#*:}
    symbols -u "$low" >"$dir/low.sym"
    symbols --defined-only "$high" >"$dir/high.sym"
    symbols --defined-only "$low" >"$dir/own.sym"
    climb=$(comm -12 "$dir/low.sym" "$dir/high.sym" | comm -23 - "$dir/own.sym" | tr '\n' ' ')
    [ -z "$climb" ] || { echo "$low.a calls $high.a: $climb"; bad=1; }
done

climbs() { # floor, pattern of the floors above it
    grep -nE "^#include \"($2)/" "$1"/*.[ch] "$1"/*/*.[ch] 2>/dev/null || :
}
for rule in 'core:raid|cache|target|daemon|tests' 'raid:cache|target|daemon|tests' 'cache:target|daemon|tests' 'target:daemon|tests'; do
    lines=$(climbs "${rule%%:*}" "${rule#*:}")
    [ -z "$lines" ] || { echo "includes that climb:"; echo "$lines"; bad=1; }
done
exit $bad
