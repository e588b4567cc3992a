#!/bin/sh
# The demonstration: an array on six sparse files, served on loopback. Called by `make demo` and `make demo-stop`.
#
#   demo.sh start BUILD_DIR    settings by environment: DIR LEVEL SIZE NBD_PORT ISCSI_PORT WEB_PORT DETACH
#   demo.sh stop               DIR
#
# A second start on the same DIR finds the data again. Nothing outside DIR is written.
set -eu
DIR=${DIR:-/var/tmp/corbel-demo-$(id -u)}
LEVEL=${LEVEL:-raid6}
SIZE=${SIZE:-1G}
NBD_PORT=${NBD_PORT:-10809}
ISCSI_PORT=${ISCSI_PORT:-3260}
WEB_PORT=${WEB_PORT:-8480}
TARGET=iqn.2026-01.org.corbel:demo
SOCKET=$DIR/control.sock
PIDFILE=$DIR/corbeld.pid
CONFIG=$DIR/corbel.conf

die() {
    echo "demo: $*" >&2
    exit 1
}

running() { [ -f "$PIDFILE" ] && kill -0 "$(cat "$PIDFILE")" 2>/dev/null; }

stop() {
    running || die "no demo runs in $DIR"
    pid=$(cat "$PIDFILE")
    kill -TERM "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
}

make_disks() {
    disks=6
    [ "$LEVEL" != raid1e ] || disks=5
    size=$(printf '%s' "$SIZE" | tr -d ' ' | sed 's/iB$//;s/B$//')
    bytes=$(numfmt --from=iec "$size") || die "SIZE=$SIZE is not a size like 1G"
    i=0
    list=
    while [ "$i" -lt "$disks" ]; do
        [ -f "$DIR/disk$i" ] || truncate -s $((bytes + 256 * 1048576)) "$DIR/disk$i"
        list="$list${list:+, }\"$DIR/disk$i\""
        i=$((i + 1))
    done
}

write_config() {
    cat >"$CONFIG" <<EOF
# Written by the demonstration: $LEVEL on $disks sparse files.
daemon = { control = "$SOCKET"; log = "notice"; };
arrays = (
    { name = "demo"; disks = [ $list ];
      volumes = ( { name = "data"; level = "$LEVEL"; size = "$size"; } ); }
);
nbd = { listen = [ "127.0.0.1:$NBD_PORT" ]; exports = ( { name = "data"; volume = "demo/data"; description = "Corbel demonstration"; } ); };
iscsi = { listen = [ "127.0.0.1:$ISCSI_PORT" ]; targets = ( { name = "$TARGET"; luns = ( { lun = 0; volume = "demo/data"; } ); } ); };
web = { listen = [ "127.0.0.1:$WEB_PORT" ]; };
EOF
}

ctl() { "$BUILD_DIR/corbelctl" --socket "$SOCKET" "$@"; }

# The address really bound, should a port of 0 have been asked for.
listening() { ctl status | sed -n "s/^$1 listens on //p" | head -n 1; }

launch() {
    "$BUILD_DIR/corbeld" -c "$CONFIG" --pidfile "$PIDFILE" </dev/null >>"$DIR/log" 2>&1 &
    pid=$!
    until running; do
        kill -0 "$pid" 2>/dev/null || die "corbeld did not start: $(tail -n 3 "$DIR/log")"
        sleep 0.1
    done
    ctl apply --yes >"$DIR/apply.log" 2>&1 || {
        cat "$DIR/apply.log" >&2
        stop
        die "the array could not be made"
    }
}

print_lines() {
    echo "nbd=nbd://$(listening nbd)/data"
    echo "iscsi=iscsi://$(listening iscsi)/$TARGET/0"
    echo "web=http://$(listening web)/"
    echo "pidfile=$PIDFILE"
    echo "config=$CONFIG"
}

print_help() {
    nbd=$(listening nbd)
    cat <<EOF

Corbel serves $LEVEL on $disks files in $DIR; its log is $DIR/log.

  NBD      nbdinfo nbd://$nbd/data
           nbd-client ${nbd%:*} ${nbd##*:} -N data /dev/nbd0          (needs the kernel's nbd module)
           qemu-io -f raw nbd://$nbd/data
  iSCSI    iscsi-ls -s iscsi://$(listening iscsi)/
           iscsiadm -m discovery -t sendtargets -p $(listening iscsi)
  page     http://$(listening web)/
  control  $BUILD_DIR/corbelctl --socket $SOCKET status

Ctrl-C ends it; what was written stays in $DIR.

EOF
}

watch_status() {
    trap 'echo; echo "stopping..."; stop; echo "stopped cleanly"; exit 0' INT TERM
    while running; do
        [ ! -t 1 ] || printf '\033[H\033[2J'
        print_help
        ctl status || :
        sleep 2 &
        wait $! || :
    done
    die "corbeld has ended: $(tail -n 3 "$DIR/log")"
}

case ${1:-} in
stop) stop ;;
start)
    BUILD_DIR=$(cd "$2" && pwd)
    mkdir -p "$DIR"
    DIR=$(cd "$DIR" && pwd)
    SOCKET=$DIR/control.sock PIDFILE=$DIR/corbeld.pid CONFIG=$DIR/corbel.conf
    running && die "a demo runs in $DIR already; end it with: make demo-stop DIR=$DIR"
    make_disks
    [ -f "$CONFIG" ] && grep -q "level = \"$LEVEL\"; size = \"$size\"" "$CONFIG" || [ ! -f "$CONFIG" ] ||
        die "$DIR holds another demo ($(sed -n 's/^# //p' "$CONFIG" | head -n 1)); give another DIR or the same LEVEL and SIZE"
    write_config
    launch
    if [ -n "${DETACH:-}" ]; then
        print_lines
    else
        print_lines
        watch_status
    fi
    ;;
*) die "usage: demo.sh start BUILD_DIR | stop" ;;
esac
