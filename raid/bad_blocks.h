/*
 * Bad blocks: bytes of a member's data area that nobody may believe, whatever the disk answers when it is asked.
 *
 * Each is a range of one slot: content that could not be computed when the disk was rebuilt, or that missed a write
 * which the disk refused while it had to stay. What the range stands for is reconstructed like a chunk with a media
 * error; where that cannot be done it is lost, and answers media errors until it is overwritten. A write that covers a
 * range ends it.
 *
 * The list is part of the description, so that it is on disk on all members. It is in order, and no two ranges of a slot
 * overlap or touch. Pure functions: offsets are those in the data area.
 */
#ifndef RAID_BAD_BLOCKS_H
#define RAID_BAD_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* Ranges are added up to BAD_ADD_MAX; the rest is for ranges that are split by writes. */
enum { BAD_MAX = 1024, BAD_ADD_MAX = 896, BAD_UNIT = 512 };

struct bad_range {
    unsigned slot;
    uint64_t start, length; /* bytes, multiples of BAD_UNIT */
};

struct bad_list {
    unsigned count;
    struct bad_range of[BAD_MAX];
};

bool bad_overlaps(const struct bad_list *list, unsigned slot, uint64_t start, uint64_t length);
/* False: the list is full, and as it was. */
bool bad_add(struct bad_list *list, unsigned slot, uint64_t start, uint64_t length);
bool bad_clear(struct bad_list *list, unsigned slot, uint64_t start, uint64_t length);
unsigned bad_count(const struct bad_list *list, unsigned slot);
/* Where, after `start` and up to `end`, what is bad begins or ends. */
uint64_t bad_next(const struct bad_list *list, unsigned slot, uint64_t start, uint64_t end);
uint64_t bad_bytes(const struct bad_list *list, unsigned slot);

/* Is it in order, within [0, size of its slot), and nowhere overlapping? NULL or a sentence. */
const char *bad_check(const struct bad_list *list, const uint64_t *sizes, unsigned slots);

#endif
