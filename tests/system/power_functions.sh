# Shared by the tests of power sources, behind functions.sh: the config, and what corbelctl power says.

# write_power SOURCE [more settings]; a list of sources is one in brackets; ON_LOW is what is run when it is time to shut
# down, LEVEL and VOLUME are of the volume
ON_LOW="/bin/sh -c 'echo low >>$DIR/low'"
write_power() {
    case $1 in
    '['*) source=$1 ;;
    *) source="\"$1\"" ;;
    esac
    EXTRA_TOP="power = { source = $source; poll = \"200 ms\"; silence_max = \"2 s\"; runtime_min = \"${RUNTIME_MIN:-60 s}\";
        on_low = \"$ON_LOW\"; ${2:-settle = \"1 s\";} };"
    write_config "${LEVEL:-raid1}" "${VOLUME:-}"
}
reload() {
    write_power "$@"
    $CTL reload >"$DIR/reload" 2>&1 || fail "reload: $(cat "$DIR/reload")"
}
field() { $CTL --json power | sed -n "s/^ *\"$1\": \"\{0,1\}\([^\"]*\)\"\{0,1\},\{0,1\}\$/\1/p" | sed 's/,$//;q'; } # of all together: the first
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
phase() { $CTL --json power | sed -n 's/^ *"phase": "\(.*\)",$/\1/p'; }
in_phase() { [ "$(phase)" = "$1" ]; }
phase_is() { wait_for in_phase "$1" || fail "the phase is $(phase), not $1${2:+: $2}"; }
logged() { grep -q "$1" "$LOG" || fail "the log has no: $1"; }

# A real upsd with NUT's dummy driver: nut_set_up, then start_driver and start_upsd ($DRIVER, $UPSD: their pids), end PID.
nut_set_up() {
    NUT=$DIR/nut
    export NUT_CONFPATH="$NUT" NUT_STATEPATH="$NUT" NUT_ALTPIDPATH="$NUT"
    PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    mkdir "$NUT"
    printf 'pollinterval = 1\n[ups]\ndriver = dummy-ups\nport = %s\nmode = dummy-once\n' "$NUT/ups.dev" >"$NUT/ups.conf"
    echo "LISTEN 127.0.0.1 $PORT" >"$NUT/upsd.conf"
    printf '[corbel]\npassword = "se cret"\nupsmon slave\n' >"$NUT/upsd.users"
    chmod 600 "$NUT"/*
    changes=1000000000
}
# ups "OL" [CHARGE [RUNTIME]]: what the driver says from its next look on; it goes by the time of the file in seconds.
ups() {
    changes=$((changes + 1))
    printf 'ups.status: %s\nbattery.charge: %s\nbattery.runtime: %s\nups.model: A "dummy"\n' \
        "$1" "${2:-100}" "${3:-1200}" >"$NUT/new"
    touch -d "@$changes" "$NUT/new"
    mv "$NUT/new" "$NUT/ups.dev"
}
start_driver() {
    /lib/nut/dummy-ups -a ups -u "$(id -un)" -F >>"$NUT/log" 2>&1 &
    DRIVER=$!
    PIDS="$PIDS $DRIVER"
}
start_upsd() {
    /lib/nut/upsd -u "$(id -un)" -F >>"$NUT/log" 2>&1 &
    UPSD=$!
    PIDS="$PIDS $UPSD"
}
end() { kill "$1" && wait "$1" 2>/dev/null || :; }
