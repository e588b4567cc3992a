# The demonstration: returns with its five lines, serves both protocols and the page, keeps its data, ends cleanly.
. "$(dirname "$0")/functions.sh"
demo=$(dirname "$0")/../../etc/demo.sh
run_demo() { # settings as VAR=value words
    env DIR="$DIR/demo" SIZE=64M NBD_PORT=0 ISCSI_PORT=0 WEB_PORT=0 DETACH=1 "$@" sh "$demo" start "$BUILD_DIR" >"$DIR/lines" 2>"$DIR/demo.err" ||
        fail "demo: $(cat "$DIR/demo.err")"
    PID=$(cat "$DIR/demo/corbeld.pid")
}
line() { sed -n "s/^$1=//p" "$DIR/lines"; }
end_demo() {
    DIR="$DIR/demo" sh "$demo" stop || fail "demo-stop"
    kill -0 "$PID" 2>/dev/null && fail "the demo's daemon still runs"
    PID=
}
run_demo
for name in nbd iscsi web pidfile config; do [ -n "$(line $name)" ] || fail "no line $name=: $(cat "$DIR/lines")"; done
random_file "$DIR/in" 67108864 5
nbdcopy --flush "$DIR/in" "$(line nbd)"
qemu-img compare -f raw -F raw "$DIR/in" "$(line iscsi)" >/dev/null || fail "iSCSI reads otherwise"
curl -sf "$(line web)" | grep -q '<title>Corbel' || fail "no page at $(line web)"
curl -sf "$(line web)api/v1/status" | grep -q '"health": "ok"' || fail "no status at $(line web)"
[ "$(curl -s -o /dev/null -w '%{http_code}' -X POST "$(line web)api/v1/apply")" = 403 ] || fail "the page's address takes changes"
end_demo
run_demo
nbdcopy "$(line nbd)" "$DIR/out" && cmp "$DIR/in" "$DIR/out" || fail "a second demo does not find the data"
end_demo

# In the foreground: a signal that reaches the daemon as well, as Ctrl-C does, ends both in order.
env DIR="$DIR/demo" SIZE=64M NBD_PORT=0 ISCSI_PORT=0 WEB_PORT=0 setsid sh "$demo" start "$BUILD_DIR" >"$DIR/lines" 2>&1 &
GROUP=$!
PIDS=$GROUP
wait_for_long grep -q 'Ctrl-C ends it' "$DIR/lines" || fail "no help in the foreground: $(cat "$DIR/lines")"
PID=$(cat "$DIR/demo/corbeld.pid")
kill -TERM "-$GROUP"
wait "$GROUP" || fail "a demo that is interrupted fails: $(tail -n 5 "$DIR/lines")"
PIDS=
grep -q 'stopped cleanly' "$DIR/lines" || fail "not stopped cleanly: $(tail -n 5 "$DIR/lines")"
kill -0 "$PID" 2>/dev/null && fail "the daemon outlives its demo"
PID=

# Wrong settings: one sentence, and nothing left that stands in the way of the next try.
refuse_demo() { # words of the message, then settings
    words=$1
    shift
    env DIR="$DIR/new" SIZE=64M NBD_PORT=0 ISCSI_PORT=0 WEB_PORT=0 DETACH=1 "$@" sh "$demo" start "$BUILD_DIR" >"$DIR/lines" 2>&1 &&
        fail "the demo takes $*"
    grep -q "^demo: .*$words" "$DIR/lines" || fail "$*: $(cat "$DIR/lines")"
    [ -z "$(ls "$DIR/new" 2>/dev/null)" ] || fail "$*: left $(ls "$DIR/new")"
}
refuse_demo 'not a RAID level' LEVEL=raid9
refuse_demo 'not a size' SIZE=abc
refuse_demo 'has no unit' SIZE=1000
refuse_demo 'cannot be written' DIR="/dev/null/x"

# A pid file that outlived a crash names a process that is not ours: it is neither taken for the demo nor killed.
sleep 60 &
PIDS=$!
echo "$PIDS" >"$DIR/demo/corbeld.pid"
DIR="$DIR/demo" sh "$demo" stop >"$DIR/lines" 2>&1 && fail "demo-stop takes a stranger for the demo"
kill -0 "$PIDS" || fail "demo-stop killed a stranger"
run_demo
end_demo
