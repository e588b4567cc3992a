/*
 * From names of disks to arrays: see daemon/ctl_rescue.h.
 *
 * The daemon may be what is broken, so nothing of it is used: labels are read with pread(), and raid/assembly.c says
 * which disks are current. A member that is stale, failed or still being rebuilt counts as missing.
 */
#include "daemon/ctl_rescue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/check.h"
#include "raid/assembly.h"

enum { ARRAYS_MAX = 64 };

/* A disk with a label that is believed. */
struct found {
    char *path; /* absolute */
    char *real; /* without links: who it is */
    struct sb_label label;
};

struct search {
    unsigned count;
    struct found *disks[ASSEMBLY_DISKS_MAX];
};

void rescue_comment(FILE *out, const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *c = line; *c != '\0'; c++)
        if ((unsigned char)*c < ' ')
            *c = '?';
    fprintf(out, "# %s\n", line);
}

/* --- labels --- */

/* A disk with this answer is no member of anything: paths may come from a shell pattern. */
static const char no_label[] = "no superblock is here";

/* The copy of the highest generation into *label; NULL, or why there is none. */
static const char *read_label(int fd, struct sb_label *label, char *why, size_t why_len)
{
    static const uint64_t slots[] = {SB_HEAD_0, SB_HEAD_1};
    off_t size = lseek(fd, 0, SEEK_END);
    uint64_t areas[] = {0, superblock_tail(size > 0 ? (uint64_t)size : 0)};
    uint8_t *bytes = malloc(SB_SLOT_BYTES);
    struct sb_label *copy = malloc(sizeof *copy);
    ASSERT(bytes != NULL && copy != NULL);
    enum sb_verdict best = SB_NONE;
    const char *none = no_label;
    for (unsigned i = 0; i < 4; i++) {
        char reason[160];
        ssize_t n = pread(fd, bytes, SB_SLOT_BYTES, (off_t)(areas[i / 2] + slots[i % 2]));
        enum sb_verdict verdict = n < 0 ? SB_NONE : superblock_decode(bytes, (size_t)n, copy, reason, sizeof reason);
        if (n < 0 && best == SB_NONE) {
            snprintf(why, why_len, "%s", strerror(errno));
            none = why;
        }
        if (verdict == SB_NONE || (best == SB_VALID && verdict != SB_VALID))
            continue;
        if (verdict != SB_VALID)
            snprintf(why, why_len, "%s", reason);
        else if (best != SB_VALID || copy->array.generation > label->array.generation)
            *label = *copy;
        best = verdict;
    }
    free(copy);
    free(bytes);
    return best == SB_VALID ? NULL : best == SB_NONE ? none : why;
}

static void found_free(struct found *disk)
{
    free(disk->path);
    free(disk->real);
    free(disk);
}

static bool seen_before(const struct search *search, const char *real)
{
    for (unsigned i = 0; i < search->count; i++)
        if (strcmp(search->disks[i]->real, real) == 0)
            return true;
    return false;
}

/* NULL, or why this disk is of no use. The same disk under two names is taken once. */
static const char *add_disk(struct search *search, const char *name, char *why, size_t why_len)
{
    if (search->count == ASSEMBLY_DISKS_MAX)
        return "too many disks";
    if (strstr(name, "://") != NULL)
        return "it is on another machine: attach it (nbd-client, iscsiadm), and name its device";
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    struct found *disk = calloc(1, sizeof *disk);
    ASSERT(disk != NULL);
    disk->real = fd < 0 ? NULL : realpath(name, NULL);
    if (disk->real == NULL) {
        snprintf(why, why_len, "%s", strerror(errno));
        free(disk);
        return why;
    }
    const char *wrong = read_label(fd, &disk->label, why, why_len);
    close(fd);
    disk->path = strdup(name[0] == '/' ? name : disk->real);
    ASSERT(disk->path != NULL);
    if (wrong == NULL && !seen_before(search, disk->real))
        search->disks[search->count++] = disk;
    else
        found_free(disk);
    return wrong;
}

/* --- arrays --- */

