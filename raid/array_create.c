/*
 * From what is asked for to a description, and the description to the disks.
 *
 * array_describe() is pure but for the identifiers it draws: it checks names, disks and sizes and finds a place for
 * every volume. Places are extents of the members' data area, counted in MiB from its start, the same on every member;
 * they are given out first fit, front to back. A jbod volume lies on one member only, so its extent clashes with those
 * of the same slot and of the volumes that use all members. A span that is alone in its array, and was not given a
 * size that fits equal extents, uses what each member has (sb_volume.extent 0): then nothing else can be added.
 *
 * array_create() writes generation 1 to all disks side by side. When one fails the others are erased again: either
 * there is an array, or no disk knows of one (but the disk that failed, whose label stays one of an array of which no
 * other member exists).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "raid/array_impl.h"

enum { SIZE_TEXT = 32, CHUNK_DEFAULT = 64 << 10, SIZE_UNIT = 4096 };

#define SAY(why, why_len, ...) (text_format(why, why_len, __VA_ARGS__), (const char *)(why))

/* "96.0 MiB": for people; exact bytes stand beside it where they matter. */
static const char *size_text(char out[SIZE_TEXT], uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;
    uint64_t scale = KIB;
    while (unit + 1 < ARRAY_LENGTH(units) && bytes >= scale * 1024) {
        scale *= 1024;
        unit++;
    }
    text_format(out, SIZE_TEXT, "%llu.%llu %s", (unsigned long long)(bytes / scale),
                (unsigned long long)(bytes % scale * 10 / scale), units[unit]);
    return out;
}

/* --- names and disks --- */

static bool name_is_good(const char *name)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t len = strnlen(name, SB_NAME_SIZE);
    return len > 0 && len < SB_NAME_SIZE && strspn(name, good) == len && name[0] != '.' && name[0] != '-';
}

static const char *check_name(const char *what, const char *name, char *why, size_t why_len)
{
    if (name_is_good(name))
        return NULL;
    return SAY(why, why_len,
               "\"%.*s\" is no name for %s: use 1 to %d letters, digits, '.', '_' or '-', a letter, digit or '_' first",
               SB_NAME_SIZE - 1, name, what, SB_NAME_SIZE - 1);
}

static const char *disk_text(const struct array_disk *disk)
{
    return disk->identity[0] != '\0' ? disk->identity : disk->dev->name;
}

static const char *check_disk_pair(const struct array_disk *a, const struct array_disk *b, char *why, size_t why_len)
{
    if (a->dev == b->dev || (a->identity[0] != '\0' && strcmp(a->identity, b->identity) == 0))
        return SAY(why, why_len, "disk %s is given twice: every slot needs a disk of its own", disk_text(a));
    uint32_t block_a = a->dev->info.logical_block, block_b = b->dev->info.logical_block;
    if (block_a == block_b)
        return NULL;
    const struct array_disk *odd = block_a > block_b ? a : b, *other = block_a > block_b ? b : a;
    return SAY(why, why_len,
               "disk %s has blocks of %u bytes and disk %s of %u: an array does not mix them, leave one of them out",
               disk_text(odd), MAX(block_a, block_b), disk_text(other), MIN(block_a, block_b));
}

static const char *check_disks(const struct array_spec *spec, char *why, size_t why_len)
{
    if (spec->disks_count == 0 || spec->disks_count > RAID_MEMBERS_MAX)
        return SAY(why, why_len, "array %s is given %u disks: it takes 1 to %d", spec->name, spec->disks_count,
                   RAID_MEMBERS_MAX);
    for (unsigned i = 0; i < spec->disks_count; i++) {
        const struct array_disk *disk = &spec->disks[i];
        if (disk->dev == NULL)
            return SAY(why, why_len, "slot %u of array %s has no disk: a new array needs all of them", i, spec->name);
        if (!superblock_text_ok(disk->identity, sizeof disk->identity))
            return SAY(why, why_len, "disk %s has a serial number or path that is not printable text", disk->dev->name);
        if (disk->dev->info.read_only)
            return SAY(why, why_len, "disk %s is read-only: it cannot be a member", disk_text(disk));
        for (unsigned j = 0; j < i; j++) {
            const char *wrong = check_disk_pair(disk, &spec->disks[j], why, why_len);
            if (wrong != NULL)
                return wrong;
        }
    }
    return NULL;
}

