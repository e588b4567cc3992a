#include "daemon/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/disk.h"
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
    disk->error[0] = '\0';
    disk->size = dev->info.size;
    disk->logical_block = dev->info.logical_block;
    disk->rotational = dev->info.rotational;
    disk_identity(dev, disk->identity, sizeof disk->identity);
    read_label(disk, dev);
}

static int find_same(const struct scan *scan, const struct scan_disk *disk)
{
    for (unsigned i = 0; i < scan->count; i++) {
        const struct scan_disk *other = &scan->disks[i];
        bool same_device = disk->inode != 0 && other->inode == disk->inode && other->device == disk->device;
        if (same_device || strcmp(other->path, disk->path) == 0)
            return (int)i;
    }
    return -1;
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
    look_at(disk, reactor);
    int same = find_same(scan, disk);
    if (same >= 0) {
        free(disk->label);
        return (unsigned)same;
    }
    return scan->count++;
}

static void scan_pattern(struct scan *scan, struct reactor *reactor, const struct config_text *pattern)
{
    glob_t found;
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

void scan_config(struct scan *scan, struct reactor *reactor, const struct config *config)
{
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
    free(scan->disks);
    *scan = (struct scan){0};
}
