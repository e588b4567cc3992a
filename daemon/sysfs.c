/* See daemon/sysfs.h. In sysfs a partition is a directory inside its disk's. */
#include "daemon/sysfs.h"

#include <ctype.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/log.h"

static void trim(char *text)
{
    size_t start = 0, end = strlen(text);
    while (end > 0 && isspace((unsigned char)text[end - 1]))
        end--;
    while (start < end && isspace((unsigned char)text[start]))
        start++;
    memmove(text, text + start, end - start);
    text[end - start] = '\0';
}

bool sysfs_read(dev_t dev, const char *name, char *out, size_t len)
{
    char path[160];
    text_format(path, sizeof path, "/sys/dev/block/%u:%u/%s", major(dev), minor(dev), name);
    out[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, out, len - 1);
    close(fd);
    out[n > 0 ? n : 0] = '\0';
    trim(out);
    return out[0] != '\0';
}

bool sysfs_read_disk(dev_t dev, const char *name, char *out, size_t len)
{
    char number[16], path[128];
    bool is_partition = sysfs_read(dev, "partition", number, sizeof number);
    text_format(path, sizeof path, is_partition ? "../%s" : "%s", name);
    return sysfs_read(dev, path, out, len);
}

bool sysfs_read_queue(dev_t dev, const char *name, char *out, size_t len)
{
    char path[64];
    text_format(path, sizeof path, "queue/%s", name);
    return sysfs_read_disk(dev, path, out, len);
}