/* Rings of one size: the smallest device's. */
static const char *describe_journals(struct loop *loop, const struct array_spec *spec, struct sb_array *out, char *why,
                                     size_t why_len)
{
    uint64_t bytes = (uint64_t)JOURNAL_RING_PAGES_MAX * PAGE_BYTES,
             least = superblock_journal_least(out->members_count);
    if (spec->journals_count > SB_JOURNALS_MAX)
        return SAY(why, why_len, "array %s is given %u journal devices: it takes one, or two that hold the same",
                   spec->name, spec->journals_count);
    for (unsigned i = 0; i < spec->journals_count; i++) {
        const struct array_disk *disk = &spec->journals[i];
        uint64_t size = round_down(disk->dev->info.size, MIB);
        if (!superblock_text_ok(disk->identity, sizeof disk->identity))
            return SAY(why, why_len, "disk %s has a serial number or path that is not printable text", disk->dev->name);
        if (disk->dev->info.read_only)
            return SAY(why, why_len, "disk %s is read-only: it cannot hold the journal", disk_text(disk));
        if (size < JOURNAL_RING_START + least)
            return SAY(why, why_len, "disk %s is too small to hold the journal: %llu MiB are the least for %u disks",
                       disk_text(disk), (unsigned long long)((JOURNAL_RING_START + least) / MIB), out->members_count);
        bytes = MIN(bytes, size - JOURNAL_RING_START);
        for (unsigned j = 0; j < i + spec->disks_count; j++) {
            const struct array_disk *other = j < i ? &spec->journals[j] : &spec->disks[j - i];
            if (other->dev == disk->dev || (disk->identity[0] != '\0' && strcmp(other->identity, disk->identity) == 0))
                return SAY(why, why_len, "disk %s is given twice: the journal needs a disk of its own",
                           disk_text(disk));
        }
    }
    for (; out->journals_count < spec->journals_count; out->journals_count++) {
        struct sb_journal_device *device = &out->journals[out->journals_count];
        *device = (struct sb_journal_device){.uuid = uuid_generate(loop), .start = JOURNAL_RING_START, .bytes = bytes};
        text_format(device->identity, sizeof device->identity, "%s", spec->journals[out->journals_count].identity);
    }
    return NULL;
}

/* As given, or the level's default. */
static uint32_t chunk_of(const struct layout_spec *spec)
{
    bool small = spec->level == RAID_3 || spec->level == RAID_30;
    return spec->chunk != 0 ? spec->chunk : small ? SIZE_UNIT : CHUNK_DEFAULT;
}

/* Slots, sizes and the plan of the data area, which follows from the smallest disk. */
static const char *describe_members(struct loop *loop, const struct array_spec *spec, struct sb_array *out, char *why,
                                    size_t why_len)
{
    unsigned smallest = 0;
    out->members_count = spec->disks_count;
    for (unsigned i = 0; i < spec->disks_count; i++) {
        struct sb_member *member = &out->members[i];
        member->uuid = uuid_generate(loop);
        member->state = SB_ACTIVE;
        text_format(member->identity, sizeof member->identity, "%s", spec->disks[i].identity);
        member->size = round_down(spec->disks[i].dev->info.size, MIB);
        if (member->size < out->members[smallest].size)
            smallest = i;
    }
    uint32_t chunk = CHUNK_DEFAULT;
    for (unsigned i = 0; i < MIN(spec->volumes_count, (unsigned)SB_VOLUMES_MAX); i++)
        chunk = MIN(chunk, chunk_of(&spec->volumes[i].layout));
    out->journal_bytes = spec->journal_bytes;
    const char *wrong = superblock_plan(out, out->members[smallest].size, MAX(chunk, (uint32_t)SIZE_UNIT));
    if (wrong != NULL)
        return SAY(why, why_len, "disk %s cannot be a member: %s", disk_text(&spec->disks[smallest]), wrong);
    return NULL;
}

/* --- places --- */

