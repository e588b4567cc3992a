/*
 * The commands of one volume: see daemon/ctl_rescue.h.
 *
 *   level          how it is read
 *   jbod, span     dm linear
 *   0              dm striped
 *   1              dm-raid raid1
 *   10, 1E         dm-raid raid10, near
 *   3, 5           dm-raid raid4, raid5_la ... raid5_rs
 *   6              mdadm --create --assume-clean over copy-on-write devices. dm-raid's raid6 types are the layouts of
 * DDF and those with Q on the last member; none has md's own, which is Corbel's. 30, 50, 60     dm striped over the
 * spans; its chunk is a row of a span tp             dm striped over dm unstriped columns; only while no member is
 * missing
 *
 * dm-raid is given '-' for metadata devices, so it keeps none, and "nosync", so it starts no resync. Rows that such a
 * device cannot cover, because their number does not divide as it wants, follow chunk by chunk as dm linear. A last dm
 * linear device cuts off what lies behind the volume's end.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "daemon/ctl_rescue.h"

enum { NAME_PART = 48, SECTOR = 512, UNDO_MAX = RAID_MEMBERS_MAX * (RAID_MEMBERS_MAX + 2) };

/* What mdadm gets behind the extent for its superblock, which goes to the copy-on-write device. A member has at least
 * as much there: the tail of the disk. */
#define MD_TAIL ((uint64_t)MIB)

struct rescue {
    FILE *out;
    const struct sb_array *array;
    const struct sb_volume *volume;
    const char *const *paths; /* by slot of the array; NULL: missing */
    unsigned number;
    struct layout layout;
    uint64_t depth; /* whole chunks on each member; not for span */
    uint64_t lost;  /* bit = member of the volume */
    bool overlays;  /* members are seen through copy-on-write devices */
    char name[128]; /* of the last device */
    char **undo;    /* commands, in order of what they undo */
    unsigned undo_count;
};

/* --- small parts --- */

/* The array's slot of the volume's member. */
static unsigned slot_of(const struct rescue *r, unsigned member)
{
    return r->volume->spec.level == RAID_JBOD ? r->volume->slot : member;
}

static bool is_lost(const struct rescue *r, unsigned member)
{
    return (r->lost >> member & 1) != 0;
}

static uint64_t chunk_sectors(const struct rescue *r)
{
    return r->layout.spec.chunk / SECTOR;
}

static void quote(FILE *out, const char *text)
{
    fputc('\'', out);
    for (; *text != '\0'; text++)
        if (*text == '\'')
            fputs("'\\''", out);
        else
            fputc(*text, out);
    fputc('\'', out);
}

static void add_undo(struct rescue *r, const char *command, const char *name)
{
    char line[256];
    snprintf(line, sizeof line, "%s %s", command, name);
    ASSERT(r->undo_count < UNDO_MAX);
    r->undo[r->undo_count] = strdup(line);
    ASSERT(r->undo[r->undo_count] != NULL);
    r->undo_count++;
}

/* Begin a device-mapper device; table lines follow, then table_end(). */
static void table_begin(struct rescue *r, const char *name, bool writable)
{
    fprintf(r->out, "dmsetup create %s%s <<END\n", writable ? "" : "--readonly ", name);
    add_undo(r, "dmsetup remove", name);
}

static void table_end(struct rescue *r)
{
    fprintf(r->out, "END\n");
}

/* Names of devices under the volume's: NAME.WORD, NAME.WORD3. */
static void device_name(const struct rescue *r, const char *word, int index, char out[160])
{
    if (index < 0)
        snprintf(out, 160, "%s.%s", r->name, word);
    else
        snprintf(out, 160, "%s.%s%d", r->name, word, index);
}

static void print_member(struct rescue *r, unsigned member)
{
    fprintf(r->out, "$v%u_m%u", r->number, member);
}

/* --- the members --- */

static uint64_t member_extent(const struct rescue *r, unsigned member)
{
    const struct layout *layout = &r->layout;
    if (layout->spec.level != RAID_SPAN)
        return r->volume->extent;
    return (layout->span_start[member + 1] - layout->span_start[member]) * layout->spec.chunk;
}

