/*
 * Superblocks to and from a disk, through the door of the disks.
 *
 * label_read() reads the four copies, takes the one with the highest generation, and says in which of the two slots it
 * stands (label->place). label_write() writes the slot that label->place names, first at the head, then at the tail,
 * each flushed. A torn write leaves the other slot. Both are asynchronous; the caller embeds the operation and is told
 * in `done`, never from within the call. A write that failed may have left the label in one copy, or in both.
 *
 * The writer must never name the slot in which the member's newest label stands: the other one, each time. Going by the
 * generation's parity would not do. A member may miss a generation (a crash while it was written), and a label may stand
 * in one of its two copies only (a crash between them); the next generation but one would then destroy it.
 *
 * A disk whose copies are not to be believed (it comes from another array, or back from a history of its own) may hold
 * a higher generation in the other slot. The first label written to any disk must be written `fresh`: it goes to the tail
 * before it goes to the head, so that a label at the head without one at the tail tells of a disk that was cut short.
 */
#ifndef RAID_LABEL_H
#define RAID_LABEL_H

#include "core/blkdev.h"
#include "raid/superblock.h"

struct label_step;
struct label_scratch;

struct label_op {
    /* Set by the caller. */
    struct blkdev *dev;
    struct sb_label *label; /* read: filled; write: lent until done */
    bool fresh;             /* write: make all copies on the disk unreadable first; then any place will do */
    struct page_pool
        *pool; /* where pages come from; NULL: the loop's. A writer whom others' pages wait for needs one */
    void (*done)(struct label_op *);
    /* Result. */
    enum blk_status status; /* not BLK_OK: the disk could not be read or written; BLK_INVALID: the label does not fit */
    enum sb_verdict verdict; /* read: with BLK_OK. SB_UNSUPPORTED: the header's part of *label is filled */
    char why[160];           /* unless all is well */
    /* label.c's own. */
    struct task task;
    struct blk_req req;
    struct page *pages[SB_SLOT_BYTES / PAGE_BYTES + 1];
    unsigned pages_count;
    struct page_waiter waiter;
    struct timer retry; /* there was no memory */
    unsigned retries;
    struct label_scratch *scratch;
    const struct label_step *step; /* the one at work */
    uint64_t pos, len;             /* bytes of the step that are over, and in all */
    uint64_t copy_bytes;           /* of a copy that is read or written */
    uint64_t tail_generation;      /* of the newest copy at the tail */
    unsigned blank_copies;         /* at the tail of the label's size: nothing but zeroes */
    enum blk_status read_error;    /* of a copy */
};

void label_read(struct label_op *op);
/* To the slot label->place. The tail is found by label->array.members[label->slot].size. */
void label_write(struct label_op *op);
/* Overwrite the header of all four copies: the disk belongs to no array any more. The tail is looked for where the
 * disk's size puts it, and, with a label (may be NULL), also where label->array.members[label->slot].size does. */
void label_erase(struct label_op *op);

#endif