/* Bytes of data area on one member. */
static uint64_t own_bytes(const struct sb_array *a, unsigned slot)
{
    return round_down(superblock_tail(a->members[slot].size) - a->data_start, MIB);
}

uint64_t array_extents(const struct sb_array *a, const struct sb_volume *volume, uint64_t *extent)
{
    uint64_t total = 0;
    for (unsigned i = 0; i < volume->spec.members; i++) {
        extent[i] = volume->extent != 0 ? volume->extent : own_bytes(a, i);
        total += extent[i];
    }
    return total;
}

static bool volumes_clash(const struct sb_volume *a, const struct sb_volume *b)
{
    return a->spec.level != RAID_JBOD || b->spec.level != RAID_JBOD || a->slot == b->slot;
}

static uint64_t volume_end(const struct sb_volume *volume)
{
    return volume->extent != 0 ? volume->start + volume->extent : UINT64_MAX;
}

static uint64_t place_limit(const struct sb_array *a, const struct sb_volume *volume)
{
    return volume->spec.level == RAID_JBOD ? own_bytes(a, volume->slot) : round_down(a->data_bytes, MIB);
}

/* Free bytes from `start` on where `volume` would lie; 0 if `start` is taken. */
static uint64_t free_from(const struct sb_array *a, const struct sb_volume *volume, uint64_t start)
{
    uint64_t end = place_limit(a, volume);
    for (unsigned i = 0; i < a->volumes_count; i++) {
        const struct sb_volume *other = &a->volumes[i];
        if (other == volume || !volumes_clash(volume, other) || volume_end(other) <= start)
            continue;
        if (other->start <= start)
            return 0;
        end = MIN(end, other->start);
    }
    return end > start ? end - start : 0;
}

static void place_consider(const struct sb_array *a, struct sb_volume *volume, uint64_t start, uint64_t need)
{
    uint64_t len = free_from(a, volume, start);
    bool better = need == 0 ? len > volume->extent : len >= need && (volume->extent == 0 || start < volume->start);
    if (better) {
        volume->start = start;
        volume->extent = len;
    }
}

/* Set start and extent: the first free run of `need` bytes, or the longest one (need 0). False: there is none. */
static bool place_find(const struct sb_array *a, struct sb_volume *volume, uint64_t need)
{
    volume->start = volume->extent = 0;
    place_consider(a, volume, 0, need);
    for (unsigned i = 0; i < a->volumes_count; i++)
        if (&a->volumes[i] != volume && a->volumes[i].extent != 0)
            place_consider(a, volume, volume_end(&a->volumes[i]), need);
    bool found = volume->extent > 0;
    if (found && need != 0)
        volume->extent = need;
    return found;
}

uint64_t array_free_extent(const struct sb_array *a)
{
    struct sb_volume any = {.spec.level = RAID_0};
    return place_find(a, &any, 0) ? any.extent : 0;
}

uint64_t array_slot_bytes(const struct sb_array *a, unsigned slot)
{
    uint64_t end = a->data_bytes;
    for (unsigned i = 0; i < a->volumes_count; i++) {
        const struct sb_volume *volume = &a->volumes[i];
        if (volume->extent == 0)
            return a->members[slot].size;
        if (volume->spec.level != RAID_JBOD || volume->slot == slot)
            end = MAX(end, volume_end(volume));
    }
    return round_up(a->data_start + end, MIB) + SB_TAIL_BYTES;
}

/* --- volumes --- */

static uint64_t extent_for(const struct layout_spec *spec, uint64_t size)
{
    uint64_t unit = MAX((uint64_t)spec->chunk, MIB);
    if (spec->level == RAID_SPAN)
        return round_up((size + spec->members - 1) / spec->members, unit);
    return round_up(layout_extent_for(spec, size), unit);
}

static const char *say_too_big(const struct sb_array *a, const struct sb_volume *volume, uint64_t need, char *why,
                               size_t why_len)
{
    struct sb_volume largest = *volume;
    uint64_t free_bytes = place_find(a, &largest, 0) ? largest.extent : 0;
    char asked[SIZE_TEXT], needed[SIZE_TEXT], left[SIZE_TEXT];
    return SAY(why, why_len,
               "volume %s asks for %s (%llu bytes): as %s it needs %s on each of its %u disks, and %s is free there",
               volume->name, size_text(asked, volume->size), (unsigned long long)volume->size,
               raid_level_name(volume->spec.level), size_text(needed, need), volume->spec.members,
               size_text(left, free_bytes));
}

