/*
 * Spares: disks that wait for one to be lost, and then take its place at once.
 *
 * A spare is named by the config (`spares`, shared; an array's `spares`, its own), or was added by hand: then a label
 * on it says so (raid/spares.h), and it is known again after a restart if the config's `disks` lead to it. It is not
 * opened before it is taken, so that it can be unplugged at any time.
 *
 * Once a second the worker looks for slots whose loss is on disk: a cable's burst has settled by then, and what froze
 * an array is no loss. Slots that are merely absent get no spare: their disks may come back. What stands in the way is
 * logged once.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_internal.h"
#include "daemon/foreign.h"
#include "daemon/remote.h"
#include "daemon/remote_uri.h"
#include "raid/spares.h"

enum { SPARES_MAX = 64, NEEDS_MAX = 64, REMOTE_PAUSE_S = 30 };

/* --- the list --- */

/* A disk has several names: links, and those udev makes. */
static bool is_same_disk(const char *path, const char *other)
{
    struct stat a, b;
    char disk[SB_IDENTITY_SIZE], another[SB_IDENTITY_SIZE];
    if (remote_is_uri(path) || remote_is_uri(other)) {
        remote_uri_identity(path, disk, sizeof disk);
        remote_uri_identity(other, another, sizeof another);
        return strcmp(disk, another) == 0;
    }
    if (strcmp(path, other) == 0)
        return true;
    if (stat(path, &a) != 0 || stat(other, &b) != 0 || S_ISBLK(a.st_mode) != S_ISBLK(b.st_mode))
        return false;
    return S_ISBLK(a.st_mode) ? a.st_rdev == b.st_rdev : a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static struct live_spare *spare_find(struct appliance *a, const char *path)
{
    struct live_spare *spare;
    TAILQ_FOREACH(spare, &a->spares, link)
    if (is_same_disk(spare->path, path))
        return spare;
    return NULL;
}

static void spare_remember(struct appliance *a, const char *path, const char *array)
{
    struct live_spare *spare = spare_find(a, path);
    if (spare == NULL) {
        spare = calloc(1, sizeof *spare);
        ASSERT(spare != NULL);
        text_format(spare->path, sizeof spare->path, "%s", path);
        TAILQ_INSERT_TAIL(&a->spares, spare, link);
        log_notice("disk %s is a spare%s%s", path, *array != '\0' ? " of array " : "", array);
    }
    text_format(spare->array, sizeof spare->array, "%s", array);
    atomic_store(&a->spares_known, true);
}

static void spare_forget(struct appliance *a, struct live_spare *spare)
{
    TAILQ_REMOVE(&a->spares, spare, link);
    free(spare);
}

void live_spares_free(struct appliance *a)
{
    struct live_spare *spare;
    while ((spare = TAILQ_FIRST(&a->spares)) != NULL)
        spare_forget(a, spare);
}

/* Is the path a member of an array that runs, or becoming one? */
static bool is_member(struct appliance *a, const char *path)
{
    struct live_array *live;
    TAILQ_FOREACH(live, &a->arrays, link)
    {
        for (unsigned i = 0; i < live->slots; i++)
            if (live->disks[i].disk.dev != NULL && is_same_disk(live->disks[i].path, path))
                return true;
        if (live->newcomer.disk.dev != NULL && is_same_disk(live->newcomer.path, path))
            return true;
    }
    return false;
}

void live_spares_config(struct appliance *a, const struct config *config)
{
    for (unsigned i = 0; i < config->spares.count; i++)
        if (!is_member(a, config->spares.items[i].text))
            spare_remember(a, config->spares.items[i].text, "");
    for (unsigned i = 0; i < config->arrays.count; i++) {
        const struct config_array *array = config_item(&config->arrays, struct config_array, i);
        for (unsigned j = 0; j < array->spares.count; j++)
            if (!is_member(a, array->spares.items[j].text))
                spare_remember(a, array->spares.items[j].text, array->name.text);
    }
}

/* --- labels --- */

/*
 * O_EXCL keeps out who holds a block device, the lock who holds a file: as daemon/disk.c takes them. Of a disk of
 * another machine: a copy of its ends, stored when all is written.
 */
static int label_open(const char *path, bool write)
{
    struct stat st;
    if (remote_is_uri(path))
        return remote_window(path);
    int fd = open(path, (write ? O_RDWR | O_EXCL : O_RDONLY) | O_CLOEXEC);
    if (fd < 0 || !write || fstat(fd, &st) != 0 || S_ISBLK(st.st_mode) || flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    close(fd);
    errno = EBUSY;
    return -1;
}

static bool label_store(const char *path, int fd)
{
    return remote_is_uri(path) ? remote_window_store(path, fd) : fsync(fd) == 0;
}

static bool label_io(const char *path, uint8_t *bytes, bool write)
{
    int fd = label_open(path, write);
    bool good = fd >= 0;
    if (good && write)
        good = pwrite(fd, bytes, SPARE_LABEL_BYTES, SB_HEAD_0) == SPARE_LABEL_BYTES && label_store(path, fd);
    else if (good)
        good = pread(fd, bytes, SPARE_LABEL_BYTES, SB_HEAD_0) == SPARE_LABEL_BYTES;
    if (fd >= 0)
        close(fd);
    return good;
}

static bool label_of(const char *path, char array[SPARE_ARRAY_SIZE])
{
    uint8_t bytes[SPARE_LABEL_BYTES];
    return label_io(path, bytes, false) && spare_label_decode(bytes, array);
}

void live_spares_found(struct appliance *a, const struct scan *scan)
{
    char array[SPARE_ARRAY_SIZE];
    for (unsigned i = 0; i < scan->count; i++) {
        const struct scan_disk *disk = &scan->disks[i];
        if (disk->error[0] == '\0' && disk->verdict == SB_NONE && label_of(disk->path, array))
            spare_remember(a, disk->path, array);
    }
}

/* --- what is on it, and is it large enough? --- */

/* False, and a sentence: it must not be overwritten. `out` (may be NULL) is what spares_pick() wants to know. */
static bool look_at(struct appliance *a, const char *path, bool force, struct spare *out, char *why, size_t why_len)
{
    struct scan scan = {0};
    char what[256];
    scan_add(&scan, a->reactors[0], path, 0);
    const struct scan_disk *disk = &scan.disks[0];
    bool good = false;
    if (disk->error[0] != '\0')
        text_format(why, why_len, "%s", disk->error);
    else if (disk->read_only)
        text_format(why, why_len, "disk %s is read-only", path);
    else if (disk->label != NULL && !force)
        text_format(why, why_len, "disk %s is or was a member of array %s: not taken as a spare; --force overwrites it",
                    path, disk->label->array.name);
    else if (disk->label == NULL && !force && foreign_probe(path, what, sizeof what))
        text_format(why, why_len, "disk %s holds %s: not taken as a spare; --force overwrites it", path, what);
    else
        good = true;
    if (out != NULL)
        *out = (struct spare){.size = disk->size, .logical_block = disk->logical_block, .rotational = disk->rotational};
    scan_free(&scan);
    return good;
}

static bool erase_page(int fd, uint64_t off)
{
    static const uint8_t zeroes[PAGE_BYTES];
    return pwrite(fd, zeroes, sizeof zeroes, (off_t)off) == (ssize_t)sizeof zeroes;
}

/* The headers of all copies of a label, by the size of the disk and by that which the label may name. */
static bool erase_labels(int fd, const struct scan_disk *disk)
{
    const struct sb_label *label = disk->label;
    const uint64_t areas[] = {0, superblock_tail(disk->size),
                              label != NULL ? superblock_tail(label->array.members[label->slot].size) : 0};
    bool good = true;
    for (unsigned i = 0; i < ARRAY_LENGTH(areas); i++)
        if (areas[i] + SB_TAIL_BYTES <= disk->size)
            good &= erase_page(fd, areas[i] + SB_HEAD_0) && erase_page(fd, areas[i] + SB_HEAD_1);
    return good;
}

/* So that it is blank when it is needed. What was there is told in `what`; empty: nothing. */
static bool erase(struct appliance *a, const char *path, char *what, size_t what_len)
{
    struct scan scan = {0};
    scan_add(&scan, a->reactors[0], path, 0);
    const struct scan_disk *disk = &scan.disks[0];
    bool good = true;
    what[0] = '\0';
    if (disk->label != NULL)
        text_format(what, what_len, "a member of array %s", disk->label->array.name);
    else if (!foreign_probe(path, what, what_len))
        what[0] = '\0';
    if (what[0] != '\0' || disk->verdict != SB_NONE) {
        int fd = label_open(path, true);
        log_warn("disk %s held %s: erased by force", path, what[0] != '\0' ? what : "a label that is damaged");
        good = fd >= 0 && foreign_erase(fd) && erase_labels(fd, disk) && label_store(path, fd);
        if (fd >= 0)
            close(fd);
    }
    scan_free(&scan);
    return good;
}

/* --- taking --- */

struct need_call {
    struct sync_call call;
    struct live_array *live;
    struct spare_need *needs;
    unsigned count;
};

static void run_needs(struct sync_call *call)
{
    struct need_call *c = container_of(call, struct need_call, call);
    const struct sb_array *description = array_description(c->live->array);
    for (unsigned slot = 0; slot < description->members_count && c->count < NEEDS_MAX; slot++) {
        struct array_slot_need need;
        if (!array_slot_need(c->live->array, slot, &need))
            continue;
        c->needs[c->count++] = (struct spare_need){.array = c->live->name,
                                                   .slot = slot,
                                                   .bytes = need.bytes,
                                                   .logical_block = need.logical_block,
                                                   .rotational = need.rotational,
                                                   .tolerance = need.tolerance};
    }
    sync_finish(call);
}

static unsigned collect_needs(struct appliance *a, struct spare_need *needs)
{
    struct need_call c = {.needs = needs};
    TAILQ_FOREACH(c.live, &a->arrays, link)
    if (c.live->array != NULL)
        sync_call(&c.call, reactor_loop(c.live->home), run_needs);
    return c.count;
}

/* A disk of another machine that was not fit lately: asking it each second might hold up all else. */
static bool is_let_alone(struct live_spare *spare)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!remote_is_uri(spare->path))
        return false;
    if (spare->said[0] != '\0' && now.tv_sec - spare->asked_s < REMOTE_PAUSE_S)
        return true;
    spare->asked_s = now.tv_sec;
    return false;
}

