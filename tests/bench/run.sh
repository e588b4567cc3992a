#!/bin/sh
# Corbel and its peers side by side, as ratios: run.sh BUILD_DIR [SECTION] [ROUNDS] [SECONDS]
#
# Sections: nbd (qemu-nbd, qemu-storage-daemon, nbdkit, nbd-server), nbd_tls (the same by x509), iscsi (tgtd), raid6 (full rows, and where the time goes), journal (what the policies ppl
# and journal cost), hit (reads from the cache against devices that cost nothing), or `all`. Every server is
# pinned to core 0, the load to core 1; backing files lie in tmpfs. One round measures every server once, one after the other;
# what is compared is the median of the rounds' ratios. A ratio is worth something, a figure by itself is not.
#
# Prints lines `name value goal ok|short`; `-` where there is no goal. *_cpu: seconds of the server's CPU time for 100,000
# operations of 4 KiB, or for 1 GB; *_calls: system calls an operation; *_cpu_vs_*: how much of the peer's time that is. *_busy_server, *_busy_load: how full the cores were; with a full load core the server has more to give.
# A goal missed is no failure: the exit status tells whether everything could be measured.
set -eu
BUILD_DIR=$(cd "${1:?BUILD_DIR}" && pwd)
SECTION=${2:-all}
ROUNDS=${3:-3}
LENGTH=${4:-2} # seconds a cell
HERE=$(cd "$(dirname "$0")" && pwd)
DIR=$(mktemp -d /dev/shm/corbel-bench.XXXXXX)
# shellcheck source=tests/bench/servers.sh
. "$HERE/servers.sh"

finish() {
    status=$?
    trap - EXIT
    trap '' INT TERM HUP
    stop_servers
    rmdir "$DIR"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

# Its children that have ended count, too.
cpu_ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 + $14 + $15 }'; }

# System calls so far, or nothing.
calls() { [ ! -f "$DIR/calls.$1" ] || od -A n -v -t u8 "$DIR/calls.$1" | awk '{ for (i = 1; i <= NF; i++) n += $i } END { print n }'; }

load() {
    server=$1
    shift
    eval "taskset -c 1 \"$BUILD_DIR/tests/bench/\"$(cat "$DIR/$server.load") \"\$@\""
}

# Stamped blocks are written and read back: what answers fast must answer right.
check_server() {
    result=$(load "$1" --mode randwrite --block 4096 --depth 32 --seconds 0.2 --verify $2) || die "$1: wrong data"
    case $result in
    *errors=0*) ;;
    *) die "$1: $result" ;;
    esac
}

# measure CELL SERVER MODE BLOCK DEPTH [OPTION...]: one line more in $DIR/results
measure() {
    measured=$1 server_measured=$2 mode=$3 block=$4 depth=$5
    shift 5
    pid=$(cat "$DIR/$server_measured.pid")
    before=$(cpu_ticks "$pid") calls_before=$(calls "$server_measured")
    result=$(load "$server_measured" --mode "$mode" --block "$block" --depth "$depth" --seconds "$LENGTH" "$@") ||
        die "$server_measured: the load failed in $measured"
    [ "$server_measured" != nbd-server ] || sleep 0.3 # its child must have ended
    after=$(cpu_ticks "$pid") calls_after=$(calls "$server_measured")
    case $result in
    *errors=0*) ;;
    *) die "$server_measured: $result" ;;
    esac
    echo "$measured $server_measured $round $((after - before)) $LENGTH $result${calls_after:+ calls=$((calls_after - calls_before))}" >>"$DIR/results"
}

# run_cells GOAL [GOAL of sequential cells, of depth 1, of CPU time]
run_cells() {
    for server in $SERVERS; do
        case $server in null | pages) continue ;; esac
        check_server "$server" ''
        ! grep -q -- --digests "$DIR/cells" || check_server "$server" --digests
    done
    round=0
    while [ "$round" -lt "$ROUNDS" ]; do
        round=$((round + 1))
        while read -r cell mode block depth options; do
            # shellcheck disable=SC2086
            for server in $SERVERS; do measure "$cell" "$server" "$mode" "$block" "$depth" $options; done
        done <"$DIR/cells"
    done
    awk -v ticks="$(getconf CLK_TCK)" -v goal="$1" -v sequential_goal="${2:--}" -v single_goal="${3:--}" \
        -v cpu_goal="${4:-1}" -f "$HERE/report.awk" "$DIR/results"
}

cells() { # $1: the section
    cat >"$DIR/cells" <<CELLS
$1_4k_randread_q32 randread 4096 32
$1_4k_randwrite_q32 randwrite 4096 32
$1_4k_randread_q1 randread 4096 1
$1_4k_randwrite_q1 randwrite 4096 1
$1_1m_read_q8 read 1048576 8
$1_1m_write_q8 write 1048576 8
CELLS
}