/* Blocks of region map that are taken, by others than `volume`, where `block` is, and behind; 0: it is free. */
static uint64_t map_taken_from(const struct sb_array *a, const struct sb_volume *volume, uint64_t block,
                               uint64_t blocks)
{
    for (unsigned i = 0; i < a->volumes_count; i++) {
        const struct sb_volume *other = &a->volumes[i];
        struct layout layout;
        uint64_t taken = superblock_layout(a, other, &layout) ? superblock_map_blocks_of(&layout) : 0;
        if (other != volume && other->map_block < block + blocks && block < other->map_block + taken)
            return other->map_block + taken - block;
    }
    return 0;
}

/* First fit in the map area. False: no room. */
bool array_map_place(const struct sb_array *a, struct sb_volume *volume, uint64_t blocks)
{
    uint64_t block = 0, taken;
    while (blocks > 0 && (taken = map_taken_from(a, volume, block, blocks)) > 0)
        block += taken;
    volume->map_block = block;
    volume->unmapped = blocks > 0;
    return block + blocks <= superblock_map_blocks(a);
}

static const char *say_no_room(const struct sb_volume *volume, uint64_t size, uint64_t need, uint64_t there, char *why,
                               size_t why_len)
{
    char asked[SIZE_TEXT], needed[SIZE_TEXT], left[SIZE_TEXT];
    return SAY(why, why_len,
               "volume %s: for %s it needs, as %s, %s on each of its %u disks, and has %s with what is free behind it",
               volume->name, size_text(asked, size), raid_level_name(volume->spec.level), size_text(needed, need),
               volume->spec.members, size_text(left, there));
}

/* Room for the map, where it is. */
static bool map_fits(const struct sb_array *a, const struct sb_volume *volume, uint64_t was, uint64_t is)
{
    return is <= was || (map_taken_from(a, volume, volume->map_block + was, is - was) == 0 &&
                         volume->map_block + is <= superblock_map_blocks(a));
}

const char *array_resize_volume_in(const struct sb_array *a, struct sb_volume *volume, uint64_t size,
                                   struct layout *layout, char *why, size_t why_len)
{
    struct layout before;
    uint64_t extent[RAID_MEMBERS_MAX], there;
    if (volume->spec.level == RAID_SPAN)
        return SAY(why, why_len, "volume %s is a span: it has the size that it was created with", volume->name);
    bool known = superblock_layout(a, volume, &before);
    ASSERT(known); /* it is open */
    uint64_t need = extent_for(&volume->spec, size);
    there = free_from(a, volume, volume->start);
    if (need > there)
        return say_no_room(volume, size, need, there, why, why_len);
    volume->extent = size > volume->size ? MAX(volume->extent, need) : MIN(volume->extent, need);
    volume->size = size;
    array_extents(a, volume, extent);
    const char *wrong = layout_init(layout, &volume->spec, extent);
    if (wrong == NULL && size > layout->rows * layout->row_data)
        return say_no_room(volume, size, need, there, why, why_len);
    if (wrong != NULL)
        return SAY(why, why_len, "volume %s: %s", volume->name, wrong);
    if (!map_fits(a, volume, superblock_map_blocks_of(&before), superblock_map_blocks_of(layout)))
        return SAY(why, why_len, "volume %s cannot become longer: there is no room for its region map where that lies",
                   volume->name);
    return NULL;
}

