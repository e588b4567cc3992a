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

# The daemon of DIR: a pid file that outlived a crash may name somebody else's process by now.
running() {
    [ -f "$PIDFILE" ] && pid=$(cat "$PIDFILE" 2>/dev/null) && [ -n "$pid" ] &&
        tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -qxF "$CONFIG"
}

stop() {
    running || die "no demo runs in $DIR"
    kill -TERM "$pid" 2>/dev/null || :
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
}

make_folder() {
    mkdir -p "$DIR" 2>/dev/null && [ -w "$DIR" ] || die "DIR=$DIR cannot be written to; give another DIR"
    DIR=$(cd "$DIR" && pwd)
    SOCKET=$DIR/control.sock PIDFILE=$DIR/corbeld.pid CONFIG=$DIR/corbel.conf
    ! running || die "a demo runs in $DIR already; end it with: make demo-stop DIR=$DIR"
}

choose_disks() {
    size=$(printf '%s' "$SIZE" | tr -d ' ' | sed 's/iB$//;s/B$//')
    bytes=$(numfmt --from=iec -- "$size" 2>/dev/null) || die "SIZE=$SIZE is not a size like 300M or 1G"
    case $LEVEL in
    raid1e) disks=5 ;;
    raid60) disks=8 ;;
    *) disks=6 ;;
    esac
    i=0
    list=
    while [ "$i" -lt "$disks" ]; do
        list="$list${list:+, }\"$DIR/disk$i\""
        i=$((i + 1))
    done
}

make_disks() {
    i=0
    while [ "$i" -lt "$disks" ]; do
        [ -f "$DIR/disk$i" ] || truncate -s $((bytes + 256 * 1048576)) "$DIR/disk$i"
        i=$((i + 1))
    done
}

# Nothing is kept of settings that corbeld does not accept, so that better ones find an empty folder.
write_config() {
    [ ! -f "$CONFIG" ] || grep -q "level = \"$LEVEL\"; size = \"$size\"" "$CONFIG" ||
        die "$DIR holds a demo with $(sed -n 's/.*level = "\(.*\)"; size = "\(.*\)";.*/LEVEL=\1 SIZE=\2/p' "$CONFIG");" \
            "give these, or another DIR, or remove $DIR"
    print_config >"$CONFIG.new"
    mistakes=$("$BUILD_DIR/corbeld" -t "$CONFIG.new" 2>&1) || {
        rm -f "$CONFIG.new"
        die "corbeld does not accept these settings: $mistakes"
    }
    mv "$CONFIG.new" "$CONFIG"
}

print_config() {
    cat <<EOF
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
    daemon=$!
    until running && [ "$pid" = "$daemon" ]; do
        kill -0 "$daemon" 2>/dev/null || {
            why=$(tail -n 1 "$DIR/log")
            case $why in *"Address already in use"*) why="$why; give another NBD_PORT, ISCSI_PORT or WEB_PORT (0: any that is free)" ;; esac
            die "corbeld did not start: $why"
        }
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

# Ctrl-C reaches the daemon too, which may have stopped before we ask it to.
end_watch() {
    trap '' INT TERM HUP
    echo
    echo "stopping..."
    kill -TERM "$daemon" 2>/dev/null || :
    status=0
    wait "$daemon" || status=$?
    [ "$status" = 0 ] || die "corbeld ended with status $status: $(tail -n 3 "$DIR/log")"
    echo "stopped cleanly"
    exit 0
}

watch_status() {
    trap end_watch INT TERM HUP
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
stop)
    [ -d "$DIR" ] || die "there is no folder $DIR"
    DIR=$(cd "$DIR" && pwd)
    PIDFILE=$DIR/corbeld.pid CONFIG=$DIR/corbel.conf
    stop
    ;;
start)
    BUILD_DIR=$(cd "$2" && pwd)
    make_folder
    choose_disks
    write_config
    make_disks
    launch
    print_lines
    [ -n "${DETACH:-}" ] || watch_status
    ;;
*) die "usage: demo.sh start BUILD_DIR | stop" ;;
esac