static void print_loop(struct rescue *r, unsigned member)
{
    uint64_t bytes = member_extent(r, member) + (r->overlays ? MD_TAIL : 0);
    fprintf(r->out, "v%u_m%u=$(losetup --find --show --read-only --offset %" PRIu64 " --sizelimit %" PRIu64, r->number,
            member, r->array->data_start + r->volume->start, bytes);
    if (r->volume->logical_block > SECTOR)
        fprintf(r->out, " --sector-size %" PRIu32, r->volume->logical_block);
    fputc(' ', r->out);
    quote(r->out, r->paths[slot_of(r, member)]);
    fprintf(r->out, ")\n");
    char name[64];
    snprintf(name, sizeof name, "$v%u_m%u", r->number, member);
    add_undo(r, "losetup --detach", name);
}

static void print_loops(struct rescue *r)
{
    rescue_comment(r->out, "the part of each member that belongs to the volume, read-only");
    for (unsigned i = 0; i < r->layout.spec.members; i++)
        if (is_lost(r, i))
            rescue_comment(r->out, "member %u is missing", slot_of(r, i));
        else if (member_extent(r, i) > 0)
            print_loop(r, i);
}

/* --- the volume itself --- */

/* Chunk by chunk, from `at` to the end: some member has each. */
static void print_chunks(struct rescue *r, uint64_t at)
{
    const struct layout *layout = &r->layout;
    while (at < r->volume->size) {
        uint64_t row = at / layout->row_data, len = MIN((uint64_t)layout->spec.chunk, r->volume->size - at);
        unsigned role = (unsigned)(at % layout->row_data / layout->spec.chunk);
        struct layout_place place;
        layout_place(layout, row, role, &place);
        while (!layout->parity && is_lost(r, place.slot) && ++role < layout->roles)
            layout_place(layout, row, role, &place);
        fprintf(r->out, "%" PRIu64 " %" PRIu64 " linear ", at / SECTOR, len / SECTOR);
        print_member(r, place.slot);
        fprintf(r->out, " %" PRIu64 "\n", place.off / SECTOR);
        at += len;
    }
}

/* The last device: `rows` rows from `device`, the rest from the members. */
static void print_volume_table(struct rescue *r, const char *device, uint64_t rows)
{
    uint64_t covered = MIN(rows * r->layout.row_data, r->volume->size);
    rescue_comment(r->out, "the volume: %" PRIu64 " bytes", r->volume->size);
    table_begin(r, r->name, false);
    if (covered > 0)
        fprintf(r->out, "0 %" PRIu64 " linear %s 0\n", covered / SECTOR, device);
    print_chunks(r, covered);
    table_end(r);
}

static void print_volume_of(struct rescue *r, const char *name, uint64_t rows)
{
    char device[200];
    snprintf(device, sizeof device, "/dev/mapper/%s", name);
    print_volume_table(r, device, rows);
}

static void read_jbod(struct rescue *r)
{
    char device[64];
    snprintf(device, sizeof device, "$v%u_m0", r->number);
    print_volume_table(r, device, r->layout.rows);
}

static void read_span(struct rescue *r)
{
    rescue_comment(r->out, "the volume: the members end to end, %" PRIu64 " bytes", r->volume->size);
    table_begin(r, r->name, false);
    uint64_t at = 0;
    for (unsigned i = 0; i < r->layout.spec.members && at < r->volume->size; i++) {
        uint64_t len = MIN(member_extent(r, i), r->volume->size - at);
        if (len == 0)
            continue;
        fprintf(r->out, "%" PRIu64 " %" PRIu64 " linear ", at / SECTOR, len / SECTOR);
        print_member(r, i);
        fprintf(r->out, " 0\n");
        at += len;
    }
    table_end(r);
}

static void read_striped(struct rescue *r)
{
    char name[160];
    unsigned n = r->layout.spec.members;
    device_name(r, "raid", -1, name);
    rescue_comment(r->out, "RAID 0 over the members");
    table_begin(r, name, false);
    fprintf(r->out, "0 %" PRIu64 " striped %u %" PRIu64, r->depth * n * chunk_sectors(r), n, chunk_sectors(r));
    for (unsigned i = 0; i < n; i++) {
        fputc(' ', r->out);
        print_member(r, i);
        fprintf(r->out, " 0");
    }
    fputc('\n', r->out);
    table_end(r);
    print_volume_of(r, name, r->depth * n);
}

