# The power source: a real upsd with NUT's dummy driver, a command, and a folder as the kernel's. The daemon's states, its
# log, what its arrays hear, and the command that shuts down.
. "$(dirname "$0")/functions.sh"
NUT=$DIR/nut
export NUT_CONFPATH="$NUT" NUT_STATEPATH="$NUT" NUT_ALTPIDPATH="$NUT"
PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkdir "$NUT"
printf 'pollinterval = 1\n[ups]\ndriver = dummy-ups\nport = %s\nmode = dummy-once\n' "$NUT/ups.dev" >"$NUT/ups.conf"
echo "LISTEN 127.0.0.1 $PORT" >"$NUT/upsd.conf"
printf '[corbel]\npassword = "se cret"\nupsmon slave\n' >"$NUT/upsd.users"
printf 'se cret\n' >"$DIR/password"
printf 'wrong\n' >"$DIR/wrong"
chmod 600 "$NUT"/* "$DIR/password" "$DIR/wrong"

# ups "OL" [CHARGE [RUNTIME]]: what the driver says from its next look on; it goes by the time of the file in seconds.
changes=1000000000
ups() {
    changes=$((changes + 1))
    printf 'ups.status: %s\nbattery.charge: %s\nbattery.runtime: %s\nups.model: A "dummy"\n' \
        "$1" "${2:-100}" "${3:-1200}" >"$NUT/new"
    touch -d "@$changes" "$NUT/new"
    mv "$NUT/new" "$NUT/ups.dev"
}
start_driver() {
    /lib/nut/dummy-ups -a ups -u root -F >>"$NUT/log" 2>&1 &
    DRIVER=$!
    PIDS="$PIDS $DRIVER"
}
start_upsd() {
    /lib/nut/upsd -u root -F >>"$NUT/log" 2>&1 &
    UPSD=$!
    PIDS="$PIDS $UPSD"
}
end() { kill "$1" && wait "$1" 2>/dev/null || :; }

# write_power SOURCE [more settings]
write_power() {
    EXTRA_TOP="power = { source = \"$1\"; poll = \"200 ms\"; silence_max = \"2 s\"; settle = \"1 s\"; runtime_min = \"60 s\";
        on_low = \"/bin/sh -c 'echo low >>$DIR/low'\"; ${2:-} };"
    write_config raid1
}
reload() {
    write_power "$@"
    $CTL reload >"$DIR/reload" 2>&1 || fail "reload: $(cat "$DIR/reload")"
}
field() { $CTL --json power | sed -n "s/^ *\"$1\": \"\{0,1\}\([^\"]*\)\"\{0,1\},\{0,1\}\$/\1/p" | sed 's/,$//'; }
charge_is() { [ "$(field charge_percent)" = "$1" ]; }
cause_is() { [ "$(field cause)" = "$1" ]; }
found() { cause_is "$1" && case $(field reason) in *"$2"*) ;; *) return 1 ;; esac }
# power_is CAUSE STATE HEALTHY [part of the reason]
power_is() {
    wait_for found "$1" "${4:-}" || fail "wanted $1, ${4:-for any reason}: $($CTL power)"
    [ "$(field state)" = "$2" ] || fail "$1: the state is $(field state), not $2"
    [ "$(field healthy)" = "$3" ] || fail "$1: healthy is $(field healthy)"
}
well() { power_is healthy "on mains" true; }
logged() { grep -q "$1" "$LOG" || fail "the log has no: $1"; }

make_disks 2 64M
ups OL
start_driver
start_upsd
write_power "nut://ups@127.0.0.1:$PORT"
start_daemon
well
$CTL power >"$DIR/out" || fail "its exit status is $?"
grep -q '^healthy:  yes$' "$DIR/out" || fail "$(cat "$DIR/out")"
grep -q '^battery:  100 %, run time 20 min 0 s$' "$DIR/out" || fail "$(cat "$DIR/out")"
$CTL status | grep -q '^power:' && fail "a good source is no news: $($CTL status)"
logged 'notice: power: on mains, healthy (100 %, run time 20 min 0 s)'

# The mains fail, and are back: it takes a while until that is believed.
heard_by_array() { $CTL --json status | grep -q '"power": "on-battery"'; }
ups "OB DISCHRG" 90 1100
power_is on-battery "on battery" false "the mains failed"
result=0
$CTL power >"$DIR/out" || result=$?
[ "$result" = 5 ] || fail "not healthy, and its exit status is $result"
$CTL status | grep -q '^power: on battery, not healthy: the mains failed (90 %, run time 18 min 20 s)$' ||
    fail "the status: $($CTL status)"
wait_for heard_by_array || fail "the array has not heard of it"
logged 'warning: power: on battery, not healthy: the mains failed (90 %'
ups "OL CHRG" 91
well
logged 'warning: power: on mains, not healthy: all is well, but not for long: healthy in 1 s if nothing happens'

# It ends: the command that shuts down is run once.
ups "OB LB" 9 50
power_is battery-low low false
wait_for test -f "$DIR/low" || fail "the command was not run"
logged 'error: power: low, not healthy: on battery, and it is low (9 %, run time 50 s)'
sleep 0.5
[ "$(wc -l <"$DIR/low")" = 1 ] || fail "it was run again"
ups OL
well
ups OB 80 59
power_is runtime-low low false
ups OL
well
[ "$(wc -l <"$DIR/low")" = 2 ] || fail "the second time it was not run once"

# Nothing to rely on, though on mains.
ups "OL RB"
power_is replace-battery "on mains" false
ups "OL CAL"
power_is calibration "on mains" false
ups "OL" 29
power_is charge "on mains" false "29 % of the 60 %"
ups "OL" 59
wait_for charge_is 59 || fail "$($CTL power)"
power_is charge "on mains" false "59 % of the 60 %"
ups "OL" 60
well
ups "OL" 30
wait_for charge_is 30 || fail "$($CTL power)"
well
ups "OL"
wait_for charge_is 100 || fail "$($CTL power)"

# The driver dies; then upsd.
end "$DRIVER"
power_is error unknown false "DRIVER-NOT-CONNECTED"
start_driver
well
end "$UPSD"
sleep 0.5
cause_is healthy || fail "half a second of silence is none: $($CTL power)"
power_is silent unknown false "Connection refused"
start_upsd
well
ups OB
power_is on-battery "on battery" false
end "$UPSD"
power_is lost-on-battery low false
ups OL
start_upsd
well
[ "$(wc -l <"$DIR/low")" = 3 ] || fail "silence on battery did not count as its end"

# Other settings and sources, by a reload.
reload "nut://ups@127.0.0.1:$PORT" 'charge_ok = 40;'
grep -q '^taken over: power.charge_ok$' "$DIR/reload" || fail "$(cat "$DIR/reload")"
cause_is healthy || fail "a new limit was taken for a new source: $($CTL power)"
reload "nut://other@127.0.0.1:$PORT"
power_is unreachable unknown false "UNKNOWN-UPS"
reload "nut://ups@127.0.0.1:$PORT" "user = \"corbel\"; password_file = \"$DIR/wrong\";"
power_is unreachable unknown false "ACCESS-DENIED"
reload "nut://ups@127.0.0.1:$PORT" "user = \"corbel\"; password_file = \"$DIR/password\";"
well
python3 - "$PORT" <<'PYTHON' || fail "upsd does not count us"
import socket, sys
with socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5) as upsd:
    upsd.sendall(b'GET NUMLOGINS ups\n')
    sys.exit(upsd.recv(100) != b'NUMLOGINS ups 1\n')
PYTHON

# A command; what it says is its exit status and its first line.
printf '#!/bin/sh\nread -r status words <"%s"\necho "$words"\nexit "$status"\n' "$DIR/said" >"$DIR/ask"
chmod 755 "$DIR/ask"
say() { echo "$*" >"$DIR/new" && mv "$DIR/new" "$DIR/said"; }
say 0 charge=77 runtime=600
reload "command:$DIR/ask"
well
[ "$(field charge_percent),$(field runtime_seconds)" = 77,600 ] || fail "$($CTL power)"
say 1 charge=70 runtime=500
power_is on-battery "on battery" false
say 2
power_is battery-low low false
say 7 what now
power_is lost-on-battery low false
say 0 charge=77 runtime=600
well
say 7 what now
power_is error unknown false "the command ended with status 7: what now"
say 0 runtime=600
power_is charge-unknown "on mains" false
reload "command:$DIR/none"
power_is unreachable unknown false "cannot be run: No such file"

# The machine's own battery.
mkdir "$DIR/sys" "$DIR/sys/AC" "$DIR/sys/BAT0"
supply() { echo "$2" >"$DIR/sys/$1"; }
supply AC/type Mains
supply AC/online 1
supply BAT0/type Battery
supply BAT0/status Full
supply BAT0/capacity 99
reload "sysfs:$DIR/sys" 'runtime_assumed = "10 min";'
well
[ "$(field charge_percent),$(field runtime_seconds)" = 99,600 ] || fail "$($CTL power)"
supply AC/online 0
supply BAT0/status Discharging
power_is on-battery "on battery" false
supply BAT0/capacity_level Critical
power_is battery-low low false
rm -r "$DIR/sys/BAT0"
power_is lost-on-battery low false

# None at all; and a daemon that is stopped while a source does not answer.
sed -i '/^power = /,/};/d' "$CONFIG"
$CTL reload >/dev/null
[ "$($CTL power || :)" = "no power source is configured" ] || fail "$($CTL power)"
reload "command:/bin/sleep 100"
power_is unheard unknown false
stop_daemon
