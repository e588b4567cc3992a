/*
 * Superblocks to and from a disk, through the door of the disks.
 *
 * label_read() reads the four copies and takes the valid one with the highest generation. label_write() writes the slot
 * that generation's parity names, at the head and at the tail, and flushes. A torn write leaves the other slot.
 * Both are asynchronous; the caller embeds the operation and is told in `done`.
 */
#ifndef RAID_LABEL_H
#define RAID_LABEL_H

#include "core/blkdev.h"
#include "raid/superblock.h"

struct label_op {
    /* Set by the caller. */
    struct blkdev *dev;
    struct sb_label *label; /* read: filled; write: lent until done */
    void (*done)(struct label_op *);
    /* Result. */
    enum blk_status status;  /* not BLK_OK: the disk could not be read or written */
    enum sb_verdict verdict; /* read: with BLK_OK */
    char why[160];
    /* label.c's own. */
    struct blk_req req;
    struct page *pages[(SB_SLOT_BYTES / PAGE_BYTES) + 1];
    struct page_waiter waiter;
    uint8_t *buffer;
    unsigned step;
    uint64_t best_generation;
};

void label_read(struct label_op *op);
/* The tail is found by label->array.members[label->slot].size. */
void label_write(struct label_op *op);
/* Overwrite the magic of all four copies: the disk belongs to no array any more. Needs op->label only for the size. */
void label_erase(struct label_op *op);

#endif
