#include "daemon/foreign.h"

#include <blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/remote.h"
#include "daemon/remote_uri.h"

static const char *probe_value(blkid_probe probe, const char *name)
{
    const char *value = NULL;
    return blkid_probe_lookup_value(probe, name, &value, NULL) == 0 ? value : NULL;
}

static void describe(blkid_probe probe, char *what, size_t what_len)
{
    const char *type = probe_value(probe, "TYPE"), *label = probe_value(probe, "LABEL");
    const char *table = probe_value(probe, "PTTYPE"), *usage = probe_value(probe, "USAGE");
    if (type == NULL)
        snprintf(what, what_len, "a partition table (%s)", table != NULL ? table : "unknown");
    else if (usage != NULL && strcmp(usage, "filesystem") == 0)
        snprintf(what, what_len, "a file system (%s%s%s)", type, label != NULL ? " " : "", label != NULL ? label : "");
    else
        snprintf(what, what_len, "data of another kind (%s%s%s)", type, label != NULL ? " " : "",
                 label != NULL ? label : "");
}

static int look_open(const char *path)
{
    return remote_is_uri(path) ? remote_window(path) : open(path, O_RDONLY | O_CLOEXEC);
}

static bool journal_label_on(int fd, struct journal_label *label)
{
    uint8_t bytes[JOURNAL_LABEL_BYTES];
    return pread(fd, bytes, sizeof bytes, JOURNAL_LABEL_AT) == sizeof bytes && journal_label_decode(bytes, label);
}

bool journal_label_of(const char *path, struct journal_label *label)
{
    int fd = look_open(path);
    bool good = fd >= 0 && journal_label_on(fd, label);
    if (fd >= 0)
        close(fd);
    return good;
}

static enum log_verdict log_label_on(int fd, struct log_label *label)
{
    uint8_t bytes[LOG_LABELS_BYTES];
    off_t size = lseek(fd, 0, SEEK_END);
    if (size < 0 || pread(fd, bytes, sizeof bytes, 0) != sizeof bytes)
        return LOG_NONE;
    return log_labels_look(bytes, (uint64_t)size, label);
}

enum log_verdict log_label_of(const char *path, struct log_label *label)
{
    int fd = look_open(path);
    enum log_verdict verdict = fd >= 0 ? log_label_on(fd, label) : LOG_NONE;
    if (fd >= 0)
        close(fd);
    return verdict;
}

/* What libblkid knows nothing of. */
static bool is_ours(int fd, char *what, size_t what_len)
{
    struct journal_label journal;
    struct log_label log;
    enum log_verdict verdict = log_label_on(fd, &log);
    bool is_journal = journal_label_on(fd, &journal);
    if (is_journal)
        snprintf(what, what_len, "the journal of array %s", journal.name);
    else if (verdict == LOG_CLEAN || verdict == LOG_IN_USE)
        snprintf(what, what_len, "the log of the cache over volume %s", log.identity.name);
    else if (verdict != LOG_NONE)
        snprintf(what, what_len, "the log of a cache");
    return is_journal || verdict != LOG_NONE;
}

static bool probe_fd(int fd, char *what, size_t what_len)
{
    blkid_probe probe = fd >= 0 ? blkid_new_probe() : NULL;
    if (probe == NULL || blkid_probe_set_device(probe, fd, 0, 0) != 0) {
        snprintf(what, what_len, "contents that cannot be examined: %s", strerror(errno));
        blkid_free_probe(probe);
        return true;
    }
    blkid_probe_enable_superblocks(probe, 1);
    blkid_probe_set_superblocks_flags(probe,
                                      BLKID_SUBLKS_TYPE | BLKID_SUBLKS_LABEL | BLKID_SUBLKS_USAGE | BLKID_SUBLKS_MAGIC);
    blkid_probe_enable_partitions(probe, 1);
    int found = blkid_do_safeprobe(probe); /* 0: something, 1: nothing, -2: several things, -1: error */
    if (found == 0)
        describe(probe, what, what_len);
    else if (found == -2)
        snprintf(what, what_len, "several kinds of data at once");
    else if (found < 0)
        snprintf(what, what_len, "contents that cannot be examined");
    blkid_free_probe(probe);
    return found != 1;
}

static bool probe_path(const char *path, bool ours_too, char *what, size_t what_len)
{
    int fd = look_open(path);
    bool found = probe_fd(fd, what, what_len) || (ours_too && is_ours(fd, what, what_len));
    if (fd >= 0)
        close(fd);
    return found;
}

bool foreign_probe(const char *path, char *what, size_t what_len)
{
    return probe_path(path, true, what, what_len);
}

bool foreign_probe_others(const char *path, char *what, size_t what_len)
{
    return probe_path(path, false, what, what_len);
}

bool foreign_erase(int fd)
{
    blkid_probe probe = blkid_new_probe();
    if (probe == NULL || blkid_probe_set_device(probe, fd, 0, 0) != 0) {
        blkid_free_probe(probe);
        return false;
    }
    blkid_probe_enable_superblocks(probe, 1);
    blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_MAGIC | BLKID_SUBLKS_BADCSUM);
    blkid_probe_enable_partitions(probe, 1);
    blkid_probe_set_partitions_flags(probe, BLKID_PARTS_MAGIC);
    int found;
    bool good = true;
    while (good && (found = blkid_do_probe(probe)) == 0) /* one after the other; what is erased is looked for again */
        good = blkid_do_wipe(probe, 0) == 0;
    blkid_free_probe(probe);
    return good && found == 1;
}