/* --- dm-raid --- */

/* `what`: type, number of parameters, parameters. */
static void print_dm_raid(struct rescue *r, const char *name, uint64_t sectors, const char *what, unsigned first,
                          unsigned count)
{
    rescue_comment(r->out, "RAID without metadata and without resync; - is a member that is missing");
    table_begin(r, name, false);
    fprintf(r->out, "0 %" PRIu64 " raid %s %u", sectors, what, count);
    for (unsigned i = first; i < first + count; i++) {
        fprintf(r->out, " - ");
        if (is_lost(r, i))
            fputc('-', r->out);
        else
            print_member(r, i);
    }
    fputc('\n', r->out);
    table_end(r);
}

static void read_mirror(struct rescue *r)
{
    char name[160];
    device_name(r, "raid", -1, name);
    print_dm_raid(r, name, r->depth * chunk_sectors(r), "raid1 2 0 nosync", 0, r->layout.spec.members);
    print_volume_of(r, name, r->depth);
}

/* dm-raid wants a length that divides into whole copies. */
static void read_near(struct rescue *r)
{
    char name[160], what[128];
    unsigned n = r->layout.spec.members, copies = r->layout.spec.copies;
    uint64_t rows = round_down(r->depth, copies) * n / copies;
    device_name(r, "raid", -1, name);
    snprintf(what, sizeof what, "raid10 6 %" PRIu64 " raid10_copies %u raid10_format near nosync", chunk_sectors(r),
             copies);
    if (rows > 0)
        print_dm_raid(r, name, rows * chunk_sectors(r), what, 0, n);
    print_volume_of(r, name, rows);
}

static const char *dm_raid_type(const struct layout_spec *spec)
{
    static const char *const raid5[] = {
        [ROTATE_LEFT_ASYMMETRIC] = "raid5_la",
        [ROTATE_RIGHT_ASYMMETRIC] = "raid5_ra",
        [ROTATE_LEFT_SYMMETRIC] = "raid5_ls",
        [ROTATE_RIGHT_SYMMETRIC] = "raid5_rs",
    };
    return spec->level == RAID_3 || spec->level == RAID_30 ? "raid4" : raid5[spec->rotation];
}

/* --- RAID 6 by md, over copy-on-write devices --- */

static void print_overlay(struct rescue *r, unsigned member)
{
    char name[160], loop[64];
    device_name(r, "cow", (int)member, name);
    fprintf(r->out, "truncate -s 64M \"$v%u_cow/%u\"\n", r->number, member);
    fprintf(r->out, "v%u_c%u=$(losetup --find --show \"$v%u_cow/%u\")\n", r->number, member, r->number, member);
    snprintf(loop, sizeof loop, "$v%u_c%u", r->number, member);
    add_undo(r, "losetup --detach", loop);
    table_begin(r, name, true);
    fprintf(r->out, "0 %" PRIu64 " snapshot ", (r->volume->extent + MD_TAIL) / SECTOR);
    print_member(r, member);
    fprintf(r->out, " %s N 8\n", loop);
    table_end(r);
}

static void print_overlays(struct rescue *r)
{
    char folder[32];
    rescue_comment(r->out, "md writes its superblock: into a copy-on-write device of each member, never to the member");
    fprintf(r->out, "v%u_cow=$(mktemp -d)\n", r->number);
    snprintf(folder, sizeof folder, "\"$v%u_cow\"", r->number);
    add_undo(r, "rm -r", folder);
    for (unsigned i = 0; i < r->layout.spec.members; i++)
        if (!is_lost(r, i))
            print_overlay(r, i);
}

static void print_md(struct rescue *r, unsigned first, unsigned count, const char *device)
{
    uint64_t chunk_kib = r->layout.spec.chunk / KIB;
    rescue_comment(r->out, "RAID 6 as md has it, read-only and without resync");
    fprintf(r->out,
            "mdadm --create %s --run --readonly --assume-clean --metadata=1.0 --bitmap=none --level=6 --layout=%s "
            "--chunk=%" PRIu64 " --size=%" PRIu64 " --raid-devices=%u",
            device, raid_rotation_name(r->layout.spec.rotation), chunk_kib, r->depth * chunk_kib, count);
    for (unsigned i = first; i < first + count; i++) {
        char name[160];
        device_name(r, "cow", (int)i, name);
        if (is_lost(r, i))
            fprintf(r->out, " missing");
        else
            fprintf(r->out, " /dev/mapper/%s", name);
    }
    fputc('\n', r->out);
    add_undo(r, "mdadm --stop", device);
}

