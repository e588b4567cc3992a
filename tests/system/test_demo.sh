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
