/*
 * Opening a disk, and the way of a request: see daemon/disk.h.
 *
 *      submit --> (inline) disk_serve ------------------------------> blk_complete
 *         |
 *         +--> slot? --> ring (read, write, flush)  --> disk_finish --> blk_complete, next in line
 *                 |  \-> helper (the others)        -->
 *                 none: wait in line
 *
 * Slots belong to the disk, so that one that hangs does not hold up the others.
 */
#include "daemon/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/disk_internal.h"
#include "daemon/reactor.h"
#include "daemon/remote.h"
#include "daemon/remote_uri.h"
#include "daemon/sysfs.h"

enum { PATIENCE_STEP_MS = 10, LOOK_NS = 1000000 };

static const char *const engine_names[] = {
    [DISK_INLINE] = "inline", [DISK_URING] = "uring", [DISK_THREADS] = "threads"};

static struct disk *disk_of(struct blkdev *dev)
{
    return container_of(dev, struct disk, dev);
}

/* --- the way of a request --- */

static void complete(struct blk_req *req, struct disk_result result)
{
    if (result.status == BLK_MEDIA)
        blk_complete_media(req, result.bad_off);
    else
        blk_complete(req, result.status);
}

static void work_serve(struct helper_job *job)
{
    struct disk_op *op = container_of(job, struct disk_op, job);
    op->result = disk_serve(op->disk, op->req);
}

static void work_narrow(struct helper_job *job)
{
    struct disk_op *op = container_of(job, struct disk_op, job);
    op->result = disk_narrow(op->disk, op->req, op->progress.done_len);
}

static void job_done(struct task *task)
{
    struct disk_op *op = container_of(task, struct disk_op, job.done);
    disk_finish(op, op->result);
}

static void to_helper(struct disk_op *op, void (*work)(struct helper_job *))
{
    struct disk *disk = op->disk;
    op->job = (struct helper_job){.work = work, .done.run = job_done, .home = disk->dev.loop};
    helpers_submit(reactor_helpers(disk->reactor), &op->job);
}

void disk_narrow_in_helper(struct disk_op *op)
{
    to_helper(op, work_narrow);
}

static void start(struct disk *disk, struct disk_op *op, struct blk_req *req)
{
    op->req = req;
    op->progress = (struct disk_progress){0};
    if (disk->engine == DISK_URING && (blk_op_has_data(req->op) || req->op == BLK_FLUSH))
        disk_uring_start(op);
    else
        to_helper(op, work_serve);
}

void disk_finish(struct disk_op *op, struct disk_result result)
{
    struct disk *disk = op->disk;
    complete(op->req, result);
    struct blk_req *next = STAILQ_FIRST(&disk->waiting);
    if (next != NULL) {
        STAILQ_REMOVE_HEAD(&disk->waiting, link);
        start(disk, op, next);
    } else {
        op->req = NULL;
        SLIST_INSERT_HEAD(&disk->free, op, free_link);
    }
}

/*
 * A file that somebody has cut short would grow again by the next write behind its end, with a hole before it that
 * reads as zeroes. So its size is looked at, and what it has lost stays lost. Once a millisecond: this costs nothing.
 * Nobody is asked for it who is not in this machine: that might hang.
 */
static void look_at_size(struct disk *disk)
{
    struct statx sx;
    uint64_t now_ns = loop_now_ns(disk->dev.loop);
    if (disk->block_device || now_ns - disk->looked_ns < LOOK_NS)
        return;
    disk->looked_ns = now_ns;
    if (statx(disk->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE, &sx) != 0 || sx.stx_size >= disk->usable)
        return;
    disk->usable = round_down(sx.stx_size, disk->dev.info.logical_block);
    log_error("disk %s has shrunk to %llu bytes: what lay behind is lost", disk->path, (unsigned long long)sx.stx_size);
}

static bool is_cut_off(struct disk *disk, const struct blk_req *req)
{
    look_at_size(disk);
    return req->op != BLK_FLUSH && req->off + req->len > disk->usable;
}

