/* See daemon/remote_uri.h. */
#include "daemon/remote_uri.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "raid/superblock.h"

enum { LUN_MAX = 255 };

/* A piece of text. */
struct part {
    const char *at;
    size_t len;
};

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool part_take(struct part part, char *out)
{
    if (part.len > REMOTE_TEXT_MAX)
        return false;
    memcpy(out, part.at, part.len);
    out[part.len] = '\0';
    return true;
}

bool remote_is_uri(const char *text)
{
    const char *p = text;
    if (!isalpha((unsigned char)*p))
        return false;
    while (isalnum((unsigned char)*p) || *p == '+' || *p == '-' || *p == '.')
        p++;
    return begins(p, "://");
}

bool remote_uri_is_iscsi(const char *text)
{
    return begins(text, "iscsi://");
}

/* Of "a=b&c=d" behind the question mark, the value of a name; at is NULL: it is not there. */
static struct part parameter(const char *text, const char *name)
{
    const char *p = strchr(text, '?');
    size_t name_len = strlen(name);
    while (p != NULL) {
        p++;
        if (strncmp(p, name, name_len) == 0 && p[name_len] == '=')
            return (struct part){p + name_len + 1, strcspn(p + name_len + 1, "&")};
        p = strchr(p, '&');
    }
    return (struct part){NULL, 0};
}

void remote_uri_identity(const char *text, char *out, size_t len)
{
    struct part socket = parameter(text, "socket");
    int until = (int)strcspn(text, "?");
    if (socket.at != NULL)
        text_format(out, len, "%.*s?socket=%.*s", until, text, (int)socket.len, socket.at);
    else
        text_format(out, len, "%.*s", until, text);
}

/* --- NBD --- */

static bool nbd_check(const char *text, bool local, char *why, size_t why_len)
{
    const char *authority = strstr(text, "://") + 3;
    if (!local && strcspn(authority, "/?") == 0)
        text_format(why, why_len, "names no host");
    else if (local && parameter(text, "socket").len == 0)
        text_format(why, why_len, "names no socket: nbd+unix:///EXPORT?socket=PATH");
    else
        return true;
    return false;
}

/* --- iSCSI --- */

static bool user_parse(struct part info, struct remote_iscsi_uri *out, char *why, size_t why_len)
{
    if (memchr(info.at, '%', info.len) != NULL || memchr(info.at, ':', info.len) != NULL) {
        text_format(why, why_len, "holds a secret, which would stand in logs: put it in a file, and ?secret_file=FILE");
        return false;
    }
    return part_take(info, out->user);
}

/* "USER@HOST:PORT" */
static bool authority_parse(struct part authority, struct remote_iscsi_uri *out, char *why, size_t why_len)
{
    const char *at = memchr(authority.at, '@', authority.len);
    if (at != NULL) {
        if (!user_parse((struct part){authority.at, (size_t)(at - authority.at)}, out, why, why_len))
            return false;
        authority = (struct part){at + 1, authority.len - (size_t)(at + 1 - authority.at)};
    }
    if (authority.len == 0 || *authority.at == ':' || !part_take(authority, out->portal)) {
        text_format(why, why_len, "names no host");
        return false;
    }
    return true;
}

/* "IQN/LUN" */
static bool unit_parse(struct part unit, struct remote_iscsi_uri *out, char *why, size_t why_len)
{
    const char *slash = memchr(unit.at, '/', unit.len);
    size_t target_len = slash != NULL ? (size_t)(slash - unit.at) : 0;
    char lun[8] = "";
    if (slash != NULL && unit.len - target_len - 1 < sizeof lun)
        text_format(lun, sizeof lun, "%.*s", (int)(unit.len - target_len - 1), slash + 1);
    char *end = lun;
    unsigned long number = isdigit((unsigned char)*lun) ? strtoul(lun, &end, 10) : 0;
    bool good = target_len > 0 && end != lun && *end == '\0' && number <= LUN_MAX &&
                part_take((struct part){unit.at, target_len}, out->target);
    if (!good)
        text_format(why, why_len, "must be iscsi://[USER@]HOST[:PORT]/IQN/LUN, with a LUN of 0 to %d", LUN_MAX);
    out->lun = (unsigned)number;
    return good;
}

static bool parameters_parse(const char *text, struct remote_iscsi_uri *out, char *why, size_t why_len)
{
    const struct {
        const char *name;
        char *to;
    } known[] = {{"secret_file", out->secret_file},
                 {"target_user", out->target_user},
                 {"target_secret_file", out->target_secret_file},
                 {"initiator", out->initiator}};
    for (const char *p = strchr(text, '?'); p != NULL; p = strchr(p, '&')) {
        size_t i = 0, len = strcspn(++p, "=&");
        while (i < ARRAY_LENGTH(known) && (strlen(known[i].name) != len || strncmp(p, known[i].name, len) != 0))
            i++;
        if (i == ARRAY_LENGTH(known) || p[len] != '=' || !part_take(parameter(text, known[i].name), known[i].to)) {
            text_format(why, why_len, "has a parameter \"%.*s\" that is not known, or has no value", (int)len, p);
            return false;
        }
    }
    return true;
}

bool remote_iscsi_uri_parse(const char *text, struct remote_iscsi_uri *out, char *why, size_t why_len)
{
    *out = (struct remote_iscsi_uri){.lun = 0};
    const char *authority = text + strlen("iscsi://");
    size_t len = strcspn(authority, "/?");
    const char *unit = authority + len + (authority[len] == '/');
    if (!authority_parse((struct part){authority, len}, out, why, why_len) ||
        !unit_parse((struct part){unit, strcspn(unit, "?")}, out, why, why_len) ||
        !parameters_parse(text, out, why, why_len))
        return false;
    if ((out->user[0] != '\0') != (out->secret_file[0] != '\0')) {
        text_format(why, why_len, "needs both a user (USER@HOST) and ?secret_file=FILE, or neither");
        return false;
    }
    if ((out->target_user[0] != '\0') != (out->target_secret_file[0] != '\0') ||
        (out->target_user[0] != '\0' && out->user[0] == '\0')) {
        text_format(why, why_len, "needs both target_user and target_secret_file, and a user, or neither");
        return false;
    }
    return true;
}

/* --- all --- */

static bool is_plain(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

bool remote_uri_check(const char *text, char *why, size_t why_len)
{
    static const struct {
        const char *scheme;
        bool local;
    } nbd[] = {{"nbd://", false}, {"nbds://", false}, {"nbd+unix://", true}, {"nbds+unix://", true}};
    char identity[1024];
    struct remote_iscsi_uri iscsi;
    remote_uri_identity(text, identity, sizeof identity);
    if (!is_plain(text)) {
        text_format(why, why_len, "holds a blank or another character that must be written as %%XX");
        return false;
    }
    if (strlen(identity) >= SB_IDENTITY_SIZE) {
        text_format(why, why_len, "is longer than %d bytes", SB_IDENTITY_SIZE - 1);
        return false;
    }
    if (remote_uri_is_iscsi(text))
        return remote_iscsi_uri_parse(text, &iscsi, why, why_len);
    for (unsigned i = 0; i < ARRAY_LENGTH(nbd); i++)
        if (begins(text, nbd[i].scheme))
            return nbd_check(text, nbd[i].local, why, why_len);
    text_format(why, why_len, "is neither nbd://, nbds://, nbd+unix://, nbds+unix:// nor iscsi://");
    return false;
}
