/* See daemon/secrets.h. */
#include "daemon/secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"

void secret_wipe(struct secret *secret)
{
    chap_wipe(secret, sizeof *secret);
}

/* The descriptor is looked at, not the name: what is read is what was checked. */
static bool is_kept_well(int fd, const char *path, char *why, size_t why_len)
{
    struct stat status;
    unsigned mode;
    if (fstat(fd, &status) != 0) {
        text_format(why, why_len, "%s cannot be read: %s", path, strerror(errno));
        return false;
    }
    mode = status.st_mode & 07777;
    if (!S_ISREG(status.st_mode))
        text_format(why, why_len, "%s is no regular file", path);
    else if (status.st_uid != 0 && status.st_uid != geteuid())
        text_format(why, why_len, "%s belongs to user %u; it must belong to root or to the user corbeld runs as", path,
                    (unsigned)status.st_uid);
    else if (mode & 077)
        text_format(why, why_len, "%s has mode %04o: others than its owner can get at it; chmod 0600", path, mode);
    else
        return true;
    return false;
}

int secret_open(const char *path, char *why, size_t why_len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        text_format(why, why_len, "%s cannot be read: %s", path, strerror(errno));
    } else if (!is_kept_well(fd, path, why, why_len)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* One line, with its end or without. */
static bool take_line(const char *bytes, size_t len, bool short_allowed, struct secret *secret, const char **wrong)
{
    len -= len > 0 && bytes[len - 1] == '\n';
    *wrong = NULL;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)bytes[i] < ' ' || (unsigned char)bytes[i] >= 0x7f)
            *wrong = "must be one line of printable ASCII";
    if (len > CHAP_SECRET_MAX)
        *wrong = "holds a secret of more than 255 bytes";
    else if (len == 0)
        *wrong = "is empty";
    else if (len < CHAP_SECRET_MIN && !short_allowed)
        *wrong = "holds a secret of fewer than 12 bytes; see short_secrets in corbel.conf(5)";
    if (*wrong == NULL) {
        memcpy(secret->text, bytes, len);
        secret->text[len] = '\0';
    }
    return *wrong == NULL;
}

bool secret_read(const char *path, bool short_allowed, struct secret *secret, char *why, size_t why_len)
{
    char bytes[CHAP_SECRET_MAX + 3];
    const char *wrong = NULL;
    int fd = secret_open(path, why, why_len);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, bytes, sizeof bytes);
    close(fd);
    if (got < 0)
        text_format(why, why_len, "%s cannot be read: %s", path, strerror(errno));
    else if (!take_line(bytes, (size_t)got, short_allowed, secret, &wrong))
        text_format(why, why_len, "%s %s", path, wrong);
    chap_wipe(bytes, sizeof bytes);
    return got >= 0 && wrong == NULL;
}
