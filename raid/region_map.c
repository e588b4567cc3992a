/*
 * See raid/region_map.h. A block on disk, little-endian:
 *
 *      0   16  magic
 *     16   16  volume UUID
 *     32    4  number of the block
 *     40    8  sequence, from 1
 *     48    8  regions of the volume when it was written
 *     56 4032  states of 16128 regions, two bits each, the first in the lowest bits: 0 unwritten, 1 clean, 2 dirty,
 *              3 suspect
 *   4092    4  CRC32C of bytes 0 to 4091
 *
 * In memory the states lie in the same order, so a block is a copy.
 */
#include "raid/region_map.h"

#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"

enum {
    OFF_MAGIC = 0,
    OFF_VOLUME = 16,
    OFF_BLOCK = 32,
    OFF_SEQUENCE = 40,
    OFF_REGIONS = 48,
    OFF_STATES = 56,
    OFF_CRC = 4092,
    MAGIC_BYTES = 16,
};

static const char magic[MAGIC_BYTES] = "Corbel map\n";

bool region_map_init(struct region_map *map, uint64_t regions)
{
    unsigned blocks = region_blocks_for(regions);
    *map = (struct region_map){.regions = regions, .blocks = blocks, .counts[REGION_UNWRITTEN] = regions};
    map->states = calloc(blocks, REGION_STATE_BYTES);
    map->touched = calloc(blocks, REGION_PER_BLOCK / 8);
    map->of_block = calloc(blocks, sizeof *map->of_block);
    if (map->states != NULL && map->touched != NULL && map->of_block != NULL)
        return true;
    region_map_fini(map);
    return false;
}

void region_map_fini(struct region_map *map)
{
    free(map->states);
    free(map->touched);
    free(map->of_block);
    *map = (struct region_map){0};
}

/* NULL: no memory, and the old one stays. */
static void *grown(void *memory, size_t was, size_t is)
{
    uint8_t *bytes = realloc(memory, is);
    if (bytes != NULL && is > was)
        memset(bytes + was, 0, is - was);
    return bytes;
}

static bool blocks_grow(struct region_map *map, unsigned blocks)
{
    uint8_t *states = grown(map->states, (size_t)map->blocks * REGION_STATE_BYTES, (size_t)blocks * REGION_STATE_BYTES);
    map->states = states != NULL ? states : map->states;
    uint8_t *touched =
        grown(map->touched, (size_t)map->blocks * (REGION_PER_BLOCK / 8), (size_t)blocks * (REGION_PER_BLOCK / 8));
    map->touched = touched != NULL ? touched : map->touched;
    struct region_block *of_block =
        grown(map->of_block, map->blocks * sizeof *of_block, blocks * sizeof *of_block);
    map->of_block = of_block != NULL ? of_block : map->of_block;
    if (states == NULL || touched == NULL || of_block == NULL)
        return false;
    map->blocks = blocks;
    return true;
}

bool region_map_resize(struct region_map *map, uint64_t regions)
{
    unsigned blocks = region_blocks_for(regions);
    if (blocks > map->blocks && !blocks_grow(map, blocks))
        return false;
    for (uint64_t region = regions; (region = region_find(map, REGION_WRITTEN, region, map->regions)) < map->regions;)
        region_set(map, region, REGION_UNWRITTEN);
    map->counts[REGION_UNWRITTEN] += regions - map->regions; /* less, when it becomes smaller */
    map->regions = regions;
    map->blocks = blocks;
    return true;
}

void region_set(struct region_map *map, uint64_t region, enum region_state state)
{
    enum region_state before = region_get(map, region);
    struct region_block *block = &map->of_block[region / REGION_PER_BLOCK];
    unsigned shift = region % 4 * 2;
    ASSERT(region < map->regions);
    map->states[region / 4] = (uint8_t)((map->states[region / 4] & ~(3u << shift)) | (unsigned)state << shift);
    map->counts[before]--;
    map->counts[state]++;
    block->dirty += (state == REGION_DIRTY) - (before == REGION_DIRTY);
    block->changed |= before != state;
}

bool region_untouch(struct region_map *map, uint64_t region)
{
    uint8_t bit = (uint8_t)(1u << region % 8);
    bool touched = map->touched[region / 8] & bit;
    map->touched[region / 8] &= (uint8_t)~bit;
    return touched;
}

