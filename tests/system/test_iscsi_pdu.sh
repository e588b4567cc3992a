# The iSCSI target by raw PDUs, case by case; docs/iscsi-conformance.md says which stands for what. Some themes with digests too.
. "$(dirname "$0")/functions.sh"
python=/usr/bin/python3
[ -x "$python" ] || python=python3
export PYTHONDONTWRITEBYTECODE=1
here=$(dirname "$0")
EXAMPLE=iqn.2026-01.org.example
make_disks 3 96M
EXTRA_VOLUMES=', { name = "w"; level = "raid5"; size = "32 MiB"; consistency = "journal"; }'
EXTRA_LUNS=', { lun = 1; volume = "r/w"; }'
for n in $(seq 20); do
    EXTRA_TARGETS="${EXTRA_TARGETS:-}, { name = \"$EXAMPLE:more-$n\"; luns = ( { lun = 0; volume = \"r/w\"; } ); }"
done
config() { # more settings of the iSCSI section
    write_config raid5 'size = "32 MiB";'
    sed -i "s/^iscsi = {.*/iscsi = { listen = [ \"127.0.0.1:0\", \"127.0.0.2:0\" ]; portals = [ \"[2001:db8::1]:3260\" ]; connections = 120; commands = 32; $1/" "$CONFIG"
}
cases=0
theme() { # NAME [digests, or what the theme wants]
    name=$1
    shift
    more=$*
    "$python" "$here/iscsi_$name.py" "$ISCSI_ADDRESS" "$TARGET" "$PID" $more >"$DIR/cases" 2>&1 || fail "$(grep -v '^ok ' "$DIR/cases")"
    cat "$DIR/cases"
    cases=$((cases + $(grep -c '^ok ' "$DIR/cases")))
}
config 'ping_interval = "0 s";'
start_daemon
wait_idle
[ "$(stat -c %A "$SOCKET" | cut -c 8-)" = --- ] || fail "others may use the control socket: $(stat -c %A "$SOCKET")"
SECOND_PORTAL=$($CTL status | sed -n 's/^iscsi listens on \(127.0.0.2.*\)/\1/p')
export SECOND_PORTAL
for name in ${THEMES:-login numbering data task session}; do
    theme "$name"
done
for name in ${THEMES:-numbering data task}; do
    theme "$name" digests
done
# Another target appears, one gets an access list.
EXTRA_TARGETS=$(echo "$EXTRA_TARGETS" | sed "s|more-1\";|& access = ( { name = \"a\"; initiators = [ \"$EXAMPLE:a\" ]; } );|")
EXTRA_TARGETS="$EXTRA_TARGETS, { name = \"$EXAMPLE:more-21\"; luns = ( { lun = 0; volume = \"r/w\"; } ); }"
config 'ping_interval = "0 s";'
theme reload $CTL reload
# One gets a second LUN, and a list that keeps most from it.
both='{ lun = 0; volume = "r/w"; }, { lun = 1; volume = "r/v"; }'
list="{ name = \"a\"; initiators = [ \"$EXAMPLE:a\" ]; luns = ( $both ); }"
list="$list, { name = \"others\"; initiators = [ \"$EXAMPLE:c*\" ]; luns = ( { lun = 0; volume = \"r/w\"; } ); }"
EXTRA_TARGETS=$(echo "$EXTRA_TARGETS" | sed "s|more-2\"; luns = ( { [^}]* } )|more-2\"; access = ( $list ); luns = ( $both )|")
config 'ping_interval = "0 s";'
served=$TARGET TARGET=$EXAMPLE:more-2
theme new_lun $CTL reload
TARGET=$served
stop_daemon
config 'ping_interval = "1 s"; ping_timeout = "1 s";'
launch_daemon
theme pings
theme drain
wait "$PID" || fail "the daemon ended with status $?"
PID=
echo "$cases cases with raw PDUs"
