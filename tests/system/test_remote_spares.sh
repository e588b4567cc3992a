# Spares on other machines, by NBD and by iSCSI, added by hand: blank only, or erased by force; known after a restart by their
# label, and taken when a disk is lost.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/remotes.sh"
for name in a b; do
    make_remote "$name" 80M
    start_remote "$name"
done
make_disks 2 64M
EXTRA_TOP="disks = [ \"$(nbd_of a)\", \"$(iscsi_of b)\" ];"
write_config raid1 'size = "32 MiB";'
start_daemon
wait_idle
is_spare() { $CTL status | grep -q "spare .*$1"; }
is_online() { [ "$($CTL disk list | awk -v slot="$1" '$1 == slot { print $2 }')" = online ]; }
holds_fs() { nbdcopy "$(nbd_of a)" "$DIR/copy" && blkid -p "$DIR/copy" | grep -q 'LABEL="old"'; }

$CTL disk add-spare nbd://127.0.0.1:99999/a 2>&1 | grep -q 'names a port' || fail "a URI that cannot work"
$CTL disk add-spare "nbd://127.0.0.1:1/other" 2>&1 | grep -q 'refused' || fail "one that is not there"
truncate -s 16M "$DIR/fs"
mke2fs -q -L old "$DIR/fs"
nbdcopy --flush "$DIR/fs" "$(nbd_of a)"
$CTL disk add-spare "$(nbd_of a)" 2>&1 | grep -q 'holds a file system (ext2 old)' || fail "a file system was overwritten"
holds_fs || fail "the file system is gone"
$CTL disk add-spare "$(nbd_of a)" --force >"$DIR/said" || fail "add-spare --force: $(cat "$DIR/said")"
grep -q 'a file system (ext2 old) was on it and is erased' "$DIR/said" || fail "not told what was erased: $(cat "$DIR/said")"
holds_fs && fail "it is not erased"
$CTL disk add-spare "$(iscsi_of b)" r >/dev/null || fail "add-spare by iSCSI"
stop_daemon
launch_daemon
is_spare "$(nbd_of a)" && is_spare "$(iscsi_of b)" || fail "forgotten over the restart: $($CTL status)"

# Let go of, it is none after a restart either.
$CTL disk remove "$(nbd_of a)" >/dev/null || fail "a spare is not let go"
stop_daemon
launch_daemon
is_spare "$(nbd_of a)" && fail "still a spare"

$CTL disk add-spare "$(nbd_of a)" >/dev/null || fail "add-spare by NBD"
for slot in 0 1; do # the array's own one first
    $CTL disk fail r/$slot >/dev/null || fail "disk fail"
    wait_for is_online r/$slot || fail "no spare was taken for slot $slot: $($CTL status)"
    wait_idle
done
$CTL disk list | grep 'r/0' | grep -qF "$(iscsi_of b)" || fail "the wrong spare: $($CTL disk list)"
$CTL disk add-spare "$(nbd_of a)" --force 2>&1 | grep -q 'in use' || fail "a member's label was overwritten"
stop_daemon
launch_daemon
[ "$(array_state)" = optimal ] || fail "after a restart: $($CTL array list)"
stop_daemon
stop_remotes