/* Is it one of both sides of a relayout? */
static bool is_moving(const struct sb_array *array, const struct sb_volume *volume)
{
    for (unsigned i = 0; i < array->volumes_count; i++)
        if (uuid_equal(&array->volumes[i].relayout.from, &volume->uuid))
            return true;
    return sb_volume_is_new_side(volume);
}

static bool print_volume(const struct sb_array *array, const struct sb_volume *volume, const char *const *paths,
                         unsigned *number, FILE *out)
{
    if (!is_moving(array, volume))
        return rescue_print_volume(array, volume, paths, (*number)++, out);
    if (!sb_volume_is_new_side(volume))
        rescue_comment(out, "volume %s goes from one shape to another: only Corbel reads it until that is over",
                       volume->name);
    return false;
}

static bool print_array(const struct search *search, const struct assembly *found, unsigned *number, FILE *out)
{
    const struct sb_array *array = &found->array;
    const char *paths[RAID_MEMBERS_MAX] = {NULL};
    fprintf(out, "\n");
    rescue_comment(out, "=== array %s ===", array->name);
    rescue_comment(out, "%s", found->reason);
    if (found->verdict == ASSEMBLY_SPLIT || found->verdict == ASSEMBLY_CLONE) {
        rescue_comment(out, "no commands: name only the disks that belong together%s",
                       found->verdict == ASSEMBLY_SPLIT ? ", or take the newer history with --force" : "");
        fprintf(stderr, "corbelctl: array %s: %s\n", array->name, found->reason);
        return false;
    }
    for (unsigned slot = 0; slot < array->members_count; slot++) {
        int disk = found->disk_of_slot[slot];
        bool active = array->members[slot].state == SB_ACTIVE;
        paths[slot] = disk >= 0 && active ? search->disks[disk]->path : NULL;
        rescue_comment(out, "member %u: %s%s", slot,
                       disk >= 0 ? search->disks[disk]->path : array->members[slot].identity,
                       paths[slot] != NULL ? "" : ", missing or not current");
    }
    bool good = true;
    for (unsigned i = 0; i < array->volumes_count; i++)
        good = print_volume(array, &array->volumes[i], paths, number, out) && good;
    return good;
}

static void print_preamble(FILE *out)
{
    static const char *const lines[] = {
        "Commands for sh, as root, that read these volumes on a Linux without Corbel.",
        "No member is written to: every loop device is read-only. Stop corbeld first.",
        "What was never written to a volume reads as zeroes through Corbel; here it may show old bytes.",
        "After a crash, what a journal holds and a resync had still to do is not done here.",
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(lines); i++)
        rescue_comment(out, "%s", lines[i]);
    fprintf(out, "set -e\n");
}

static bool print_arrays_found(const struct search *search, bool force, FILE *out)
{
    struct assembly_disk disks[ASSEMBLY_DISKS_MAX];
    struct assembly_options options = {.force = force};
    struct assembly *found = calloc(ARRAYS_MAX, sizeof *found);
    ASSERT(found != NULL);
    for (unsigned i = 0; i < search->count; i++) {
        struct found *disk = search->disks[i];
        disks[i] = (struct assembly_disk){.label = &disk->label, .identity = disk->real, .name = disk->path};
    }
    unsigned arrays = assembly_decide(disks, search->count, &options, found, ARRAYS_MAX), number = 0;
    bool good = arrays <= ARRAYS_MAX;
    print_preamble(out);
    for (unsigned i = 0; i < MIN(arrays, (unsigned)ARRAYS_MAX); i++)
        good = print_array(search, &found[i], &number, out) && good;
    free(found);
    return good;
}

bool rescue_print(const char *const *disks, unsigned count, bool force, FILE *out)
{
    struct search *search = calloc(1, sizeof *search);
    ASSERT(search != NULL);
    bool good = true;
    for (unsigned i = 0; i < count; i++) {
        char why[256];
        const char *wrong = add_disk(search, disks[i], why, sizeof why);
        if (wrong == NULL)
            continue;
        fprintf(stderr, "corbelctl: %s: %s\n", disks[i], wrong);
        good = good && wrong == no_label;
    }
    if (search->count > 0)
        good = print_arrays_found(search, force, out) && good;
    else
        good = false;
    for (unsigned i = 0; i < search->count; i++)
        found_free(search->disks[i]);
    free(search);
    return good;
}
