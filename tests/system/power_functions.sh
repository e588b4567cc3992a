# Shared by the tests of power sources, behind functions.sh: the config, and what corbelctl power says.

# write_power SOURCE [more settings]; ON_LOW is what is run when it is time to shut down
ON_LOW="/bin/sh -c 'echo low >>$DIR/low'"
write_power() {
    EXTRA_TOP="power = { source = \"$1\"; poll = \"200 ms\"; silence_max = \"2 s\"; runtime_min = \"60 s\";
        on_low = \"$ON_LOW\"; ${2:-settle = \"1 s\";} };"
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