static void disk_submit(struct blkdev *dev, struct blk_req *req)
{
    struct disk *disk = disk_of(dev);
    struct disk_op *op = SLIST_FIRST(&disk->free);
    if (is_cut_off(disk, req)) {
        complete(req, (struct disk_result){BLK_MEDIA, MAX(req->off, disk->usable)});
    } else if (disk->engine == DISK_INLINE) {
        complete(req, disk_serve(disk, req));
    } else if (op != NULL) {
        SLIST_REMOVE_HEAD(&disk->free, free_link);
        start(disk, op, req);
    } else {
        STAILQ_INSERT_TAIL(&disk->waiting, req, link);
    }
}

static void disk_free(struct disk *disk)
{
    close(disk->fd);
    free(disk->path);
    free(disk);
}

static void disk_close(struct blkdev *dev, struct task *closed)
{
    struct loop *loop = dev->loop;
    disk_free(disk_of(dev));
    loop_defer(loop, closed);
}

static const struct blkdev_ops file_ops = {.kind = "file", .submit = disk_submit, .close = disk_close};
static const struct blkdev_ops device_ops = {.kind = "disk", .submit = disk_submit, .close = disk_close};

/* --- opening --- */

/* A pipe would block in open(), a terminal might become ours: look before. */
static bool is_fit(const struct stat *st, char *why, size_t why_len)
{
    if (S_ISREG(st->st_mode) || S_ISBLK(st->st_mode))
        return true;
    text_format(why, why_len, "neither a regular file nor a block device");
    return false;
}

/* A process that was killed holds its disks until the kernel has ended its last request. False: that was long enough.
 */
static bool wait_a_little(const struct disk_options *options, unsigned *waited_ms)
{
    const struct timespec pause = {.tv_nsec = PATIENCE_STEP_MS * 1000 * 1000};
    if (*waited_ms >= options->patience_ms)
        return false;
    nanosleep(&pause, NULL);
    *waited_ms += PATIENCE_STEP_MS;
    return true;
}

static int open_path(const char *path, const struct disk_options *options, char *why, size_t why_len)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        text_format(why, why_len, "%s", strerror(errno));
        return -1;
    }
    if (!is_fit(&st, why, why_len))
        return -1;
    int fd, flags = O_CLOEXEC | O_NOCTTY | (options->read_only ? O_RDONLY : O_RDWR);
    unsigned waited_ms = 0;
    flags |= options->exclusive && S_ISBLK(st.st_mode) ? O_EXCL : 0;
    do
        fd = open(path, flags);
    while (fd < 0 && errno == EBUSY && wait_a_little(options, &waited_ms));
    if (fd < 0)
        text_format(why, why_len, "%s", errno == EBUSY ? "in use, by a mount or another program" : strerror(errno));
    return fd;
}

static bool lock_file(int fd, const struct disk_options *options, char *why, size_t why_len)
{
    struct stat st;
    unsigned waited_ms = 0;
    if (!options->exclusive || (fstat(fd, &st) == 0 && S_ISBLK(st.st_mode)))
        return true;
    do
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return true;
    while (errno == EWOULDBLOCK && wait_a_little(options, &waited_ms));
    text_format(why, why_len, "%s", errno == EWOULDBLOCK ? "in use, locked by another program" : strerror(errno));
    return false;
}

static bool choose_engine(struct disk *disk, const struct disk_options *options, bool memory, char *why, size_t why_len)
{
    bool ring = reactor_has_uring(disk->reactor) && !options->no_uring;
    disk->engine = memory ? DISK_INLINE : ring ? DISK_URING : DISK_THREADS;
    for (unsigned i = 0; options->engine != NULL && i < ARRAY_LENGTH(engine_names); i++)
        if (strcmp(options->engine, engine_names[i]) == 0)
            disk->engine = (enum disk_engine_kind)i;
    if (options->engine != NULL && strcmp(options->engine, engine_names[disk->engine]) != 0) {
        text_format(why, why_len, "there is no engine '%s'", options->engine);
        return false;
    }
    if (disk->engine == DISK_URING && !ring) {
        text_format(why, why_len, "io_uring is not available");
        return false;
    }
    if (disk->engine != DISK_INLINE && reactor_helpers(disk->reactor) == NULL) {
        text_format(why, why_len, "no helper threads could be started");
        return false;
    }
    return true;
}

