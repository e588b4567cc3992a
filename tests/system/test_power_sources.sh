# A upsd that does not behave, a command, and a folder as the kernel's; and reloads from one to the other.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/power_functions.sh"

mode() { echo "$1" >"$DIR/new" && mv "$DIR/new" "$DIR/mode"; }
mode drip
python3 "$(dirname "$0")/fake_upsd.py" "$DIR/mode" "$DIR/port" &
PIDS="$PIDS $!"
wait_for test -f "$DIR/port" || fail "the false upsd does not run"
make_disks 2 64M
write_power "nut://ups@127.0.0.1:$(cat "$DIR/port")" 'settle = "0 s";'
start_daemon
well
[ "$(field charge_percent),$(field runtime_seconds)" = 66,900 ] || fail "$($CTL power)"
mode close
power_is silent unknown false "upsd has ended the connection"
mode drip
well
mode garbage
power_is error unknown false "upsd sent no list of variables"
mode drip
well
mode flood
power_is error unknown false "upsd sent too many variables"
mode drip
well
mode unasked
power_is error unknown false "upsd spoke without having been asked"
mode drip
well
mode control
power_is error unknown false "upsd sent a line that cannot be"
mode drip
well
mode silent
power_is silent unknown false
power_is silent unknown false "no answer within 5 s"
mode drip
well

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

# Who fails to shut the machine down is asked again.
again() { [ "$(wc -l <"$DIR/again")" -ge 2 ]; }
ON_LOW="/bin/sh -c 'echo again >>$DIR/again; exit 1'"
say 2
reload "command:$DIR/ask"
power_is battery-low low false
wait_for again || fail "it was not run again: $(cat "$DIR/again")"
grep -q "error: power: $ON_LOW failed (1): it is run again" "$LOG" || fail "the log does not tell"
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

# Two power supplies: one of them is enough, or both are needed; each is shown and told of for itself.
for i in 1 2; do
    printf '#!/bin/sh\nread -r status words <"%s"\necho "$words"\nexit "$status"\n' "$DIR/said$i" >"$DIR/ask$i"
    chmod 755 "$DIR/ask$i"
done
tell() { echo "$2" >"$DIR/new" && mv "$DIR/new" "$DIR/said$1"; }
ON_LOW="/bin/sh -c 'echo low >>$DIR/both'"
BOTH="[ \"command:$DIR/ask1\", \"command:$DIR/ask2\" ]"
tell 1 "0 charge=77 runtime=600"
tell 2 "0 charge=88 runtime=900"
reload "$BOTH" 'needed = 1; settle = "0 s";'
well
[ "$(field charge_percent),$(field runtime_seconds)" = 88,900 ] || fail "one is enough, so the better counts: $($CTL power)"
tell 2 "1 charge=80 runtime=800"
said() { $CTL power | grep -q "$1"; }
wait_for said "^          command:$DIR/ask2: on battery, not healthy: the mains failed (80 %, run time 13 min 20 s)\$" ||
    fail "the one is not shown: $($CTL power)"
[ "$(field healthy),$(field charge_percent)" = true,77 ] || fail "the other does not count: $($CTL power)"
said '^sources:  2, of which 1 must feed this machine:$' || fail "$($CTL power)"
logged "warning: power: command:$DIR/ask2: on battery, not healthy: the mains failed"
tell 1 "2"
wait_for said "^          command:$DIR/ask1: low, not healthy: .* (charge unknown" || fail "$($CTL power)"
power_is on-battery "on battery" false
[ ! -e "$DIR/both" ] || fail "the machine was shut down though one of two lasts"
reload "$BOTH" 'needed = 2; settle = "0 s";'
grep -q '^taken over: power.needed$' "$DIR/reload" || fail "$(cat "$DIR/reload")"
power_is battery-low low false
wait_for test -e "$DIR/both" || fail "both are needed, and one is low: $($CTL power)"
tell 1 "0 charge=77 runtime=600"
tell 2 "0 charge=88 runtime=900"
well
tell 1 "7 broken"
power_is error "on mains" false "the command ended with status 7: broken"
# Who has not been heard yet is waited for: the one that is low does not decide alone.
rm "$DIR/both"
printf '#!/bin/sh\nsleep 3\nexit 0\n' >"$DIR/ask3"
printf '#!/bin/sh\nexit 2\n' >"$DIR/ask4"
chmod 755 "$DIR/ask3" "$DIR/ask4"
reload "[ \"command:$DIR/ask4\", \"command:$DIR/ask3\" ]" 'needed = 1; settle = "0 s"; charge_min = 0; charge_ok = 0;
    runtime_assumed = "10 min";'
wait_for said "^          command:$DIR/ask4: low, not healthy" || fail "$($CTL power)"
power_is unheard unknown false
well
[ ! -e "$DIR/both" ] || fail "the machine was shut down before the other source was heard"

# None at all; and a daemon that is stopped while a source does not answer.
sed -i '/^power = /,/};/d' "$CONFIG"
$CTL reload >/dev/null
[ "$($CTL power || :)" = "no power source is configured" ] || fail "$($CTL power)"
reload "command:/bin/sleep 100"
power_is unheard unknown false
stop_daemon
