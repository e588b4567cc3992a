/*
 * Arrays of Linux md, made byte by byte: straight from the format's tables and md's formulas, with nothing of raid/.
 */
#ifndef TESTS_UNIT_RAID_MD_IMAGES_H
#define TESTS_UNIT_RAID_MD_IMAGES_H

#include <stdint.h>

struct md_shape {
    int level;
    unsigned layout, disks;
    uint32_t chunk; /* bytes */
    uint64_t size;  /* of each member, bytes; level 0: of its data */
};

/* The superblock of a member that is clean and up to date: 4096 bytes for byte 4096. The disk in slot s is number s. */
void md_make_super(const struct md_shape *shape, unsigned slot, uint64_t data_start, uint8_t *page);
/* Put its checksum right again, after it was changed. */
void md_sum_super(uint8_t *page);

uint64_t md_array_size(const struct md_shape *shape);
/* Lay `data` of md_array_size() bytes out, with all redundancy, on members whose data areas these are. */
void md_lay_out(const struct md_shape *shape, const uint8_t *data, uint8_t *const *members);

#endif
