/*
 * What stands in an arena, and how it changes: see cache/arena.h for what it is for.
 *
 *      labels     2 of 512 bytes: magic, format, sizes, generation, identity, CRC32C. The higher generation counts;
 *                 the other one is written when the identity changes
 *      headers    16 bytes a page, up to the next multiple of 4096: two little-endian words each
 *      pages      4096 bytes each
 *
 *      word 0     block number: 48 bits; version: 16
 *      word 1     CRC32C of the page: 32 bits; sectors: 8; check: 24. All zero: the page is not published
 *
 * The check is of the header, its place and the arena, so what an older arena left in the memory is nothing here.
 *
 * A1  Word 1 changes as a whole, in one store of 8 bytes, after everything it speaks of: a process that is killed, or
 *     power that fails, between any two stores leaves a page published as it was, or as it should be, or not at all.
 * A2  A page that is published is not changed, all of it, though only its sectors count: so these may become more or
 *     fewer with one store.
 * A3  A block that gets another page has two published for a moment, between two stores in one call. Nobody was
 *     answered for the later one yet, so each of them would do; the higher version wins. Versions begin anew when
 *     nothing of a block was published.
 * A4  So a page that is published and does not agree with its CRC, or a header with its check, was damaged from
 *     outside: it is torn. Nothing says then what its sectors were.
 */
#include "cache/arena.h"

#include <stdlib.h>

#include "cache/policy.h"
#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"

enum { LABEL_BYTES = 512, LABELS = 2, LABELS_BYTES = LABELS * LABEL_BYTES, LABEL_CRC_AT = LABEL_BYTES - 4 };
enum { NUMBER_BITS = 48, SECTORS_SHIFT = 32, CHECK_SHIFT = 40 };
#define NUMBER_MASK ((1ull << NUMBER_BITS) - 1)
#define PAGES_MAX   (CACHE_SLOT_NONE - 1)

static const char magic[16] = "Corbel arena\r\n\x1a";

struct label {
    uint64_t generation, pages;
    uint32_t format;
    struct arena_identity identity;
};

struct header {
    uint64_t block, state; /* word 0 and 1, little-endian */
};

struct arena {
    struct arena_memory *memory;
    struct label label;
    struct page_memory lent;
    uint32_t pages, seed; /* seed: of checks */
    uint64_t published;
    struct header *headers;
    char *first_page;
    bool in_use, closed; /* there is a pool; nobody will want another */
};

/* --- sizes --- */

static uint64_t pages_at(uint64_t pages)
{
    return round_up(LABELS_BYTES + pages * sizeof(struct header), PAGE_BYTES);
}

static uint64_t pages_of(uint64_t cache_bytes)
{
    return MIN(cache_bytes / PAGE_BYTES, PAGES_MAX);
}

uint64_t arena_bytes(uint64_t cache_bytes)
{
    uint64_t pages = pages_of(cache_bytes);
    return pages_at(pages) + pages * PAGE_BYTES;
}

/* --- the label --- */

enum { AT_FORMAT = 16, AT_PAGE_BYTES = 20, AT_PAGES = 24, AT_GENERATION = 32, AT_UUIDS = 40, AT_NAME = 104 };

static void label_encode(const struct label *label, uint8_t out[LABEL_BYTES])
{
    const struct arena_identity *identity = &label->identity;
    const struct uuid *uuids[] = {&identity->arena, &identity->array, &identity->volume, &identity->fork};
    memset(out, 0, LABEL_BYTES);
    memcpy(out, magic, sizeof magic);
    put_le32(out + AT_FORMAT, ARENA_FORMAT);
    put_le32(out + AT_PAGE_BYTES, PAGE_BYTES);
    put_le64(out + AT_PAGES, label->pages);
    put_le64(out + AT_GENERATION, label->generation);
    for (unsigned i = 0; i < ARRAY_LENGTH(uuids); i++)
        memcpy(out + AT_UUIDS + i * sizeof(struct uuid), uuids[i], sizeof(struct uuid));
    memcpy(out + AT_NAME, identity->name, strnlen(identity->name, ARENA_NAME_BYTES - 1));
    put_le32(out + LABEL_CRC_AT, crc32c(0, out, LABEL_CRC_AT));
}

