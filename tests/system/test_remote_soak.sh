# Machines that come and go under a load that checks its bytes: killed and started at once, or later, or stopped for a while,
# one after the other, each caught up before the next goes. No error, and redundancy is right at the end. LOOPS=50 for longer.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/remotes.sh"
LOOPS=${LOOPS:-4}

for name in a b c; do
    make_remote "$name" 96M
    start_remote "$name"
done
DISKS="\"$(nbd_of a)\", \"$(iscsi_of b)\", \"$(nbd_of c)\""
write_config raid5 'size = "48 MiB"; consistency = "bitmap";'
start_daemon

trouble() { # name, kind
    case $2 in
    0) kill_remote "$1" && start_remote "$1" ;;
    1) kill_remote "$1" && sleep 6.5 && start_remote "$1" ;;
    2) kill -STOP "$(remote_pid "$1")" && sleep 3 && kill -CONT "$(remote_pid "$1")" ;;
    3) kill -STOP "$(remote_pid "$1")" && sleep 13 && kill -CONT "$(remote_pid "$1")" ;;
    esac
}

loop=0
while [ "$loop" -lt "$LOOPS" ]; do
    name=$(echo a b c | cut -d ' ' -f $((loop % 3 + 1)))
    load 20
    sleep "1.$((loop * 37 % 10))"
    trouble "$name" $((loop % 4))
    load_over "loop $loop, $name"
    wait_for_long whole || fail "loop $loop: $name did not come back: $($CTL status; tail -n 5 "$LOG")"
    scrub_clean "loop $loop, $name"
    loop=$((loop + 1))
done
stop_daemon
stop_remotes
echo "$loop troubles, $(grep -c 'was away and is back' "$LOG") disks that were caught up"