# The same, and four sessions, 128 KiB, and digests of headers and data.
iscsi_cells() {
    cells iscsi
    cat >>"$DIR/cells" <<CELLS
iscsi_4k_randread_4_q32 randread 4096 32 --connections 4
iscsi_4k_randwrite_4_q32 randwrite 4096 32 --connections 4
iscsi_128k_read_q8 read 131072 8
iscsi_128k_write_q8 write 131072 8
iscsi_4k_randread_digests_q32 randread 4096 32 --digests
iscsi_4k_randwrite_digests_q32 randwrite 4096 32 --digests
iscsi_128k_read_digests_q8 read 131072 8 --digests
iscsi_128k_write_digests_q8 write 131072 8 --digests
iscsi_1m_read_digests_q8 read 1048576 8 --digests
iscsi_1m_write_digests_q8 write 1048576 8 --digests
CELLS
}

nbd_cells() { # $1: the section
    cells "$1"
    cat >>"$DIR/cells" <<CELLS
$1_4k_randread_4_q32 randread 4096 32 --connections 4
$1_4k_randwrite_4_q32 randwrite 4096 32 --connections 4
$1_128k_read_q8 read 131072 8
$1_128k_write_q8 write 131072 8
CELLS
}

nbd_peers() {
    start_qemu_nbd
    start_qemu_storage_daemon
    start_nbdkit
    start_nbd_server
    start_corbel
    add_corbel_export jbod corbel
}

section_nbd() {
    nbd_peers
    for level in raid0 raid1 raid5 raid6; do add_corbel_export "$level" "corbel-$level"; done
    nbd_cells nbd
    run_cells 2 1 1
}

section_nbd_tls() {
    make_certificates
    nbd_peers
    nbd_cells nbd_tls
    run_cells 2 1 1
}

section_iscsi() {
    start_tgtd aio
    start_tgtd rdwr
    start_corbel
    add_corbel_export jbod corbel
    SERVERS=" tgtd-aio tgtd-rdwr"
    add_corbel_lun corbel
    iscsi_cells
    run_cells 3.5 1.5
}

section_raid6() {
    start_corbel
    add_corbel_export raid6 corbel
    echo "raid6_rows_write_q8 write 1048576 8" >"$DIR/cells"
    run_cells -
    if ! perf record -q -e cpu-clock -o "$DIR/perf" true 2>/dev/null; then
        echo "bench: perf does not work here, so nothing is said about where the time goes" >&2
        return
    fi
    perf record -q -e cpu-clock -F 997 -p "$CORBEL" -o "$DIR/perf" -- sleep "$LENGTH" 2>/dev/null &
    profiler=$!
    load corbel --mode write --block 1048576 --depth 8 --seconds "$LENGTH" >/dev/null
    wait "$profiler"
    perf report -i "$DIR/perf" --stdio -q -F overhead,dso,sym -t ';' 2>/dev/null | awk -F ';' '
        /libisal/ { codec += $1; next }
        /copy|memmove|rep_movs/ { copy += $1; next }
        { other += $1 }
        END { printf "raid6_share_codec %.2f - -\nraid6_share_copies %.2f - -\nraid6_share_elsewhere %.2f - -\n",
                     codec / 100, copy / 100, other / 100 }'
}

# What closing the write hole costs: policy bitmap as many times as fast as the others.
journal_cells() { # $1: level
    rm -f "$DIR/results"
    cat >"$DIR/cells" <<CELLS
$1_4k_randwrite_q32 randwrite 4096 32
$1_4k_randwrite_q1 randwrite 4096 1
$1_rows_write_q8 write 1048576 8
CELLS
    run_cells -
}

section_journal() {
    start_corbel
    add_corbel_export raid5-bitmap corbel
    add_corbel_export raid5-ppl ppl
    add_corbel_export raid5-journal journal
    journal_cells raid5
    SERVERS=
    add_corbel_export raid6-bitmap corbel
    add_corbel_export raid6-journal journal
    journal_cells raid6
}

# A volume that is in its cache in full, against a device that answers at once with the same page (null), or with one of as many as
# the volume has (pages). `hot`: so few blocks that they stay in a processor's cache.
section_hit() {
    COUNTER=$BUILD_DIR/tests/bench/count_calls.so
    start_corbel
    add_corbel_export cached corbel
    warm_cache
    start_null
    cat >"$DIR/cells" <<CELLS
hit_4k_randread_q32 randread 4096 32
hit_4k_randread_q1 randread 4096 1
hit_4k_randread_4_q32 randread 4096 32 --connections 4
hit_4k_randread_hot_q32 randread 4096 32 --size 262144
hit_4k_randread_hot_4_q32 randread 4096 32 --connections 4 --size 262144
hit_64k_read_q8 read 65536 8
hit_1m_read_q8 read 1048576 8
CELLS
    misses=$(cache_counts misses)
    run_cells 0.95 0.95 0.95 1.05
    [ "$(cache_counts misses)" = "$misses" ] || die "not all was read from the cache: $misses misses, then $(cache_counts misses)"
    rm -f "$DIR/results"
    printf '%s\n' "hit_4k_randwrite_q32 randwrite 4096 32" "hit_4k_randwrite_4_q32 randwrite 4096 32 --connections 4" >"$DIR/cells"
    run_cells - - - -
}

run_section() {
    "section_$1"
    stop_servers
}

case $SECTION in
all) for s in nbd nbd_tls iscsi raid6 journal hit; do run_section "$s"; done ;;
nbd | nbd_tls | iscsi | raid6 | journal | hit) run_section "$SECTION" ;;
*) die "no section $SECTION" ;;
esac