/* --- parity, and spans of it --- */

/* One span as a device, whose path is written to `device`. */
static void print_span(struct rescue *r, unsigned span, char device[200])
{
    unsigned n = r->layout.roles;
    if (r->overlays) {
        snprintf(device, 200, "/dev/md/corbel-%u-%u", r->number, span);
        print_md(r, span * n, n, device);
        return;
    }
    char name[160], what[64];
    device_name(r, "raid", (int)span, name);
    snprintf(what, sizeof what, "%s 2 %" PRIu64 " nosync", dm_raid_type(&r->layout.spec), chunk_sectors(r));
    print_dm_raid(r, name, r->depth * r->layout.row_data / SECTOR, what, span * n, n);
    snprintf(device, 200, "/dev/mapper/%s", name);
}

static void read_parity(struct rescue *r)
{
    unsigned spans = r->layout.spec.spans;
    char(*devices)[200] = calloc(spans, sizeof *devices), name[160];
    ASSERT(devices != NULL);
    if (r->overlays)
        print_overlays(r);
    for (unsigned span = 0; span < spans; span++)
        print_span(r, span, devices[span]);
    if (spans == 1) {
        print_volume_table(r, devices[0], r->depth);
    } else {
        uint64_t row = r->layout.row_data / SECTOR;
        device_name(r, "spans", -1, name);
        rescue_comment(r->out, "the spans take turns by whole rows");
        table_begin(r, name, false);
        fprintf(r->out, "0 %" PRIu64 " striped %u %" PRIu64, r->depth * spans * row, spans, row);
        for (unsigned span = 0; span < spans; span++)
            fprintf(r->out, " %s 0", devices[span]);
        fputc('\n', r->out);
        table_end(r);
        print_volume_of(r, name, r->depth * spans);
    }
    free(devices);
}

/* --- three parities: neither md nor dm-raid has them --- */

/* After n rows the roles lie on the members as before. So the chunks of one role in every n-th row are one column of
 * its member, and the columns, striped, are the data. */
static void print_column(struct rescue *r, unsigned row, unsigned role, uint64_t groups)
{
    char name[160];
    struct layout_place place;
    layout_place(&r->layout, row, role, &place);
    device_name(r, "column", (int)(row * r->layout.data + role), name);
    table_begin(r, name, false);
    fprintf(r->out, "0 %" PRIu64 " unstriped %u %" PRIu64 " %u ", groups * chunk_sectors(r), r->layout.roles,
            chunk_sectors(r), row);
    print_member(r, place.slot);
    fprintf(r->out, " 0\n");
    table_end(r);
}

static void read_columns(struct rescue *r)
{
    unsigned n = r->layout.roles, columns = n * r->layout.data;
    uint64_t groups = r->depth / n;
    char name[160], column[160];
    device_name(r, "raid", -1, name);
    if (groups > 0) {
        rescue_comment(r->out, "the places of each data chunk in %u successive rows, each a column of a member", n);
        for (unsigned i = 0; i < columns; i++)
            print_column(r, i / r->layout.data, i % r->layout.data, groups);
        rescue_comment(r->out, "the columns in turn; the parities are left out");
        table_begin(r, name, false);
        fprintf(r->out, "0 %" PRIu64 " striped %u %" PRIu64, groups * columns * chunk_sectors(r), columns,
                chunk_sectors(r));
        for (unsigned i = 0; i < columns; i++) {
            device_name(r, "column", (int)i, column);
            fprintf(r->out, " /dev/mapper/%s 0", column);
        }
        fputc('\n', r->out);
        table_end(r);
    }
    print_volume_of(r, name, groups * n);
}

/* --- one volume --- */