/* Takes over fd, also when it fails. */
static struct disk *disk_create(struct reactor *reactor, int fd, const char *path, char *why, size_t why_len)
{
    struct disk *disk = calloc(1, sizeof *disk);
    char *copy = strdup(path);
    if (disk == NULL || copy == NULL) {
        text_format(why, why_len, "out of memory");
        free(disk);
        free(copy);
        close(fd);
        return NULL;
    }
    disk->fd = fd;
    disk->path = copy;
    disk->reactor = reactor;
    STAILQ_INIT(&disk->waiting);
    SLIST_INIT(&disk->free);
    for (unsigned i = DISK_DEPTH; i-- > 0;) {
        disk->ops[i].disk = disk;
        SLIST_INSERT_HEAD(&disk->free, &disk->ops[i], free_link);
    }
    return disk;
}

/* As disk_open(), with the bare reason. */
static struct disk *open_disk(struct reactor *reactor, const char *path, const struct disk_options *options, char *why,
                              size_t why_len)
{
    int fd = open_path(path, options, why, why_len);
    if (fd < 0)
        return NULL;
    struct disk *disk = disk_create(reactor, fd, path, why, why_len);
    if (disk == NULL)
        return NULL;
    struct disk_probe probe;
    if (!lock_file(fd, options, why, why_len) || disk_probe(fd, options->read_only, &probe, why, why_len) != 0 ||
        !choose_engine(disk, options, probe.memory, why, why_len)) {
        disk_free(disk);
        return NULL;
    }
    disk->block_device = probe.block_device;
    disk->may_block = probe.may_block;
    disk->usable = probe.info.size;
    blkdev_init(&disk->dev, probe.block_device ? &device_ops : &file_ops, reactor_loop(reactor), path, &probe.info);
    return disk;
}

struct blkdev *disk_open(struct reactor *reactor, const char *path, const struct disk_options *options, char *why,
                         size_t why_len)
{
    char reason[160];
    if (remote_is_uri(path))
        return remote_open(reactor, path, options->exclusive, why, why_len);
    struct disk *disk = open_disk(reactor, path, options, reason, sizeof reason);
    if (disk != NULL)
        return &disk->dev;
    text_format(why, why_len, "%s cannot be used as a disk: %s", path, reason);
    return NULL;
}

int disk_fd(struct blkdev *dev)
{
    return disk_of(dev)->fd;
}

const char *disk_engine(struct blkdev *dev)
{
    return remote_is(dev) ? dev->ops->kind : engine_names[disk_of(dev)->engine];
}

/* --- identity --- */

/* In the order of how well they name one disk: NVMe and virtio, SCSI, then world-wide names. */
static bool device_identity(dev_t dev, char *out, size_t len)
{
    static const char *const names[] = {"serial", "device/serial", "wwid", "device/wwid"};
    char text[128], partition[16];
    for (unsigned i = 0; i < ARRAY_LENGTH(names); i++) {
        if (!sysfs_read_disk(dev, names[i], text, sizeof text))
            continue;
        bool is_partition = sysfs_read(dev, "partition", partition, sizeof partition);
        text_format(out, len, "%s%s%s", text, is_partition ? "-part" : "", partition);
        return true;
    }
    return false;
}

void disk_identity(struct blkdev *dev, char *out, size_t len)
{
    if (remote_is(dev)) {
        remote_identity(dev, out, len);
        return;
    }
    const struct disk *disk = disk_of(dev);
    struct stat st;
    if (disk->block_device && fstat(disk->fd, &st) == 0 && device_identity(st.st_rdev, out, len))
        return;
    char *real = realpath(disk->path, NULL);
    text_format(out, len, "%s", real != NULL ? real : disk->path);
    free(real);
}