/* A size was given, or 0 for all that is left: find the place. `layout` is initialised for it. */
static const char *place_volume(const struct sb_array *a, struct sb_volume *volume, bool alone, struct layout *layout,
                                char *why, size_t why_len)
{
    uint64_t extent[RAID_MEMBERS_MAX], asked = volume->size;
    bool own = volume->spec.level == RAID_SPAN && alone;
    uint64_t need = asked != 0 ? extent_for(&volume->spec, asked) : 0;
    bool found = !(own && asked == 0) && place_find(a, volume, need);
    if (!found && !own && asked != 0)
        return say_too_big(a, volume, need, why, why_len);
    if (!found && !own)
        return SAY(why, why_len, "volume %s asks for all that is left, and nothing is: make another one smaller",
                   volume->name);
    if (!found)
        volume->start = volume->extent = 0; /* a span that takes what each member has */
    array_extents(a, volume, extent);
    const char *wrong = layout_init(layout, &volume->spec, extent);
    if (wrong != NULL)
        return SAY(why, why_len, "volume %s: %s", volume->name, wrong);
    uint64_t capacity = layout->rows * layout->row_data;
    if (asked > capacity)
        return say_too_big(a, volume, need, why, why_len);
    volume->size = asked != 0 ? asked : round_down(capacity, SIZE_UNIT);
    if (volume->size == 0)
        return SAY(why, why_len, "volume %s: what is left does not hold a single row, take a smaller chunk",
                   volume->name);
    return NULL;
}

static const char *check_volume_name(const struct sb_array *a, const char *name, char *why, size_t why_len)
{
    const char *wrong = check_name("a volume", name, why, why_len);
    if (wrong != NULL)
        return wrong;
    for (unsigned i = 0; i < a->volumes_count; i++)
        if (strcmp(a->volumes[i].name, name) == 0)
            return SAY(why, why_len, "array %s has a volume %s already: choose another name", a->name, name);
    return NULL;
}

static const char *choose_consistency(const struct array_volume_spec *spec, const struct layout *layout,
                                      enum sb_consistency *consistency, char *why, size_t why_len)
{
    *consistency = spec->consistency_given ? spec->consistency : superblock_consistency_for(layout);
    const char *wrong = superblock_consistency_check(layout, *consistency);
    if (wrong == NULL)
        return NULL;
    return SAY(why, why_len, "volume %s (%s) cannot have the consistency policy %s: %s", spec->name,
               raid_level_name(layout->spec.level), sb_consistency_name(*consistency), wrong);
}

/* The spec completed, and checked against room without end. */
static const char *check_volume_spec(const struct sb_array *a, const struct array_volume_spec *spec,
                                     struct sb_volume *volume, char *why, size_t why_len)
{
    struct layout_spec *complete = &volume->spec;
    bool jbod = spec->layout.level == RAID_JBOD;
    if (jbod && spec->slot >= a->members_count)
        return SAY(why, why_len, "volume %s is to lie in slot %u, but array %s has slots 0 to %u", spec->name,
                   spec->slot, a->name, a->members_count - 1);
    *complete = spec->layout;
    bool all = spec->layout.members == 0 || spec->layout.members > a->members_count;
    complete->members = jbod ? 1 : all ? a->members_count : spec->layout.members;
    complete->chunk = chunk_of(&spec->layout);
    uint64_t extent[RAID_MEMBERS_MAX];
    for (unsigned i = 0; i < RAID_MEMBERS_MAX; i++)
        extent[i] = GIB;
    struct layout layout;
    const char *wrong = layout_init(&layout, complete, extent);
    if (wrong != NULL)
        return SAY(why, why_len, "volume %s: %s", spec->name, wrong);
    *complete = layout.spec;
    volume->init = spec->init;
    if (spec->init != SB_INIT_NONE && layout.redundancy == 0)
        return SAY(why, why_len, "volume %s (%s) cannot be initialised: that is for levels with redundancy", spec->name,
                   raid_level_name(layout.spec.level));
    return choose_consistency(spec, &layout, &volume->consistency, why, why_len);
}

