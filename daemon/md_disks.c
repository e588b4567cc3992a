#include "daemon/md_disks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"

/* Bytes of the disk; NULL, with errno: they cannot be read. The caller frees them. */
static uint8_t *read_bytes(int fd, uint64_t at, uint64_t len)
{
    uint8_t *bytes = malloc(len > 0 ? len : 1);
    ASSERT(bytes != NULL);
    for (uint64_t done = 0; done < len;) {
        ssize_t n = pread(fd, bytes + done, len - done, (off_t)(at + done));
        if (n > 0) {
            done += (uint64_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        errno = n == 0 ? ENODATA : errno;
        free(bytes);
        return NULL;
    }
    return bytes;
}

/* NULL, with *suspect, or what is wrong with the bitmap. */
static const char *look_at_bitmap(int fd, const struct md_superblock *sb, uint64_t *suspect, char *why, size_t why_len)
{
    struct md_bitmap bitmap;
    uint8_t *header = read_bytes(fd, sb->bitmap_start, MD_BITMAP_HEADER), *bytes = NULL;
    const char *wrong = header != NULL ? md_bitmap_decode(header, sb, &bitmap, why, why_len) : why;
    if (header != NULL && wrong == NULL)
        bytes = read_bytes(fd, sb->bitmap_start, bitmap.bytes);
    if (bytes != NULL)
        *suspect = md_bitmap_count(&bitmap, bytes);
    else if (header == NULL || wrong == NULL)
        text_format(why, why_len, "the write-intent bitmap cannot be read: %s", strerror(errno));
    free(header);
    wrong = bytes == NULL ? why : NULL;
    free(bytes);
    return wrong;
}

/* False, and why: there is no superblock that can be believed. */
static bool look_at(const char *path, struct md_disk *disk, struct md_superblock *sb, char *trouble, char *why,
                    size_t why_len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;
    uint8_t *page = size >= 0 ? read_bytes(fd, MD_SUPER_AT, MD_SUPER_BYTES) : NULL;
    bool good = page != NULL && md_superblock_decode(page, sb, why, why_len) == MD_VALID;
    if (page == NULL)
        text_format(why, why_len, "%s", errno == ENODATA ? "too small to hold an md superblock" : strerror(errno));
    *disk = (struct md_disk){.name = path, .sb = sb, .bytes = size > 0 ? (uint64_t)size : 0};
    if (good && sb->bitmap_start != 0)
        disk->trouble = look_at_bitmap(fd, sb, &disk->suspect, trouble, 256);
    free(page);
    if (fd >= 0)
        close(fd);
    return good;
}

/* Of the disk in a slot, into the list of all; false: the set is not usable for it. */
static bool look_at_bad_blocks(struct md_disks *out, unsigned slot)
{
    const struct md_disk *disk = &out->disks[out->set.disk_of_slot[slot]];
    const struct md_superblock *sb = disk->sb;
    char why[200];
    if (sb->bad_bytes == 0)
        return true;
    int fd = open(disk->name, O_RDONLY | O_CLOEXEC);
    uint8_t *bytes = fd >= 0 && sb->bad_bytes <= MD_BAD_BYTES_MAX ? read_bytes(fd, sb->bad_start, sb->bad_bytes) : NULL;
    const char *wrong = bytes != NULL ? md_bad_blocks_decode(bytes, sb, slot, &out->bad, why, sizeof why)
                                      : "the bad block log cannot be read, or is too long";
    free(bytes);
    if (fd >= 0)
        close(fd);
    if (wrong != NULL)
        text_format(out->set.reason, sizeof out->set.reason, "disk %s: %s", disk->name, wrong);
    return wrong == NULL;
}

struct md_disks *md_disks_read(const char *const *paths, unsigned count)
{
    struct md_disks *out = calloc(1, sizeof *out);
    ASSERT(out != NULL && count <= MD_DISKS_MAX);
    out->given = count;
    for (unsigned i = 0; i < count; i++) {
        unsigned n = out->count;
        bool good =
            look_at(paths[i], &out->disks[n], &out->supers[n], out->trouble[n], out->error[i], sizeof out->error[i]);
        out->of[i] = good ? (int)n : -1;
        out->count += good;
    }
    if (out->count == 0)
        text_format(out->set.reason, sizeof out->set.reason, "no disk has an md superblock of version 1.2");
    else
        md_decide(out->disks, out->count, &out->set);
    for (unsigned slot = 0; out->set.usable && slot < out->set.sb->disks; slot++)
        if (out->set.disk_of_slot[slot] >= 0)
            out->set.usable = look_at_bad_blocks(out, slot);
    return out;
}
