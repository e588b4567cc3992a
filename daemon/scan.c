#include "daemon/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/disk.h"
#include "daemon/remote_uri.h"
#include "daemon/worker.h"

struct look {
    struct sync_call call;
    struct blkdev *dev;
    struct label_op op;
    struct task closed;
};

static void look_closed(struct task *task)
{
    sync_finish(&container_of(task, struct look, closed)->call);
}

static void look_close(struct sync_call *call)
{
    struct look *look = container_of(call, struct look, call);
    look->closed.run = look_closed;
    blk_close(look->dev, &look->closed);
}

static void look_label_done(struct label_op *op)
{
    sync_finish(&container_of(op, struct look, op)->call);
}

static void look_label(struct sync_call *call)
{
    label_read(&container_of(call, struct look, call)->op);
}

/* Read the label through the reactor, then let the device go. */
static void read_label(struct scan_disk *disk, struct blkdev *dev)
{
    struct look *look = calloc(1, sizeof *look);
    struct sb_label *label = calloc(1, sizeof *label);
    ASSERT(look != NULL && label != NULL);
    look->dev = dev;
    look->op = (struct label_op){.dev = dev, .label = label, .done = look_label_done};
    sync_call(&look->call, dev->loop, look_label);
    if (look->op.status != BLK_OK)
        text_format(disk->error, sizeof disk->error, "%s: the superblock cannot be read: %s", disk->path,
                    blk_status_name(look->op.status));
    disk->verdict = look->op.verdict;
    text_format(disk->why, sizeof disk->why, "%s", look->op.why);
    if (disk->error[0] == '\0' && disk->verdict == SB_VALID)
        disk->label = label;
    else
        free(label);
    sync_call(&look->call, dev->loop, look_close);
    free(look);
}

static void look_at_open(struct scan_disk *disk, struct blkdev *dev)
{
    disk->error[0] = '\0';
    disk->size = dev->info.size;
    disk->logical_block = dev->info.logical_block;
    disk->rotational = dev->info.rotational;
    disk_identity(dev, disk->identity, sizeof disk->identity);
}

static void look_at_remote(struct scan_disk *disk, struct reactor *reactor)
{
    struct disk_options options = {.exclusive = false};
    struct blkdev *dev = disk_open(reactor, disk->path, &options, disk->error, sizeof disk->error);
    if (dev == NULL)
        return;
    look_at_open(disk, dev);
    disk->read_only = dev->info.read_only;
    read_label(disk, dev);
}

static void look_at(struct scan_disk *disk, struct reactor *reactor)
{
    struct stat st;
    if (stat(disk->path, &st) < 0) {
        text_format(disk->error, sizeof disk->error, "%s: %s", disk->path, strerror(errno));
        return;
    }
    disk->device = S_ISBLK(st.st_mode) ? 0 : (uint64_t)st.st_dev;
    disk->inode = S_ISBLK(st.st_mode) ? (uint64_t)st.st_rdev : (uint64_t)st.st_ino;
    disk->read_only = access(disk->path, W_OK) < 0;
    struct disk_options options = {.read_only = true};
    struct blkdev *dev = disk_open(reactor, disk->path, &options, disk->error, sizeof disk->error);
    if (dev == NULL)
        return;
    look_at_open(disk, dev);
    read_label(disk, dev);
}

static bool is_same_remote(const struct scan_disk *a, const struct scan_disk *b)
{
    return a->inode == 0 && b->inode == 0 && a->identity[0] != '\0' && strcmp(a->identity, b->identity) == 0 &&
           remote_is_uri(a->path) && remote_is_uri(b->path);
}

static int find_same(const struct scan *scan, const struct scan_disk *disk)
{
    for (unsigned i = 0; i < scan->count; i++) {
        const struct scan_disk *other = &scan->disks[i];
        bool same_device = disk->inode != 0 && other->inode == disk->inode && other->device == disk->device;
        if (same_device || is_same_remote(other, disk) || strcmp(other->path, disk->path) == 0)
            return (int)i;
    }
    return -1;
}

/* Once for each name. */
static void look_at_named(struct scan *scan, struct scan_disk *disk, struct reactor *reactor)
{
    if (!remote_is_uri(disk->path)) {
        look_at(disk, reactor);
        return;
    }
    for (unsigned i = 0; i < scan->remotes_count; i++)
        if (strcmp(scan->remotes[i].path, disk->path) == 0) {
            unsigned line = disk->line;
            *disk = scan->remotes[i];
            disk->line = line;
            scan->remotes[i].label = NULL; /* who names it again finds this one */
            return;
        }
    if (find_same(scan, disk) < 0)
        look_at_remote(disk, reactor);
}