/* CLEAN: it is one that can be used. */
static enum arena_verdict label_decode(const uint8_t *in, uint64_t bytes, struct label *out)
{
    struct arena_identity *identity = &out->identity;
    struct uuid *uuids[] = {&identity->arena, &identity->array, &identity->volume, &identity->fork};
    if (memcmp(in, magic, sizeof magic) != 0)
        return ARENA_NONE;
    if (get_le32(in + LABEL_CRC_AT) != crc32c(0, in, LABEL_CRC_AT))
        return ARENA_DAMAGED;
    out->format = get_le32(in + AT_FORMAT);
    out->pages = get_le64(in + AT_PAGES);
    out->generation = get_le64(in + AT_GENERATION);
    for (unsigned i = 0; i < ARRAY_LENGTH(uuids); i++)
        memcpy(uuids[i], in + AT_UUIDS + i * sizeof(struct uuid), sizeof(struct uuid));
    memcpy(identity->name, in + AT_NAME, ARENA_NAME_BYTES - 1);
    if (out->format > ARENA_FORMAT)
        return ARENA_TOO_NEW;
    bool sound = out->format != 0 && get_le32(in + AT_PAGE_BYTES) == PAGE_BYTES && out->pages > 0 &&
                 out->pages <= PAGES_MAX && arena_bytes(out->pages * PAGE_BYTES) <= bytes;
    return sound ? ARENA_CLEAN : ARENA_DAMAGED;
}

/* Of two the later one; of which one cannot be read, or never was written, the other. */
static enum arena_verdict labels_look(const void *base, uint64_t bytes, struct label *out)
{
    enum arena_verdict verdict = ARENA_NONE;
    for (unsigned i = 0; i < LABELS && bytes >= LABELS_BYTES; i++) {
        struct label label = {0};
        enum arena_verdict is = label_decode((const uint8_t *)base + i * LABEL_BYTES, bytes, &label);
        bool both = MIN(is, verdict) >= ARENA_TOO_NEW;
        if (both ? label.generation < out->generation : is < verdict)
            continue;
        verdict = is;
        *out = label;
    }
    return verdict;
}

/* --- headers --- */

static uint32_t seed_of(const struct arena_identity *identity)
{
    return crc32c(0, &identity->arena, sizeof identity->arena);
}

static uint64_t state_of(uint32_t seed, uint64_t index, uint64_t block, uint32_t page_crc, uint8_t sectors)
{
    uint8_t bytes[24];
    uint64_t state = page_crc | (uint64_t)sectors << SECTORS_SHIFT;
    put_le64(bytes, index);
    put_le64(bytes + 8, block);
    put_le64(bytes + 16, state);
    return state | (uint64_t)(crc32c(seed, bytes, sizeof bytes) >> 8) << CHECK_SHIFT;
}

static uint8_t sectors_in(uint64_t state)
{
    return (uint8_t)(state >> SECTORS_SHIFT);
}

enum header_verdict { UNPUBLISHED, INTACT, TORN, TORN_HEADER };

static enum header_verdict header_look(const struct header *header, uint32_t seed, uint64_t index, const void *page)
{
    uint64_t block = le64toh(header->block), state = le64toh(header->state);
    if (state == 0)
        return UNPUBLISHED;
    if (sectors_in(state) == 0 || state_of(seed, index, block, (uint32_t)state, sectors_in(state)) != state)
        return TORN_HEADER;
    return crc32c(0, page, PAGE_BYTES) == (uint32_t)state ? INTACT : TORN;
}

/* --- looking --- */

const char *arena_verdict_name(enum arena_verdict verdict)
{
    static const char *const names[] = {[ARENA_NONE] = "none",
                                        [ARENA_DAMAGED] = "damaged",
                                        [ARENA_TOO_NEW] = "too new",
                                        [ARENA_CLEAN] = "clean",
                                        [ARENA_DIRTY] = "dirty"};
    return names[verdict];
}

static void count_torn(struct arena_report *out, uint64_t number)
{
    if (out->torn_blocks < ARENA_TORN_SHOWN)
        out->torn[out->torn_blocks] = number;
    out->torn_blocks++;
}