/* Those that can be had now, in the order of the list. */
static unsigned collect_spares(struct appliance *a, struct spare *out, struct live_spare **of)
{
    unsigned count = 0;
    struct live_spare *spare;
    char why[512];
    TAILQ_FOREACH(spare, &a->spares, link)
    {
        if (count == SPARES_MAX)
            break;
        if (is_let_alone(spare))
            continue;
        bool good = !is_member(a, spare->path) && look_at(a, spare->path, false, &out[count], why, sizeof why);
        if (!good && !is_member(a, spare->path) && strcmp(spare->said, why) != 0) {
            log_error("%s", why);
            text_format(spare->said, sizeof spare->said, "%s", why);
        }
        out[count].name = spare->path;
        out[count].array = spare->array;
        of[count] = spare;
        count += good;
    }
    return count;
}

static void say_once(struct live_array *live, const char *why)
{
    if (strcmp(live->spare_said, why) != 0)
        log_error("%s", why);
    text_format(live->spare_said, sizeof live->spare_said, "%s", why);
}

/* False: it could not be taken, and that was said. */
static bool take(struct appliance *a, const struct spare_need *need, struct live_spare *spare)
{
    char why[512];
    struct live_array *live = live_array_find(a, need->array);
    if (!live_array_online(a, live, need->slot, spare->path, why, sizeof why)) {
        say_once(live, why);
        return false;
    }
    log_notice("array %s: spare %s takes slot %u", need->array, spare->path, need->slot);
    live->spare_said[0] = '\0';
    spare_forget(a, spare);
    return true;
}