unsigned scan_add(struct scan *scan, struct reactor *reactor, const char *path, unsigned line)
{
    if (scan->count == scan->capacity) {
        scan->capacity = scan->capacity > 0 ? scan->capacity * 2 : 16;
        scan->disks = realloc(scan->disks, scan->capacity * sizeof *scan->disks);
        ASSERT(scan->disks != NULL);
    }
    struct scan_disk *disk = &scan->disks[scan->count];
    *disk = (struct scan_disk){.line = line, .verdict = SB_NONE};
    text_format(disk->path, sizeof disk->path, "%s", path);
    look_at_named(scan, disk, reactor);
    int same = find_same(scan, disk);
    if (same >= 0) {
        free(disk->label);
        return (unsigned)same;
    }
    return scan->count++;
}

/* --- a config --- */

static void scan_pattern(struct scan *scan, struct reactor *reactor, const struct config_text *pattern)
{
    glob_t found;
    if (remote_is_uri(pattern->text)) {
        scan_add(scan, reactor, pattern->text, pattern->line);
        return;
    }
    if (glob(pattern->text, 0, NULL, &found) != 0) {
        log_info("no disk matches %s", pattern->text);
        return;
    }
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (superblock_text_ok(found.gl_pathv[i], strlen(found.gl_pathv[i]) + 1))
            scan_add(scan, reactor, found.gl_pathv[i], 0);
        else
            log_warn("a disk that %s leads to is left out: its name is not printable UTF-8", pattern->text);
    globfree(&found);
}

static void scan_paths(struct scan *scan, struct reactor *reactor, const struct config_strings *paths)
{
    for (unsigned i = 0; i < paths->count; i++)
        scan_add(scan, reactor, paths->items[i].text, paths->items[i].line);
}

/* All lists of disks of a config, one after the other; NULL: that was the last. */
static const struct config_strings *disks_of(const struct config *config, unsigned index)
{
    const struct config_array *array =
        index / 3 < config->arrays.count ? config_item(&config->arrays, struct config_array, index / 3) : NULL;
    if (array != NULL)
        return index % 3 == 0 ? &array->disks : index % 3 == 1 ? &array->journal : &array->spares;
    index -= 3 * config->arrays.count;
    return index == 0 ? &config->spares : index == 1 ? &config->disks : NULL;
}

static void note_remote(struct scan *scan, const char *path)
{
    for (unsigned i = 0; i < scan->remotes_count; i++)
        if (strcmp(scan->remotes[i].path, path) == 0)
            return;
    scan->remotes = realloc(scan->remotes, (scan->remotes_count + 1) * sizeof *scan->remotes);
    ASSERT(scan->remotes != NULL);
    struct scan_disk *disk = &scan->remotes[scan->remotes_count++];
    *disk = (struct scan_disk){.verdict = SB_NONE};
    text_format(disk->path, sizeof disk->path, "%s", path);
}

struct remote_look {
    pthread_t thread;
    bool started;
    struct scan_disk *disk;
    struct reactor *reactor;
};

static void *look_thread(void *data)
{
    struct remote_look *look = data;
    look_at_remote(look->disk, look->reactor);
    return NULL;
}

static void look_at_remotes(struct scan *scan, struct reactor *reactor)
{
    struct remote_look *looks = calloc(scan->remotes_count + 1, sizeof *looks);
    ASSERT(looks != NULL);
    for (unsigned i = 0; i < scan->remotes_count; i++) {
        looks[i] = (struct remote_look){.disk = &scan->remotes[i], .reactor = reactor};
        looks[i].started = pthread_create(&looks[i].thread, NULL, look_thread, &looks[i]) == 0;
        if (!looks[i].started)
            look_thread(&looks[i]);
    }
    for (unsigned i = 0; i < scan->remotes_count; i++)
        if (looks[i].started)
            pthread_join(looks[i].thread, NULL);
    free(looks);
}

void scan_config(struct scan *scan, struct reactor *reactor, const struct config *config)
{
    const struct config_strings *list;
    for (unsigned l = 0; (list = disks_of(config, l)) != NULL; l++)
        for (unsigned i = 0; i < list->count; i++)
            if (remote_is_uri(list->items[i].text))
                note_remote(scan, list->items[i].text);
    look_at_remotes(scan, reactor);
    for (unsigned i = 0; i < config->arrays.count; i++)
        scan_paths(scan, reactor, &config_item(&config->arrays, struct config_array, i)->disks);
    for (unsigned i = 0; i < config->arrays.count; i++)
        scan_paths(scan, reactor, &config_item(&config->arrays, struct config_array, i)->journal);
    for (unsigned i = 0; i < config->arrays.count; i++)
        scan_paths(scan, reactor, &config_item(&config->arrays, struct config_array, i)->spares);
    scan_paths(scan, reactor, &config->spares);
    for (unsigned i = 0; i < config->disks.count; i++)
        scan_pattern(scan, reactor, &config->disks.items[i]);
}

void scan_free(struct scan *scan)
{
    for (unsigned i = 0; i < scan->count; i++)
        free(scan->disks[i].label);
    for (unsigned i = 0; i < scan->remotes_count; i++)
        free(scan->remotes[i].label);
    free(scan->remotes);
    free(scan->disks);
    *scan = (struct scan){0};
}
