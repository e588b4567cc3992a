# A real upsd with NUT's dummy driver: the daemon's states, its log, what its arrays hear, and the command that shuts down.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/power_functions.sh"
nut_set_up
printf 'se cret\n' >"$DIR/password"
printf 'wrong\n' >"$DIR/wrong"
chmod 600 "$DIR/password" "$DIR/wrong"

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
ran() { [ "$(wc -l <"$DIR/low")" = "$1" ]; } # so often, the command that shuts down
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
ran 1 || fail "it was run again"
ups OL
well
ups OB 80 59
power_is runtime-low low false
wait_for ran 2 || fail "the second time it was not run"
ups OL
well
ran 2 || fail "the second time it was not run once"

# Nothing to rely on, though on mains.
for case in "RB replace-battery" "CAL calibration" "TEST calibration" "DISCHRG discharging" "BYPASS bypass" "OFF off" \
    "OVER overload" "ALARM alarm" "LB battery-low"; do
    ups "OL ${case% *}"
    power_is "${case#* }" "on mains" false
    logged "warning: power: on mains, not healthy: $(field reason) (100 %"
    ups OL
    well
done
ups "OL FSD"
power_is shutdown low false
wait_for ran 3 || fail "FSD did not count as low"
ups OL
well
ups "OB CAL LB" 5 1 # a learn cycle runs it down on purpose
power_is calibration "on battery" false
ran 3 || fail "a learn cycle shut the machine down"
ups OL
well
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
wait_for ran 4 || fail "silence on battery did not count as its end"
ups OL
start_upsd
well
ran 4 || fail "it was run again"

# Other settings and sources, by a reload.
reload "nut://ups@127.0.0.1:$PORT" 'charge_ok = 40; settle = "1 s";'
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
stop_daemon
