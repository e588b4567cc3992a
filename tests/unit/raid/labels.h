/* Labels for tests: descriptions of arrays as a running array would have written them. */
#ifndef TESTS_UNIT_RAID_LABELS_H
#define TESTS_UNIT_RAID_LABELS_H

#include "raid/superblock.h"

/* An identifier that is easy to tell: `kind` and `number` in its last bytes. */
struct uuid label_uuid(unsigned kind, unsigned number);

enum { LABEL_UUID_ARRAY = 1, LABEL_UUID_MEMBER, LABEL_UUID_VOLUME, LABEL_UUID_FORK };

/*
 * A clean array "tank" at generation 10 of `members` disks of `member_bytes`, all active, with identities "disk0",
 * "disk1", ..., one line of history from generation 1, and no volume.
 */
void label_make_array(struct sb_array *array, unsigned members, uint64_t member_bytes);

/* Add a volume "v0", "v1", ... behind the last one, with an extent of `extent` bytes. Chunk 64 KiB (RAID 3: 4 KiB). */
struct sb_volume *label_add_volume(struct sb_array *array, enum raid_level level, uint64_t extent);

/* What the member in `slot` says. */
struct sb_label label_of(const struct sb_array *array, unsigned slot);

#endif
