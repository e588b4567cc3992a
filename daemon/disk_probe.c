/*
 * What is behind a descriptor: size, block sizes, what it can do. See daemon/disk_internal.h.
 *
 * O_DIRECT is wanted wherever the bytes lie on a device, and believed only after a read: file systems accept the flag
 * and refuse the I/O. The logical block is the smallest unit at which it works, 512 or 4096.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/disk_internal.h"
#include "daemon/sysfs.h"

enum { LEAST_BLOCK = 512, MOST_BLOCK = PAGE_BYTES };

static void probe_file_system(int fd, struct disk_probe *p)
{
    struct statfs fs = {0};
    if (fstatfs(fd, &fs) != 0)
        return;
    p->memory = fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
    p->may_block = fs.f_type == FUSE_SUPER_MAGIC; /* when its queue is full: 12 requests */
}

/* What the file system says its O_DIRECT needs; 512 if it says nothing. */
static uint32_t stated_alignment(int fd)
{
    uint32_t unit = LEAST_BLOCK;
#ifdef STATX_DIOALIGN
    struct statx sx;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 && (sx.stx_mask & STATX_DIOALIGN))
        unit = MAX(unit, MAX(sx.stx_dio_mem_align, sx.stx_dio_offset_align));
#endif
    return unit;
}

/* Does a read of one unit at the second unit work, from memory aligned to no more than the unit? */
static bool can_read_direct(int fd, uint32_t unit, uint64_t size)
{
    char *memory = aligned_alloc(MOST_BLOCK, 2 * MOST_BLOCK);
    if (memory == NULL)
        return false;
    off_t at = size >= 2 * unit ? unit : 0;
    ssize_t n = pread(fd, memory + (unit < MOST_BLOCK ? unit : 0), unit, at);
    bool works = n >= 0 || errno == EIO; /* a bad block says nothing about alignment */
    free(memory);
    return works;
}

/* Turn O_DIRECT on. Returns the smallest block it takes, or 0 and leaves it off. */
static uint32_t set_direct(int fd, uint32_t least, uint64_t size)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) != 0)
        return 0;
    for (uint32_t unit = least; is_power_of_two(unit) && unit <= MOST_BLOCK; unit *= MOST_BLOCK / LEAST_BLOCK)
        if (can_read_direct(fd, unit, size))
            return unit;
    fcntl(fd, F_SETFL, flags);
    return 0;
}

static uint64_t queue_number(dev_t dev, const char *name)
{
    char text[32];
    return sysfs_read_queue(dev, name, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

/* Reaching behind the end of the file with KEEP_SIZE changes nothing, and tells whether holes can be made. */
static bool can_punch(int fd, uint64_t size)
{
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)round_up(size, MOST_BLOCK), MOST_BLOCK) ==
           0;
}

static void probe_file(int fd, const struct stat *st, struct disk_probe *p)
{
    uint64_t size = (uint64_t)st->st_size;
    probe_file_system(fd, p);
    uint32_t unit = p->memory ? 0 : set_direct(fd, stated_alignment(fd), size);
    p->info.logical_block = unit != 0 ? unit : LEAST_BLOCK;
    p->info.physical_block = MOST_BLOCK; /* what file systems and the page cache work with */
    p->info.size = round_down(size, p->info.logical_block);
    p->info.rotational = queue_number(st->st_dev, "rotational") != 0;
    p->info.discards = p->info.discard_zeroes = !p->info.read_only && can_punch(fd, size);
}

static int probe_block_device(int fd, const struct stat *st, struct disk_probe *p)
{
    uint64_t size;
    int logical, read_only = 0;
    unsigned physical = 0, optimal = 0;
    if (ioctl(fd, BLKGETSIZE64, &size) != 0 || ioctl(fd, BLKSSZGET, &logical) != 0)
        return -1;
    ioctl(fd, BLKPBSZGET, &physical);
    ioctl(fd, BLKIOOPT, &optimal);
    ioctl(fd, BLKROGET, &read_only);
    p->block_device = true;
    set_direct(fd, (uint32_t)logical, size);
    p->info.logical_block = (uint32_t)logical;
    p->info.physical_block = MAX(physical, (unsigned)logical);
    p->info.optimal_io = optimal;
    p->info.size = round_down(size, (uint64_t)logical);
    p->info.rotational = queue_number(st->st_rdev, "rotational") != 0;
    p->info.read_only |= read_only != 0;
    p->info.discards = !p->info.read_only && queue_number(st->st_rdev, "discard_max_bytes") != 0;
    return 0;
}

int disk_probe(int fd, bool read_only, struct disk_probe *p, char *why, size_t why_len)
{
    struct stat st;
    *p = (struct disk_probe){.info = {.read_only = read_only, .volatile_cache = true}};
    if (fstat(fd, &st) != 0 || (S_ISBLK(st.st_mode) && probe_block_device(fd, &st, p) != 0)) {
        text_format(why, why_len, "%s", strerror(errno));
        return -1;
    }
    if (S_ISREG(st.st_mode))
        probe_file(fd, &st, p);
    if (!is_power_of_two(p->info.logical_block) || p->info.logical_block < LEAST_BLOCK ||
        p->info.logical_block > MOST_BLOCK) {
        text_format(why, why_len, "blocks of %u bytes are not supported", p->info.logical_block);
        return -1;
    }
    if (p->info.size == 0) {
        text_format(why, why_len, "it is empty");
        return -1;
    }
    return 0;
}