enum arena_verdict arena_look(const void *base, uint64_t bytes, struct arena_report *out)
{
    struct label label = {0};
    enum arena_verdict verdict = labels_look(base, bytes, &label);
    *out = (struct arena_report){.format = label.format, .identity = label.identity};
    if (verdict != ARENA_CLEAN)
        return verdict;
    out->cache_bytes = label.pages * PAGE_BYTES;
    const struct header *headers = (const struct header *)((const char *)base + LABELS_BYTES);
    const char *page = (const char *)base + pages_at(label.pages);
    uint32_t seed = seed_of(&label.identity);
    for (uint64_t i = 0; i < label.pages; i++, page += PAGE_BYTES) {
        enum header_verdict is = header_look(&headers[i], seed, i, page);
        if (is == INTACT) {
            out->dirty_blocks++;
            out->dirty_bytes += (unsigned)__builtin_popcount(sectors_in(le64toh(headers[i].state))) * 512ull;
        } else if (is != UNPUBLISHED) {
            count_torn(out, is == TORN ? le64toh(headers[i].block) & NUMBER_MASK : UINT64_MAX);
        }
    }
    return out->dirty_blocks + out->torn_blocks > 0 ? ARENA_DIRTY : ARENA_CLEAN;
}

/* --- changes --- */

static void settle_bytes(struct arena *arena, const void *from, uint64_t len)
{
    if (arena->memory->persist != NULL)
        arena->memory->persist(arena->memory, (uint64_t)((const char *)from - (const char *)arena->memory->base), len);
}

/* A1 */
static void word_set(struct arena *arena, uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, htole64(value), __ATOMIC_RELEASE);
    settle_bytes(arena, word, sizeof *word);
}

static uint64_t index_of(const struct arena *arena, const struct page *page)
{
    return (uint64_t)((const char *)page->data - arena->first_page) / PAGE_BYTES;
}

static struct header *header_of(const struct arena *arena, const struct page *page)
{
    return &arena->headers[index_of(arena, page)];
}

uint8_t arena_sectors(const struct arena *arena, const struct page *page)
{
    return sectors_in(le64toh(header_of(arena, page)->state));
}

uint64_t arena_number(const struct arena *arena, const struct page *page)
{
    return le64toh(header_of(arena, page)->block) & NUMBER_MASK;
}

static void withdraw(struct arena *arena, struct header *header)
{
    ASSERT(header->state != 0);
    word_set(arena, &header->state, 0);
    arena->published--;
}

void arena_publish(struct arena *arena, const struct page *page, uint64_t number, uint8_t sectors,
                   const struct page *before)
{
    struct header *header = header_of(arena, page);
    uint16_t version = 0;
    ASSERT(header->state == 0 && sectors != 0 && number <= NUMBER_MASK);
    if (before != NULL)
        version = (uint16_t)((le64toh(header_of(arena, before)->block) >> NUMBER_BITS) + 1);
    uint64_t block = number | (uint64_t)version << NUMBER_BITS;
    settle_bytes(arena, page->data, PAGE_BYTES);
    word_set(arena, &header->block, block);
    word_set(arena, &header->state,
             state_of(arena->seed, index_of(arena, page), block, crc32c(0, page->data, PAGE_BYTES), sectors));
    arena->published++;
    if (before != NULL)
        withdraw(arena, header_of(arena, before)); /* A3 */
}

void arena_republish(struct arena *arena, const struct page *page, uint8_t sectors)
{
    struct header *header = header_of(arena, page);
    uint64_t state = le64toh(header->state);
    ASSERT(state != 0);
    if (sectors == 0)
        withdraw(arena, header);
    else if (sectors != sectors_in(state))
        word_set(arena, &header->state,
                 state_of(arena->seed, index_of(arena, page), le64toh(header->block), (uint32_t)state, sectors));
}

/* --- life --- */

static struct arena *arena_new(struct arena_memory *memory, const struct label *label)
{
    struct arena *arena = calloc(1, sizeof *arena);
    ASSERT((uintptr_t)memory->base % PAGE_BYTES == 0);
    if (arena == NULL)
        return NULL;
    arena->memory = memory;
    arena->label = *label;
    arena->pages = (uint32_t)label->pages;
    arena->seed = seed_of(&label->identity);
    arena->headers = (struct header *)((char *)memory->base + LABELS_BYTES);
    arena->first_page = (char *)memory->base + pages_at(label->pages);
    return arena;
}

/* In the place of the older of the two. */
static void label_write(struct arena *arena)
{
    uint8_t *to = (uint8_t *)arena->memory->base + arena->label.generation % LABELS * LABEL_BYTES;
    label_encode(&arena->label, to);
    settle_bytes(arena, to, LABEL_BYTES);
}