void appliance_spares_look(struct appliance *a)
{
    live_replacements_look(a);
    live_held_look(a);
    live_remotes_look(a);
    struct spare_need needs[NEEDS_MAX];
    struct spare spares[SPARES_MAX];
    struct live_spare *of[SPARES_MAX];
    unsigned needs_count = TAILQ_EMPTY(&a->spares) ? 0 : collect_needs(a, needs);
    unsigned spares_count = needs_count > 0 ? collect_spares(a, spares, of) : 0;
    while (needs_count > 0) {
        char why[512];
        unsigned first = spares_most_urgent(needs, needs_count);
        int pick = spares_pick(spares, spares_count, &needs[first], why, sizeof why);
        if (pick < 0)
            say_once(live_array_find(a, needs[first].array), why);
        else
            spares[pick].taken = take(a, &needs[first], of[pick]);
        needs[first] = needs[--needs_count];
    }
}

bool appliance_has_spares(const struct appliance *a)
{
    return atomic_load(&a->spares_known) || atomic_load(&a->replacing) || atomic_load(&a->holding) ||
           atomic_load(&a->remotes_known);
}

/* --- by hand --- */

const char *appliance_spare_add(struct appliance *a, const char *path, const char *array, bool force, char *erased,
                                size_t erased_len)
{
    uint8_t bytes[SPARE_LABEL_BYTES];
    char wrong[160];
    erased[0] = '\0';
    if (is_member(a, path))
        text_format(a->message, sizeof a->message, "disk %s is in use by an array", path);
    else if (*array != '\0' && live_array_find(a, array) == NULL)
        text_format(a->message, sizeof a->message, "there is no array %s", array);
    else if (remote_is_uri(path) && !remote_uri_check(path, wrong, sizeof wrong))
        text_format(a->message, sizeof a->message, "\"%s\" %s", path, wrong);
    else if (!look_at(a, path, force, NULL, a->message, sizeof a->message))
        return a->message;
    else if (!live_disk_found_again(a, path))
        return a->message;
    else if (force && !erase(a, path, erased, erased_len))
        text_format(a->message, sizeof a->message, "disk %s holds what cannot be erased: %s", path, strerror(errno));
    else if (force && !look_at(a, path, false, NULL, a->message, sizeof a->message))
        return a->message;
    else if (!spare_label_encode(bytes, array) || !label_io(path, bytes, true))
        text_format(a->message, sizeof a->message, "disk %s cannot be written: %s", path, strerror(errno));
    else {
        spare_remember(a, path, array);
        return NULL;
    }
    return a->message;
}

bool live_spare_remove(struct appliance *a, const char *path)
{
    struct live_spare *spare = spare_find(a, path);
    uint8_t bytes[SPARE_LABEL_BYTES] = {0};
    char array[SPARE_ARRAY_SIZE];
    if (spare == NULL || is_member(a, spare->path))
        return false;
    if (label_of(path, array) && !label_io(path, bytes, true))
        log_warn("disk %s: its label as a spare cannot be erased: %s", path, strerror(errno));
    log_notice("disk %s is a spare no more", path);
    spare_forget(a, spare);
    return true;
}

json_t *live_spares_json(struct appliance *a)
{
    json_t *out = json_array();
    struct live_spare *spare;
    TAILQ_FOREACH(spare, &a->spares, link)
    if (!is_member(a,
                   spare->path)) /* disk replace may have put it into a slot: it is free again if that is called off */
        json_array_append_new(out, json_pack("{s:s, s:s, s:o}", "path", spare->path, "array", spare->array, "trouble",
                                             sentence_json(spare->said)));
    return out;
}
