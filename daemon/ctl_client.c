#include "daemon/ctl_client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int connect_to(const char *path, char *why, size_t why_len)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        snprintf(why, why_len, "%s is too long for a socket", path);
        return -1;
    }
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    snprintf(why, why_len, "corbeld does not answer at %s: %s%s", path, strerror(errno),
             errno == ENOENT || errno == ECONNREFUSED
                 ? "; is it running? --socket or CORBEL_SOCKET says where its daemon.control is, if not there"
                 : "");
    if (fd >= 0)
        close(fd);
    return -1;
}

static int write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, text, len, MSG_NOSIGNAL);
        if (n <= 0)
            return -1;
        text += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Everything until the peer closes, terminated; NULL on an error. */
static char *read_all(int fd)
{
    size_t len = 0, room = 64 * 1024;
    char *text = malloc(room + 1);
    while (text != NULL) {
        ssize_t n = read(fd, text + len, room - len);
        if (n < 0) {
            free(text);
            return NULL;
        }
        if (n == 0)
            break;
        len += (size_t)n;
        if (len == room) {
            room *= 2;
            char *more = realloc(text, room + 1);
            if (more == NULL)
                free(text);
            text = more;
        }
    }
    if (text != NULL)
        text[len] = '\0';
    return text;
}

static int send_request(int fd, const char *path, const json_t *body)
{
    char *content = body != NULL ? json_dumps(body, 0) : strdup("");
    char head[512];
    if (content == NULL)
        return -1;
    snprintf(head, sizeof head, "%s %s HTTP/1.0\r\nHost: corbel\r\nContent-Length: %zu\r\n\r\n",
             body != NULL ? "POST" : "GET", path, strlen(content));
    int result = write_all(fd, head, strlen(head));
    if (result == 0)
        result = write_all(fd, content, strlen(content));
    free(content);
    return result;
}

json_t *ctl_request(const char *socket_path, const char *path, const json_t *body, int *code, char *why, size_t why_len)
{
    int fd = connect_to(socket_path, why, why_len);
    if (fd < 0)
        return NULL;
    char *text = send_request(fd, path, body) == 0 ? read_all(fd) : NULL;
    close(fd);
    const char *content = text != NULL ? strstr(text, "\r\n\r\n") : NULL;
    json_t *answer = NULL;
    if (content != NULL && sscanf(text, "HTTP/%*d.%*d %d", code) == 1)
        answer = json_loads(content + 4, 0, NULL);
    free(text);
    if (answer == NULL)
        snprintf(why, why_len, "corbeld ended the conversation without an answer");
    return answer;
}
