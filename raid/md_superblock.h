/*
 * What Linux md writes on a member (metadata version 1.2), as values: superblock, write-intent bitmap, bad block log.
 *
 * An array of md's can be read where it is (raid/md_assembly.h says how, raid/import.h does it). Nothing here writes any
 * of it, and nothing is taken on trust: the bytes are hostile, and what is not understood to the end is refused with a
 * sentence. Offsets and lengths come out in bytes; on disk they are sectors of 512, little-endian.
 *
 *   byte 4096 of the member   256 bytes of superblock, then two bytes for each device that the array ever had: its role
 *   bitmap                    256 bytes of header, then a bit for each chunk that may not be in sync
 *   bad block log             words of 64 bits: 54 of sector, 10 of length
 */
#ifndef RAID_MD_SUPERBLOCK_H
#define RAID_MD_SUPERBLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/uuid.h"
#include "raid/bad_blocks.h"

enum {
    MD_SUPER_AT = 4096,
    MD_SUPER_BYTES = 4096,
    MD_ROLES_MAX = (MD_SUPER_BYTES - 256) / 2,
    MD_NAME_SIZE = 33,
    MD_BITMAP_HEADER = 256,
    MD_BITMAP_BYTES_MAX = 4 << 20, /* of one that is looked at */
    MD_BAD_BYTES_MAX = 64 << 10,
};

/* Roles from here on are none in the array. */
enum { MD_ROLE_JOURNAL = 0xfffd, MD_ROLE_FAULTY = 0xfffe, MD_ROLE_SPARE = 0xffff };

enum md_feature {
    MD_BITMAP = 1 << 0,
    MD_RECOVERING = 1 << 1, /* this member has only a part of its data yet */
    MD_RESHAPING = 1 << 2,
    MD_BAD_BLOCKS = 1 << 3,
    MD_REPLACEMENT = 1 << 4, /* it is being filled to take the place of another */
    MD_BACKWARDS = 1 << 5,
    MD_NEW_OFFSET = 1 << 6,
    MD_RECOVERY_BITMAP = 1 << 7,
    MD_CLUSTERED = 1 << 8,
    MD_JOURNALLED = 1 << 9,
    MD_PPL = 1 << 10,
    MD_PPLS = 1 << 11,
    MD_RAID0_LAYOUT = 1 << 12,
};

enum { MD_LEVEL_LINEAR = -1 };

struct md_superblock {
    struct uuid set, device;
    char name[MD_NAME_SIZE];
    uint32_t features; /* enum md_feature, and what may be new */
    int32_t level;
    uint32_t layout, disks;
    uint64_t chunk;                  /* level 1: of no meaning */
    uint64_t size;                   /* that the array uses of each member; level 0: of no meaning */
    uint64_t data_start, data_bytes; /* on this member */
    uint64_t bitmap_start;           /* 0: there is none */
    uint64_t bad_start, bad_bytes;   /* bytes 0: there is none */
    unsigned bad_shift;              /* of the sectors in it */
    uint32_t number;                 /* of this device, among all that the array ever had */
    uint64_t events;
    bool clean; /* stopped with all in sync */
    unsigned roles_count;
    uint16_t roles[MD_ROLES_MAX]; /* by number */
};

/* The role that a superblock gives to a device: < disks, or one of those above. */
unsigned md_role(const struct md_superblock *sb, uint32_t number);

enum md_verdict { MD_VALID, MD_NONE /* no magic */, MD_DAMAGED };
/* `bytes` are MD_SUPER_BYTES, from MD_SUPER_AT on. `why` gets a sentence with MD_NONE and MD_DAMAGED. */
enum md_verdict md_superblock_decode(const uint8_t *bytes, struct md_superblock *sb, char *why, size_t why_len);

struct md_bitmap {
    uint64_t chunks; /* bits */
    uint64_t bytes;  /* of header and bits */
};
/* `header` is MD_BITMAP_HEADER bytes, from bitmap_start on. NULL, or why it cannot be used. */
const char *md_bitmap_decode(const uint8_t *header, const struct md_superblock *sb, struct md_bitmap *bitmap, char *why,
                             size_t why_len);
/* Bits that are set, in the bitmap's `bytes`. */
uint64_t md_bitmap_count(const struct md_bitmap *bitmap, const uint8_t *bytes);

/* What the log says of the data of this member, into *list as that of `slot`. NULL, or why it cannot be used. */
const char *md_bad_blocks_decode(const uint8_t *bytes, const struct md_superblock *sb, unsigned slot,
                                 struct bad_list *list, char *why, size_t why_len);

#endif
