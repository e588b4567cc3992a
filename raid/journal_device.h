/*
 * Disks that hold the journal in the members' stead: one, or two that hold the same. For SSDs and persistent memory.
 *
 * The label, pure: 4 KiB where a member has its first superblock. It says which array's, and which of its devices, it
 * is; it is written once, when the array is created. What holds now stands in the members' descriptions
 * (sb_array.journals), and every entry carries its epoch: what an old device, or one of another array, holds is never
 * replayed.
 *
 *   ACTIVE ----> LOST: the other one goes on alone, or, if there is none, the members' rings take over
 *      |           ^   the array is clean
 *      +----> DOUBTFUL: given up by force when it was not clean
 *
 * D1  The entries of an array with an active device stand on devices only; both have the same bytes at the same place.
 * D2  A device that fails is lost: while another is live that stands in the description before a row whose entry it
 *     missed goes on, as a member's loss does (J1).
 * D3  The last one is given up (journal_store.c, DRAINING) only when all writes in place are done and flushed; the
 *     description then calls it lost and begins a new epoch, and when that is on all live members entries go there.
 *     A crash before that needs the device: without it the array is not started but by force, and then every row with a
 *     closed policy that was written is SUSPECT, until the array is clean.
 * D4  Away when a clean array is started: lost. Lost devices do not come back.
 *
 * The rest is the inside of an array: who is there when it is opened, and losing one.
 */
#ifndef RAID_JOURNAL_DEVICE_H
#define RAID_JOURNAL_DEVICE_H

#include "core/blkdev.h"
#include "raid/superblock.h"

enum { JOURNAL_LABEL_BYTES = 4096, JOURNAL_LABEL_AT = SB_HEAD_0 };

#define JOURNAL_RING_START (1 * MIB) /* of a device that is given to an array */

struct journal_label {
    struct uuid array, device;
    uint64_t generation; /* of the array, when this was written */
    char name[SB_NAME_SIZE];
};
void journal_label_encode(const struct journal_label *label, uint8_t out[JOURNAL_LABEL_BYTES]);
/* False: it is none, or a damaged one. */
bool journal_label_decode(const uint8_t bytes[JOURNAL_LABEL_BYTES], struct journal_label *label);
/* Which of the array's devices carries this label; -1: none. */
int journal_label_index(const struct sb_array *array, const struct journal_label *label);

/* A device in an array that is open: by its index in the description. */
struct journal_device {
    struct blkdev *dev;
    bool live;
};

struct array;
struct array_journals;

/* Who is there? Changes the description: bring it to disk. `given` may be NULL. 0, or -errno and why not to start. */
int journal_devices_open(struct array *array, const struct array_journals *given, char *why, size_t why_len);
unsigned journal_devices_live(const struct array *array);
/* D2: it does not answer, or not well. The last one is given up by who uses it. */
void journal_device_lose(struct array *array, struct journal_device *device, enum blk_status status);
/* D3: all that were live are lost now, and a new epoch begins; losses_wait() tells when that is on disk. */
void journal_devices_give_up(struct array *array);
const char *journal_device_name(const struct array *array, const struct journal_device *device);
/* Does a loss keep all written rows of the closed policies in doubt? */
bool journal_is_doubtful(const struct sb_array *array);
/* The array is clean: nothing is in doubt any more. */
void journal_doubt_over(struct sb_array *array);

#endif