static const char *describe_volume(struct loop *loop, struct sb_array *a, const struct array_volume_spec *spec,
                                   bool alone, uint32_t logical_block, char *why, size_t why_len)
{
    if (a->volumes_count == SB_VOLUMES_MAX)
        return SAY(why, why_len, "array %s has %d volumes: it cannot have more", a->name, SB_VOLUMES_MAX);
    const char *wrong = check_volume_name(a, spec->name, why, why_len);
    if (wrong != NULL)
        return wrong;
    struct sb_volume volume = {.slot = spec->slot, .logical_block = logical_block};
    text_format(volume.name, sizeof volume.name, "%s", spec->name);
    wrong = check_volume_spec(a, spec, &volume, why, why_len);
    if (wrong != NULL)
        return wrong;
    if (spec->size > (uint64_t)INT64_MAX)
        return SAY(why, why_len, "volume %s asks for %llu bytes: no disks hold that", spec->name,
                   (unsigned long long)spec->size);
    struct layout layout;
    volume.size = round_up(spec->size, SIZE_UNIT);
    wrong = place_volume(a, &volume, alone, &layout, why, why_len);
    if (wrong != NULL)
        return wrong;
    volume.uuid = uuid_generate(loop);
    if (!array_map_place(a, &volume, superblock_map_blocks_of(&layout)))
        return SAY(why, why_len,
                   "volume %s has %llu rows, more than the array's region map has room for: take a larger chunk",
                   volume.name, (unsigned long long)layout.rows);
    a->volumes[a->volumes_count++] = volume;
    struct sb_label label = {.array = *a, .member = a->members[0].uuid};
    wrong = superblock_check(&label);
    if (wrong != NULL) {
        a->volumes_count--;
        return SAY(why, why_len, "volume %s cannot be described: %s", volume.name, wrong);
    }
    return NULL;
}

const char *array_describe(struct loop *loop, const struct array_spec *spec, struct sb_array *out, char *why,
                           size_t why_len)
{
    *out = (struct sb_array){.generation = 1, .clean = true, .forks_count = 1};
    const char *wrong = check_name("an array", spec->name, why, why_len);
    if (wrong == NULL)
        wrong = check_disks(spec, why, why_len);
    if (wrong == NULL)
        wrong = describe_members(loop, spec, out, why, why_len);
    if (wrong == NULL)
        wrong = describe_journals(loop, spec, out, why, why_len);
    if (wrong != NULL)
        return wrong;
    text_format(out->name, sizeof out->name, "%s", spec->name);
    out->uuid = uuid_generate(loop);
    out->forks[0] = (struct sb_fork){.id = uuid_generate(loop), .generation = 1};
    out->created_s = out->updated_s = loop_wall_clock_s(loop);
    if (spec->volumes_count > SB_VOLUMES_MAX)
        return SAY(why, why_len, "array %s is to have %u volumes: it takes at most %d", spec->name, spec->volumes_count,
                   SB_VOLUMES_MAX);
    for (unsigned i = 0; i < spec->volumes_count; i++) {
        wrong = describe_volume(loop, out, &spec->volumes[i], spec->volumes_count == 1,
                                spec->disks[0].dev->info.logical_block, why, why_len);
        if (wrong != NULL)
            return wrong;
    }
    return NULL;
}

/* --- create --- */

struct creation {
    struct loop *loop;
    struct array_call *call;
    struct sb_array description;
    unsigned disks_count, pending;
    const struct array_disk *failed_disk; /* the first disk that could not be written, and why */
    enum blk_status failed_status;
    void (*journals_labelled)(struct creation *);
    struct array_disk disks[RAID_MEMBERS_MAX];
    struct array_journals journals;
    struct page_pool *pages; /* the labels of journal devices */
    struct creation_journal {
        struct blk_req req;
        struct page *page;
        struct creation *creation;
    } on_journals[SB_JOURNALS_MAX];
    struct creation_part {
        struct label_op op;
        struct sb_label label;
        struct creation *creation;
    } parts[];
};

static void creation_free(struct creation *c)
{
    for (unsigned i = 0; i < SB_JOURNALS_MAX; i++)
        if (c->on_journals[i].page != NULL)
            page_put(c->on_journals[i].page);
    if (c->pages != NULL)
        page_pool_retire(c->pages);
    free(c);
}

static bool journal_pages_take(struct creation *c)
{
    if (c->description.journals_count > 0)
        c->pages = page_pool_create(SB_JOURNALS_MAX);
    for (unsigned i = 0; c->pages != NULL && i < SB_JOURNALS_MAX; i++) {
        bool taken = page_pool_get(c->pages, &c->on_journals[i].page, 1);
        ASSERT(taken);
    }
    return c->pages != NULL || c->description.journals_count == 0;
}

