# Shared by the tests of caches, behind functions.sh: a power source that says what a test wants, a load, what is dirty in an arena.
source_says() { printf '#!/bin/sh\necho %s\nexit %s\n' "${2:-}" "$1" >"$DIR/ask.new" && chmod +x "$DIR/ask.new" && mv "$DIR/ask.new" "$DIR/ask"; }
POWER="power = { source = \"command:$DIR/ask\"; poll = \"0.1 s\"; settle = \"0 s\"; charge_min = 0; charge_ok = 0; runtime_min = \"0 s\"; };"
cache_field() { $CTL --json cache list | sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" | head -n 1; }
is() { [ "$(cache_field "$1")" = "$2" ]; }
expect() { wait_for is "$1" "$2" || fail "$1 is $(cache_field "$1"), not $2: $3"; }

# Writes that go on until they are cut off, beyond what a test looks at.
start_load() {
    fio --name=load --ioengine=nbd --uri="$NBD_UNIX" --rw=randwrite --bsrange=512-128k --blockalign=512 --offset=24m --size=24m \
        --time_based --runtime=20 --iodepth=16 --randseed="$1" --output="$DIR/fio" >/dev/null 2>&1 &
    LOAD=$!
    PIDS="$PIDS $LOAD"
}
end_load() { wait "$LOAD" 2>/dev/null || :; }
# Bytes that a flush covers, by a seed; and are they there?
put_flushed() {
    random_file "$DIR/flushed" 8388608 "$1"
    nbdcopy --flush --request-size=65536 --requests=16 "$DIR/flushed" "$NBD" || fail "write of $1"
}
check_flushed() {
    qemu-img convert -f raw -O raw "$NBD" "$DIR/out" || fail "read after: $1"
    cmp -n 8388608 "$DIR/flushed" "$DIR/out" || fail "flushed bytes are not there: $1"
}
# kill -9 under load.
kill_loaded() {
    start_load "$1"
    wait_for grep -q 'nbd: unix:: serving' "$LOG" || fail "the load does not begin: $(cat "$DIR/fio")"
    sleep "0.$(($1 * 37 % 60 + 30))"
    put_flushed "$1"
    kill_daemon
    end_load
}