/* Regions from `from` on, `from` a multiple of 32, that are UNWRITTEN in whole words. */
static uint64_t skip_unwritten(const struct region_map *map, uint64_t from, uint64_t end)
{
    while (from + 32 <= end) {
        uint64_t word;
        memcpy(&word, map->states + from / 4, sizeof word);
        if (word != 0)
            break;
        from += 32;
    }
    return from;
}

uint64_t region_find(const struct region_map *map, unsigned states, uint64_t from, uint64_t end)
{
    bool skip = (states & REGION_BIT(REGION_UNWRITTEN)) == 0;
    ASSERT(end <= map->regions);
    while (from < end) {
        if (skip && from % 32 == 0)
            from = skip_unwritten(map, from, end);
        if (from < end && states & REGION_BIT(region_get(map, from)))
            break;
        from++;
    }
    return MIN(from, end);
}

uint64_t region_count(const struct region_map *map, unsigned states)
{
    uint64_t count = 0;
    for (unsigned state = 0; state < REGION_STATES; state++)
        if (states & REGION_BIT(state))
            count += map->counts[state];
    return count;
}

uint64_t region_count_written(const struct region_map *map, uint64_t end)
{
    uint64_t count = 0, region = 0;
    ASSERT(end <= map->regions);
    for (; region + 32 <= end; region += 32) {
        uint64_t word;
        memcpy(&word, map->states + region / 4, sizeof word);
        count += (unsigned)__builtin_popcountll((word | word >> 1) & UINT64_C(0x5555555555555555));
    }
    for (; region < end; region++)
        count += region_get(map, region) != REGION_UNWRITTEN;
    return count;
}

/* --- blocks --- */

void region_block_encode(const struct region_map *map, unsigned block, const struct uuid *volume, uint8_t *out)
{
    memset(out, 0, REGION_BLOCK_BYTES);
    memcpy(out + OFF_MAGIC, magic, MAGIC_BYTES);
    memcpy(out + OFF_VOLUME, volume->bytes, sizeof volume->bytes);
    put_le32(out + OFF_BLOCK, block);
    put_le64(out + OFF_SEQUENCE, map->of_block[block].sequence);
    put_le64(out + OFF_REGIONS, map->regions);
    memcpy(out + OFF_STATES, map->states + (uint64_t)block * REGION_STATE_BYTES, REGION_STATE_BYTES);
    put_le32(out + OFF_CRC, crc32c(0, out, OFF_CRC));
}

uint64_t region_block_sequence(unsigned block, const struct uuid *volume, const uint8_t *bytes)
{
    bool ours = memcmp(bytes + OFF_MAGIC, magic, MAGIC_BYTES) == 0 &&
                memcmp(bytes + OFF_VOLUME, volume->bytes, sizeof volume->bytes) == 0 &&
                get_le32(bytes + OFF_BLOCK) == block &&
                get_le32(bytes + OFF_CRC) == crc32c(0, bytes, OFF_CRC);
    return ours ? get_le64(bytes + OFF_SEQUENCE) : 0;
}

/* The regions of a block are [first, end). */
static uint64_t block_end(const struct region_map *map, unsigned block)
{
    return MIN(map->regions, (uint64_t)(block + 1) * REGION_PER_BLOCK);
}

void region_block_load(struct region_map *map, unsigned block, const uint8_t *bytes)
{
    uint64_t first = (uint64_t)block * REGION_PER_BLOCK;
    for (uint64_t region = first; region < block_end(map, block); region++) {
        unsigned at = (unsigned)(region - first), state = bytes[OFF_STATES + at / 4] >> (at % 4 * 2) & 3;
        region_set(map, region, (enum region_state)state);
    }
    map->of_block[block].sequence = get_le64(bytes + OFF_SEQUENCE);
    map->of_block[block].changed = false;
}

void region_block_lost(struct region_map *map, unsigned block)
{
    for (uint64_t region = (uint64_t)block * REGION_PER_BLOCK; region < block_end(map, block); region++)
        region_set(map, region, REGION_SUSPECT);
}

void region_map_doubt(struct region_map *map, unsigned states)
{
    uint64_t region = 0;
    while ((region = region_find(map, states, region, map->regions)) < map->regions)
        region_set(map, region++, REGION_SUSPECT);
}

bool region_map_changed(const struct region_map *map)
{
    for (unsigned block = 0; block < map->blocks; block++)
        if (map->of_block[block].changed)
            return true;
    return false;
}
