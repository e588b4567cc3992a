/*
 * Spares: which disk takes the place of one that was lost. A pure decision; daemon/ knows the disks and carries it out.
 *
 * Of the spares that fit a slot: those of the array itself before shared ones, those of the same kind (rotating or not)
 * before others, and of these the smallest, so that larger ones are left for those who need them. Of several arrays that
 * need one, the array that bears the fewest further losses chooses first.
 */
#ifndef RAID_SPARES_H
#define RAID_SPARES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct spare {
    const char *name;  /* for sentences: its path */
    const char *array; /* dedicated to it; "": shared by all */
    uint64_t size;     /* bytes */
    uint32_t logical_block;
    bool rotational;
    bool taken; /* not to be had any more */
};

/* A slot without a disk. */
struct spare_need {
    const char *array;
    unsigned slot;
    uint64_t bytes; /* that a disk must have */
    uint32_t logical_block;
    bool rotational;
    unsigned tolerance; /* further losses that the array's weakest volume with redundancy bears */
};

/* The spare to take, by index; or -1, and a sentence why none fits, in numbers. */
int spares_pick(const struct spare *spares, unsigned count, const struct spare_need *need, char *why, size_t why_len);
/* The need to be served first, by index; count: there is none. */
unsigned spares_most_urgent(const struct spare_need *needs, unsigned count);

/*
 * What stands on a spare that was added by hand, where a member has its first superblock: 4 KiB of a magic, the name of
 * the array it is for ("": all), and a CRC. A member's superblock takes its place.
 */
enum { SPARE_LABEL_BYTES = 4096, SPARE_ARRAY_SIZE = 64 };
/* False: the name is too long. */
bool spare_label_encode(uint8_t bytes[SPARE_LABEL_BYTES], const char *array);
/* False: it is no label of a spare, or a damaged one. */
bool spare_label_decode(const uint8_t bytes[SPARE_LABEL_BYTES], char array[SPARE_ARRAY_SIZE]);

#endif