/* A label is believed only when the headers are those of a new arena. */
struct arena *arena_create(struct arena_memory *memory, const struct arena_identity *identity, uint64_t cache_bytes)
{
    struct label label = {.pages = pages_of(cache_bytes), .format = ARENA_FORMAT, .identity = *identity};
    ASSERT(label.pages > 0 && memory->bytes >= arena_bytes(cache_bytes));
    struct arena *arena = arena_new(memory, &label);
    if (arena == NULL)
        return NULL;
    memset(memory->base, 0, LABELS_BYTES);
    settle_bytes(arena, memory->base, LABELS_BYTES);
    memset(arena->headers, 0, pages_at(label.pages) - LABELS_BYTES);
    settle_bytes(arena, arena->headers, pages_at(label.pages) - LABELS_BYTES);
    label_write(arena);
    return arena;
}

void arena_set_fork(struct arena *arena, const struct uuid *fork)
{
    arena->label.identity.fork = *fork;
    arena->label.generation++;
    label_write(arena);
}

struct found {
    uint64_t number;
    uint32_t index;
    uint16_t version;
};

static int found_order(const void *left, const void *right)
{
    const struct found *a = left, *b = right;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    return (int16_t)(a->version - b->version) > 0 ? -1 : 1;
}

/* A3: of each block one page, the highest version, stays published. What is torn does not. */
static bool keep_winners(struct arena *arena, uint64_t most)
{
    struct found *found = malloc(MAX(most, 1u) * sizeof *found);
    uint64_t count = 0;
    if (found == NULL)
        return false;
    for (uint32_t i = 0; i < arena->pages; i++) {
        struct header *header = &arena->headers[i];
        uint64_t block = le64toh(header->block);
        enum header_verdict is = header_look(header, arena->seed, i, arena->first_page + (size_t)i * PAGE_BYTES);
        arena->published += is != UNPUBLISHED;
        if (is == INTACT)
            found[count++] = (struct found){block & NUMBER_MASK, i, (uint16_t)(block >> NUMBER_BITS)};
        else if (is != UNPUBLISHED)
            withdraw(arena, header);
    }
    qsort(found, count, sizeof *found, found_order);
    for (uint64_t i = 1; i < count; i++)
        if (found[i].number == found[i - 1].number)
            withdraw(arena, &arena->headers[found[i].index]);
    free(found);
    return true;
}

struct arena *arena_open(struct arena_memory *memory, bool despite_torn)
{
    struct arena_report report;
    struct label label = {0};
    enum arena_verdict verdict = arena_look(memory->base, memory->bytes, &report);
    if ((verdict != ARENA_CLEAN && verdict != ARENA_DIRTY) || (report.torn_blocks > 0 && !despite_torn))
        return NULL;
    labels_look(memory->base, memory->bytes, &label);
    struct arena *arena = arena_new(memory, &label);
    if (arena != NULL && !keep_winners(arena, report.dirty_blocks)) {
        free(arena);
        return NULL;
    }
    return arena;
}

static void arena_over(struct arena *arena)
{
    struct arena_memory *memory = arena->memory;
    free(arena);
    if (memory->over != NULL)
        memory->over(memory);
}

void arena_close(struct arena *arena)
{
    arena->closed = true;
    if (!arena->in_use)
        arena_over(arena);
}

static void pool_over(struct page_memory *lent)
{
    struct arena *arena = container_of(lent, struct arena, lent);
    arena->in_use = false;
    if (arena->closed)
        arena_over(arena);
}

struct page_pool *arena_pool_create(struct arena *arena)
{
    ASSERT(!arena->in_use && !arena->closed);
    arena->lent = (struct page_memory){.base = arena->first_page, .over = pool_over};
    struct page_pool *pool = page_pool_create_in(&arena->lent, arena->pages);
    arena->in_use = pool != NULL;
    return pool;
}

uint64_t arena_cache_bytes(const struct arena *arena)
{
    return (uint64_t)arena->pages * PAGE_BYTES;
}

const struct arena_identity *arena_identity(const struct arena *arena)
{
    return &arena->label.identity;
}

uint64_t arena_published(const struct arena *arena)
{
    return arena->published;
}

uint32_t arena_pages(const struct arena *arena)
{
    return arena->pages;
}

bool arena_outlives_power(const struct arena *arena)
{
    return arena->memory->persist != NULL;
}
