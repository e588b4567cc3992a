#!/bin/sh
# Every file, function and test that the documents name exists: links [text](path), `path:function`, `suite::test`, and
# `theme.py:case` of tests/system. Each case with raw PDUs is named in the table of them, and no number is missing there.
set -eu
cd "$(dirname "$0")/../.."
bad=0
for doc in README.md CONTRIBUTING.md docs/*.md; do
    folder=$(dirname "$doc")
    for link in $(grep -oE '\]\([^)#: ]+' "$doc" | sed 's/^](//' | sort -u); do
        [ -e "$folder/$link" ] || { echo "$doc: no such file: $link"; bad=1; }
    done
    for reference in $(grep -oE '`[a-z_/]+\.[ch]:[a-z_0-9]+`' "$doc" | tr -d '`' | sort -u); do
        file=${reference%%:*} function=${reference#*:}
        if [ ! -f "$file" ]; then
            echo "$doc: no such file: $file"
            bad=1
        elif ! grep -qE "(^|[ *])$function\(" "$file"; then
            echo "$doc: $file has no function $function"
            bad=1
        fi
    done
    for test in $(grep -oE '`[a-z_0-9]+::[a-z_0-9]+`' "$doc" | tr -d '`' | sort -u); do
        grep -qE "^Test\\(${test%%::*}, ${test#*::}[,)]" tests/unit/*/test_*.c || { echo "$doc: no such test: $test"; bad=1; }
    done
done
for doc in docs/*.md; do
    for reference in $(grep -oE '`[a-z_]+\.py:[a-z_0-9]+`' "$doc" | tr -d '`' | sort -u); do
        grep -qE "^ *def ${reference#*:}\\(" "tests/system/${reference%%:*}" || { echo "$doc: no such case: $reference"; bad=1; }
    done
done
table=docs/iscsi-conformance.md
for theme in tests/system/iscsi_*.py; do
    for name in $(sed -nE '/^@case/{n;s/^def ([a-z_0-9]+)\(rig\):$/\1/p}' "$theme"); do
        grep -qF "\`${theme##*/}:$name\`" $table || { echo "$table does not name ${theme##*/}:$name"; bad=1; }
    done
done
for number in $(seq 43); do
    grep -q "^| $number |" $table || { echo "$table: no case $number"; bad=1; }
done
table=docs/nbd-conformance.md
for theme in $(grep -l '^from nbd_client import' tests/system/nbd_*.py); do
    for name in $(sed -nE '/^@case/{n;s/^def ([a-z_0-9]+)\(rig\):$/\1/p}' "$theme"); do
        grep -qF "\`${theme##*/}:$name\`" $table || { echo "$table does not name ${theme##*/}:$name"; bad=1; }
    done
done
for number in $(seq 32) $(seq -f 'f%g' 10); do
    grep -q "^| $number |" $table || { echo "$table: no case $number"; bad=1; }
done
# The keys of the config are the same in the table, the example and the manual.
for key in $(grep -oE '(KEY|KEY_SUB)\([a-z_]+, [a-z_]+|KEY_LIMITS\([a-z_]+, "[a-z_]+' daemon/config_keys.c | sed -E 's/.*[ "]//' | grep -vE '_$' | sort -u); do
    for file in etc/corbel.conf docs/man/corbel.conf.5; do
        grep -qw -- "$key" "$file" || { echo "$file does not mention the key $key"; bad=1; }
    done
done
exit $bad