static void (*const readers[RAID_LEVEL_COUNT])(struct rescue *) = {
    [RAID_JBOD] = read_jbod, [RAID_SPAN] = read_span,  [RAID_0] = read_striped, [RAID_1] = read_mirror,
    [RAID_10] = read_near,   [RAID_1E] = read_near,    [RAID_3] = read_parity,  [RAID_5] = read_parity,
    [RAID_6] = read_parity,  [RAID_TP] = read_columns, [RAID_30] = read_parity, [RAID_50] = read_parity,
    [RAID_60] = read_parity,
};

/* NULL, or why Linux cannot read it. */
static const char *why_not(const struct rescue *r)
{
    if (!layout_survives(&r->layout, r->lost))
        return "more members are missing than the level bears";
    if (r->layout.spec.level == RAID_TP && r->lost != 0)
        return "a member is missing, and only Corbel rebuilds from three parities";
    return NULL;
}

/* What device-mapper takes in a name. True: it is the whole text. */
static bool name_part(const char *text, char out[NAME_PART])
{
    unsigned i = 0;
    bool same = true;
    for (; i < NAME_PART - 1 && text[i] != '\0'; i++) {
        bool plain = (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z') ||
                     (text[i] >= '0' && text[i] <= '9') || strchr("_.-", text[i]) != NULL;
        out[i] = plain ? text[i] : '_';
        same = same && plain;
    }
    out[i] = '\0';
    return same && text[i] == '\0';
}

static bool begin(struct rescue *r)
{
    const struct layout_spec *spec = &r->layout.spec;
    char array[NAME_PART], volume[NAME_PART];
    if (!superblock_layout(r->array, r->volume, &r->layout))
        return false;
    bool array_same = name_part(r->array->name, array), volume_same = name_part(r->volume->name, volume);
    int len = snprintf(r->name, sizeof r->name, "corbel-%s-%s", array, volume);
    if (!array_same || !volume_same) /* others may look like it now */
        snprintf(r->name + len, sizeof r->name - (size_t)len, ".v%u", r->number);
    r->depth = r->volume->extent / spec->chunk;
    r->overlays = spec->level == RAID_6 || spec->level == RAID_60;
    for (unsigned i = 0; i < spec->members; i++)
        if (r->paths[slot_of(r, i)] == NULL)
            r->lost |= 1ull << i;
    r->undo = calloc(UNDO_MAX, sizeof *r->undo);
    ASSERT(r->undo != NULL);
    return true;
}

static void end(struct rescue *r)
{
    if (r->undo_count > 0) {
        rescue_comment(r->out, "it is /dev/mapper/%s; to take it down again, in the same shell:", r->name);
        while (r->undo_count > 0) {
            char *command = r->undo[--r->undo_count];
            rescue_comment(r->out, "    %s", command);
            free(command);
        }
    }
    free(r->undo);
}

/* What a cache has promised, and keeps elsewhere. */
static void note_claim(const struct rescue *r)
{
    char *claim = superblock_kept_get(r->array, &r->volume->uuid, "cache");
    if (claim == NULL)
        return;
    rescue_comment(r->out, "its newest bytes are not on its disks, but in an arena or a log of its cache: %s", claim);
    fprintf(stderr, "corbelctl: volume %s/%s: its newest bytes are in an arena or a log of its cache\n", r->array->name,
            r->volume->name);
    free(claim);
}

bool rescue_print_volume(const struct sb_array *array, const struct sb_volume *volume, const char *const *paths,
                         unsigned number, FILE *out)
{
    struct rescue r = {.out = out, .array = array, .volume = volume, .paths = paths, .number = number};
    bool possible = begin(&r);
    ASSERT(possible); /* superblock_check() has seen to it */
    fprintf(out, "\n");
    rescue_comment(out, "--- volume %s/%s: %s, %s, chunk %" PRIu32 " bytes ---", array->name, volume->name,
                   raid_level_name(volume->spec.level), raid_rotation_name(r.layout.spec.rotation),
                   r.layout.spec.chunk);
    note_claim(&r);
    const char *why = why_not(&r);
    if (why == NULL) {
        print_loops(&r);
        readers[volume->spec.level](&r);
    } else {
        rescue_comment(out, "no commands: %s", why);
        fprintf(stderr, "corbelctl: volume %s/%s: %s\n", array->name, volume->name, why);
    }
    end(&r);
    return why == NULL;
}