static void journal_labelled(struct blk_req *req)
{
    struct creation_journal *on = container_of(req, struct creation_journal, req);
    struct creation *c = on->creation;
    if (req->status != BLK_OK && c->failed_status == BLK_OK) {
        c->failed_disk = &c->journals.disks[on - c->on_journals];
        c->failed_status = req->status;
    }
    if (--c->pending == 0)
        c->journals_labelled(c);
}

/* Labels to the journal devices, or zeroes in their place. */
static void journals_label(struct creation *c, bool erase, void (*then)(struct creation *))
{
    c->journals_labelled = then;
    c->pending = c->description.journals_count;
    for (unsigned i = 0; i < c->description.journals_count; i++) {
        struct creation_journal *on = &c->on_journals[i];
        struct journal_label label = {
            .array = c->description.uuid, .device = c->description.journals[i].uuid, .generation = 1};
        text_format(label.name, sizeof label.name, "%s", c->description.name);
        if (erase)
            memset(on->page->data, 0, JOURNAL_LABEL_BYTES);
        else
            journal_label_encode(&label, on->page->data);
        on->creation = c;
        on->req = (struct blk_req){.op = BLK_WRITE,
                                   .flags = BLK_FUA,
                                   .off = JOURNAL_LABEL_AT,
                                   .len = JOURNAL_LABEL_BYTES,
                                   .pages = &on->page,
                                   .done = journal_labelled};
        blk_submit(c->journals.disks[i].dev, &on->req);
    }
    if (c->description.journals_count == 0)
        then(c);
}

static void creation_failed(struct creation *c);

/* Erased or not, that is all that can be done. */
static void creation_erased(struct label_op *op)
{
    struct creation *c = container_of(op, struct creation_part, op)->creation;
    if (--c->pending > 0)
        return;
    journals_label(c, true, creation_failed);
}

static void creation_failed(struct creation *c)
{
    CALL_END(c->loop, c->call, -EIO, "disk %s could not be written (%s): array %s was not created; replace the disk",
             disk_text(c->failed_disk), blk_status_name(c->failed_status), c->description.name);
    creation_free(c);
}

/* The same on every disk: label_write() or label_erase(). */
static void creation_start(struct creation *c, void (*start)(struct label_op *), void (*done)(struct label_op *))
{
    c->pending = c->disks_count;
    for (unsigned i = 0; i < c->disks_count; i++) {
        struct creation_part *part = &c->parts[i];
        part->op = (struct label_op){.dev = c->disks[i].dev, .label = &part->label, .done = done, .fresh = true};
        start(&part->op);
    }
}

static void creation_written(struct label_op *op)
{
    struct creation_part *part = container_of(op, struct creation_part, op);
    struct creation *c = part->creation;
    if (op->status != BLK_OK && c->failed_status == BLK_OK) {
        c->failed_disk = &c->disks[part->label.slot];
        c->failed_status = op->status;
    }
    if (--c->pending > 0)
        return;
    if (c->failed_status != BLK_OK) {
        creation_start(c, label_erase, creation_erased);
        return;
    }
    log_notice("array %s: created on %u disks", c->description.name, c->disks_count);
    static const unsigned places[RAID_MEMBERS_MAX]; /* 0, as written */
    array_open_description(c->loop, &c->description, c->disks, &c->journals, places, c->call);
    creation_free(c);
}

/* The devices are labelled: now the members, or nobody. */
static void creation_members(struct creation *c)
{
    if (c->failed_status != BLK_OK)
        journals_label(c, true, creation_failed);
    else
        creation_start(c, label_write, creation_written);
}

void array_create(struct loop *loop, const struct array_spec *spec, struct array_call *call)
{
    char why[256];
    unsigned count = MIN(spec->disks_count, (unsigned)RAID_MEMBERS_MAX);
    struct creation *c = calloc(1, sizeof *c + count * sizeof c->parts[0]);
    if (c == NULL) {
        CALL_END(loop, call, -ENOMEM, "no memory to create array %s", spec->name);
        return;
    }
    const char *wrong = array_describe(loop, spec, &c->description, why, sizeof why);
    if (wrong != NULL) {
        CALL_END(loop, call, -EINVAL, "%s", wrong);
        free(c);
        return;
    }
    c->loop = loop;
    c->call = call;
    c->disks_count = count;
    memcpy(c->disks, spec->disks, count * sizeof c->disks[0]);
    memcpy(c->journals.disks, spec->journals, sizeof c->journals.disks);
    if (!journal_pages_take(c)) {
        CALL_END(loop, call, -ENOMEM, "no memory to create array %s", spec->name);
        creation_free(c);
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        c->parts[i].creation = c;
        c->parts[i].label =
            (struct sb_label){.array = c->description, .member = c->description.members[i].uuid, .slot = i};
    }
    journals_label(c, false, creation_members);
}

