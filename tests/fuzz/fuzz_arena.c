/*
 * Arenas in hostile memory. Each input is looked at as it is; and once more laid over an arena with things published in
 * it: input byte 0 chooses which labels are given a right CRC, and the rest falls upon it from an offset on, so that
 * changes behind the checks reach the headers. What is opened must hold what it was said to hold, each block once.
 */
#include <stdlib.h>
#include <string.h>

#include "cache/arena.h"
#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"

enum { PAGES = 8, LABEL_BYTES = 512, MEMORY = PAGE_BYTES + PAGES * PAGE_BYTES };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static _Alignas(PAGE_BYTES) uint8_t memory[MEMORY], empty[MEMORY];

static void take_over(uint8_t *bytes, uint64_t len)
{
    struct arena_report before, after;
    struct arena_memory lent = {.base = bytes, .bytes = len};
    enum arena_verdict verdict = arena_look(bytes, len, &before);
    ASSERT(arena_verdict_name(verdict) != NULL && memchr(before.identity.name, 0, ARENA_NAME_BYTES) != NULL);
    bool usable = verdict == ARENA_CLEAN || verdict == ARENA_DIRTY;
    ASSERT(usable || before.dirty_blocks + before.torn_blocks == 0);
    ASSERT((verdict == ARENA_DIRTY) == (before.dirty_blocks + before.torn_blocks > 0));
    struct arena *arena = arena_open(&lent, true);
    ASSERT((arena != NULL) == usable);
    if (arena == NULL)
        return;
    uint64_t published = arena_published(arena);
    ASSERT(published <= before.dirty_blocks && arena_bytes(arena_cache_bytes(arena)) <= len);
    arena_close(arena);
    ASSERT(arena_look(bytes, len, &after) == (published > 0 ? ARENA_DIRTY : ARENA_CLEAN));
    ASSERT(after.dirty_blocks == published && after.torn_blocks == 0);
}

static void furnish(void)
{
    static const struct arena_identity identity = {.arena = {{1}}, .name = "fuzzed"};
    struct arena_memory lent = {.base = memory, .bytes = sizeof memory};
    struct page *pages[PAGES];
    struct arena *arena = arena_create(&lent, &identity, PAGES * PAGE_BYTES);
    struct page_pool *pool = arena_pool_create(arena);
    for (unsigned i = 0; i < PAGES; i++)
        ASSERT(page_pool_take(pool, &pages[i], 1));
    for (unsigned i = 0; i < PAGES / 2; i++)
        arena_publish(arena, pages[i], i / 2, 0xff, NULL); /* of each block two, as a kill may leave them */
    page_put_all(pages, PAGES);
    page_pool_retire(pool);
    arena_set_fork(arena, &(struct uuid){{2}});
    arena_close(arena);
}

static void repair(uint8_t *label)
{
    put_le32(label + LABEL_BYTES - 4, crc32c(0, label, LABEL_BYTES - 4));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    memcpy(empty, data, MIN(len, sizeof empty));
    take_over(empty, MIN(len, sizeof empty));
    if (len < 4)
        return 0;
    furnish();
    size_t at = get_le16(data + 1) % MEMORY;
    memcpy(memory + at, data + 3, MIN(len - 3, MEMORY - at));
    if (data[0] & 1)
        repair(memory);
    if (data[0] & 2)
        repair(memory + LABEL_BYTES);
    take_over(memory, MEMORY);
    return 0;
}
