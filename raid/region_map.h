/*
 * The region map of a volume, as a value: what is known of each row; and its blocks, to bytes and back.
 *
 *                  first write                     write
 *   UNWRITTEN ------------------> DIRTY <------------------------- CLEAN
 *       ^                        |  ^  |                             ^ |
 *       |  discard               |  |  +------- quiet for a while ---+ |
 *       +------------------------+  | resynchronised                   |
 *       +---------------------------|----------------------------------+
 *                                SUSPECT
 *
 * But DIRTY stays DIRTY while a member is away: DIRTY and SUSPECT rows are all that it may lack (raid/map_store.h).
 *
 * UNWRITTEN  reads as zeroes, whatever lies on the members: nobody reads them, nothing need be right there.
 * CLEAN      redundancy is right, no write is under way, and all members have all of it for good.
 * DIRTY      redundancy is right as long as this process lives: writes may be under way, or in caches only.
 * SUSPECT    redundancy may be wrong: it was DIRTY when the array stopped without a word, or a write failed half-way.
 *
 * A region is one row. On disk the map is a list of blocks of 4 KiB, each in two slots written in turn by sequence
 * (slot = sequence % 2), so that a torn write leaves the one before. Who writes and reads them: raid/map_store.c.
 * Decoding treats the bytes as hostile.
 *
 * Memory, taken by region_map_init(): 3 bits a region and 16 bytes for each block.
 */
#ifndef RAID_REGION_MAP_H
#define RAID_REGION_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/loop.h"
#include "core/uuid.h"

enum region_state { REGION_UNWRITTEN, REGION_CLEAN, REGION_DIRTY, REGION_SUSPECT };
enum { REGION_STATES = 4 };

enum {
    REGION_BLOCK_BYTES = 4096,
    REGION_PAIR_BYTES = 2 * REGION_BLOCK_BYTES, /* both slots of a block, side by side */
    REGION_STATE_BYTES = 4032,
    REGION_PER_BLOCK = 4 * REGION_STATE_BYTES,
};

struct region_block {
    uint64_t sequence; /* of what stands, or is to stand, on the members */
    uint32_t dirty;    /* regions that are DIRTY */
    bool changed;      /* memory is ahead of the members */
};

struct region_map {
    uint64_t regions;
    unsigned blocks;
    uint64_t counts[REGION_STATES];
    uint8_t *states;  /* 2 bits each, as on disk */
    uint8_t *touched; /* 1 bit each: used since the last sweep */
    struct region_block *of_block;
};

/* Somebody wants a region in another state, and waits until that is durable. */
struct region_change {
    STAILQ_ENTRY(region_change) link;
    uint64_t region;
    enum region_state to;
    bool flush_first;  /* what was written to the region is to be durable before its state */
    bool over;         /* set when it is on all live members, or the volume has failed; then */
    struct task *task; /* is deferred */
};
STAILQ_HEAD(region_change_list, region_change);

/* All UNWRITTEN. False: no memory. */
bool region_map_init(struct region_map *map, uint64_t regions);
void region_map_fini(struct region_map *map);
/* Another number of regions: those that are new are UNWRITTEN, as on no block yet; those beyond are forgotten, and count
 * as UNWRITTEN in what the last block holds. False: no memory, and all is as before. */
bool region_map_resize(struct region_map *map, uint64_t regions);

static inline unsigned region_blocks_for(uint64_t regions)
{
    return (unsigned)((regions + REGION_PER_BLOCK - 1) / REGION_PER_BLOCK);
}

static inline enum region_state region_get(const struct region_map *map, uint64_t region)
{
    return (enum region_state)(map->states[region / 4] >> (region % 4 * 2) & 3);
}

/* In memory; the block becomes `changed` if what stands on disk is another state. */
void region_set(struct region_map *map, uint64_t region, enum region_state state);

static inline void region_touch(struct region_map *map, uint64_t region)
{
    map->touched[region / 8] |= (uint8_t)(1u << region % 8);
}

static inline bool region_touched(const struct region_map *map, uint64_t region)
{
    return map->touched[region / 8] >> region % 8 & 1;
}

/* True if it was touched, once. */
bool region_untouch(struct region_map *map, uint64_t region);

/* Sets of states, as bits. */
#define REGION_BIT(state) (1u << (state))
enum { REGION_WRITTEN = REGION_BIT(REGION_CLEAN) | REGION_BIT(REGION_DIRTY) | REGION_BIT(REGION_SUSPECT) };
/* The first region at or behind `from`, and before `end`, in one of these states; `end`: none. */
uint64_t region_find(const struct region_map *map, unsigned states, uint64_t from, uint64_t end);
uint64_t region_count(const struct region_map *map, unsigned states);
/* Regions before `end` that are not UNWRITTEN. */
uint64_t region_count_written(const struct region_map *map, uint64_t end);

/* One block with its present sequence, into REGION_BLOCK_BYTES. */
void region_block_encode(const struct region_map *map, unsigned block, const struct uuid *volume, uint8_t *out);
/* Is it this block of this volume, of whatever size the volume was then? Then its sequence, which is never 0; else 0. */
uint64_t region_block_sequence(unsigned block, const struct uuid *volume, const uint8_t *bytes);
/* Take over what region_block_sequence() believed, as it stands. */
void region_block_load(struct region_map *map, unsigned block, const uint8_t *bytes);
/* Nothing is known about the block: all SUSPECT. */
void region_block_lost(struct region_map *map, unsigned block);
/* The array was not stopped cleanly: regions in any of these states are SUSPECT. */
void region_map_doubt(struct region_map *map, unsigned states);
/* Is memory ahead of the members somewhere? */
bool region_map_changed(const struct region_map *map);

#endif
