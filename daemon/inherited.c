/* See daemon/inherited.h. */
#include "daemon/inherited.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "core/log.h"

static int take(int fd, const char *name, char *why, size_t why_len)
{
    if (sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1) <= 0) {
        text_format(why, why_len, "what systemd passed as \"%s\" is no listening stream socket", name);
        return -1;
    }
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        text_format(why, why_len, "socket \"%s\" of systemd: %s", name, strerror(errno));
    return own;
}

int inherited_socket(const char *name, unsigned nth, char *why, size_t why_len)
{
    char **names = NULL;
    int count = sd_listen_fds_with_names(0, &names), found = -1;
    text_format(why, why_len, "systemd passed no socket named \"%s\"", name);
    for (int i = 0; i < count && found < 0; i++)
        if (strcmp(names[i], name) == 0 && nth-- == 0)
            found = SD_LISTEN_FDS_START + i;
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
    return found >= 0 ? take(found, name, why, why_len) : -1;
}

/* In the place of what was taken something stays: libsystemd wants all of them to be open. */
static int take_away(int fd)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0), nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (own >= 0 && nothing >= 0)
        dup3(nothing, fd, O_CLOEXEC);
    if (nothing >= 0)
        close(nothing);
    return own;
}

int inherited_take(const char *prefix, char *name, size_t name_len)
{
    char **names = NULL;
    int count = sd_listen_fds_with_names(0, &names), own = -1;
    for (int i = 0; i < count && own < 0; i++) {
        struct stat st;
        int fd = SD_LISTEN_FDS_START + i;
        if (strncmp(names[i], prefix, strlen(prefix)) != 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
            continue;
        text_format(name, name_len, "%s", names[i]);
        own = take_away(fd);
    }
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
    return own;
}