/* --- one more volume --- */

struct addition {
    struct array *array;
    struct array_call *call;
    unsigned volume;
    struct task mapped;
    struct commit_wait wait;
};

static void addition_over(struct task *task)
{
    struct addition *add = container_of(task, struct addition, wait.task);
    struct array *array = add->array;
    if (array->frozen) {
        ARRAY_CALL_END(array, add->call, -EIO, "array %s froze: volume %s was not added", array->description.name,
                       array->description.volumes[add->volume].name);
    } else {
        array->volumes[add->volume].published = true;
        jobs_kick(array);
        array_call_over(array, add->call, 0);
    }
    free(add);
}

/* 0, or -errno with a sentence; then the array is as before. */
static int addition_prepare(struct array *array, const struct array_volume_spec *spec, char *why, size_t why_len)
{
    struct sb_array *a = &array->description;
    uint32_t block = 512;
    for (unsigned i = 0; i < a->members_count; i++)
        if (array->members[i].dev != NULL)
            block = MAX(block, array->members[i].dev->info.logical_block);
    if (describe_volume(array->loop, a, spec, a->volumes_count == 0, block, why, why_len) != NULL)
        return -EINVAL;
    unsigned volume = a->volumes_count - 1;
    int error = array_lay_out_volume(array, volume, why, why_len);
    if (error == 0 && !array_survives(array, volume, array_lost_slots(array))) {
        text_format(why, why_len, "volume %s cannot be added while disks are missing that it needs: bring them online",
                    spec->name);
        error = -EBUSY;
    }
    if (error == 0)
        error = array_open_journal(array, why, why_len);
    if (error == 0)
        error = array_open_volume(array, volume, why, why_len);
    if (error != 0) {
        if (array->volumes[volume].map != NULL)
            map_store_destroy(array->volumes[volume].map);
        array->volumes[volume] = (struct array_volume){0};
        a->volumes_count--;
    }
    return error;
}

/* The map is on the members, if there is one: now the volume may be. */
static void addition_commit(struct task *task)
{
    struct addition *add = container_of(task, struct addition, mapped);
    add->array->description.volumes[add->volume].unmapped = false;
    array_commit(add->array, &add->wait);
}

void array_add_volume(struct array *array, const struct array_volume_spec *spec, struct array_call *call)
{
    char why[256];
    array->calls++;
    const char *refusal = array_refusal(array);
    if (refusal == NULL &&
        !replace_is_over(array)) /* it may be the smaller disk for which there is no more room then */
        refusal = "is replacing a disk";
    if (refusal == NULL && array->resize != NULL)
        refusal = "is giving a volume another size";
    if (refusal == NULL && array->relayout != NULL)
        refusal = "is moving a volume";
    if (refusal != NULL) {
        ARRAY_CALL_END(array, call, -EBUSY, "array %s %s: volume %s was not added", array->description.name, refusal,
                       spec->name);
        return;
    }
    struct addition *add = calloc(1, sizeof *add);
    int error = add == NULL ? -ENOMEM : addition_prepare(array, spec, why, sizeof why);
    if (error != 0) {
        ARRAY_CALL_END(array, call, error, "%s", add == NULL ? "no memory to add a volume" : why);
        free(add);
        return;
    }
    *add = (struct addition){.array = array,
                             .call = call,
                             .volume = array->description.volumes_count - 1,
                             .mapped.run = addition_commit,
                             .wait.task.run = addition_over};
    struct map_store *map = array->volumes[add->volume].map;
    if (map != NULL)
        (void)map_store_open(map, true, &add->mapped); /* laying out takes no memory */
    else
        addition_commit(&add->mapped);
}
