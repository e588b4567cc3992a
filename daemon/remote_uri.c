/* See daemon/remote_uri.h. */
#include "daemon/remote_uri.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "raid/superblock.h"

enum { LUN_MAX = 255, PORT_MAX = 65535 };

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
    if (part.len > 0)
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

/* --- what all have in common --- */

static bool is_plain(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

static bool port_check(struct part port)
{
    unsigned long number = 0;
    for (size_t i = 0; i < port.len; i++) {
        if (!isdigit((unsigned char)port.at[i]) || number > PORT_MAX)
            return false;
        number = number * 10 + (unsigned long)(port.at[i] - '0');
    }
    return number >= 1 && number <= PORT_MAX;
}

/* "2001:db8::1", "fe80::1%eth0" */
static bool is_ipv6(struct part host)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr address;
    const char *zone = memchr(host.at, '%', host.len);
    size_t len = zone != NULL ? (size_t)(zone - host.at) : host.len;
    if (len >= sizeof text)
        return false;
    text_format(text, sizeof text, "%.*s", (int)len, host.at);
    return inet_pton(AF_INET6, text, &address) == 1;
}

/* "HOST:PORT", "[ADDRESS]:PORT", with or without the port. */
static bool host_check(struct part host, char *why, size_t why_len)
{
    bool bracketed = host.len > 0 && *host.at == '[';
    const char *end = host.at + host.len, *close = bracketed ? memchr(host.at, ']', host.len) : NULL;
    const char *behind = bracketed ? (close != NULL ? close + 1 : end) : memchr(host.at, ':', host.len);
    if (host.len == 0 || behind == host.at)
        text_format(why, why_len, "names no host");
    else if (bracketed && (close == NULL || !is_ipv6((struct part){host.at + 1, (size_t)(close - host.at - 1)})))
        text_format(why, why_len, "names a host in brackets that is no IPv6 address");
    else if (!bracketed && is_ipv6(host))
        text_format(why, why_len, "must have its IPv6 address in brackets");
    else if (behind != NULL && behind != end &&
             (*behind != ':' || !port_check((struct part){behind + 1, (size_t)(end - behind - 1)})))
        text_format(why, why_len, "names a port that is not 1 to %d", PORT_MAX);
    else
        return true;
    return false;
}

/* "USER@REST": takes USER away. False: it holds a secret. */
static bool user_take(struct part *authority, struct part *user, const char *hint, char *why, size_t why_len)
{
    const char *at = memchr(authority->at, '@', authority->len);
    *user = (struct part){authority->at, at != NULL ? (size_t)(at - authority->at) : 0};
    if (at != NULL)
        *authority = (struct part){at + 1, authority->len - user->len - 1};
    if (memchr(user->at, '%', user->len) == NULL && memchr(user->at, ':', user->len) == NULL)
        return true;
    text_format(why, why_len, "holds a secret, which would stand in logs: put it in a file, and %s", hint);
    return false;
}

static const char *const *name_find(const char *const *names, const char *name, size_t len)
{
    while (*names != NULL && (strlen(*names) != len || strncmp(*names, name, len) != 0))
        names++;
    return *names != NULL ? names : NULL;
}

/* "?a=b&c=d": each name is one of `known`, is there once, and has a value. */
static bool parameters_check(const char *text, const char *const *known, char *why, size_t why_len)
{
    for (const char *p = strchr(text, '?'); p != NULL; p = strchr(p, '&')) {
        size_t len = strcspn(++p, "=&");
        const char *const *name = name_find(known, p, len);
        if (name == NULL)
            text_format(why, why_len, "has a parameter \"%.*s\" that is not known", (int)len, p);
        else if (strcspn(p, "&") <= len + 1)
            text_format(why, why_len, "has a parameter \"%s\" without a value", *name);
        else if (parameter(text, *name).at != p + len + 1)
            text_format(why, why_len, "has the parameter \"%s\" twice", *name);
        else
            continue;
        return false;
    }
    return true;
}

/* --- NBD --- */

struct nbd_scheme {
    const char *scheme;
    bool local, tls;
};

/* libnbd takes away what is written as %XX, and cuts at a '#'. */
static bool escapes_check(const char *text, char *why, size_t why_len)
{
    for (const char *p = strchr(text, '%'); p != NULL; p = strchr(p + 1, '%'))
        if (!isxdigit((unsigned char)p[1]) || !isxdigit((unsigned char)p[2])) {
            text_format(why, why_len, "holds a %% that must be written as %%25");
            return false;
        }
    if (strchr(text, '#') != NULL)
        text_format(why, why_len, "holds a # that must be written as %%23");
    return strchr(text, '#') == NULL;
}

static bool nbd_parameters_check(const char *text, const struct nbd_scheme *scheme, char *why, size_t why_len)
{
    static const char *const known[] = {"tls-certificates", "tls-psk-file", "socket", NULL};
    if (!parameters_check(text, known, why, why_len))
        return false;
    for (unsigned i = 0; known[i] != NULL; i++) {
        struct part path = parameter(text, known[i]);
        bool is_socket = strcmp(known[i], "socket") == 0;
        if (path.at == NULL)
            continue;
        if (is_socket ? !scheme->local : !scheme->tls)
            text_format(why, why_len, "has a parameter \"%s\", which is for %s only", known[i],
                        is_socket ? "nbd+unix and nbds+unix" : "nbds and nbds+unix");
        else if (*path.at != '/' && strncasecmp(path.at, "%2f", 3) != 0)
            text_format(why, why_len, "has a parameter \"%s\" that is no absolute path", known[i]);
        else
            continue;
        return false;
    }
    return true;
}

static bool nbd_check(const char *text, const struct nbd_scheme *scheme, char *why, size_t why_len)
{
    const char *at = text + strlen(scheme->scheme);
    struct part authority = {at, strcspn(at, "/?#")}, user;
    if (!user_take(&authority, &user, "?tls-psk-file=FILE", why, why_len) || !escapes_check(at, why, why_len))
        return false;
    if (!scheme->local && !host_check(authority, why, why_len))
        return false;
    if (scheme->local && authority.len > 0) {
        text_format(why, why_len, "names a host, but is a socket of this machine: three slashes");
        return false;
    }
    if (!nbd_parameters_check(text, scheme, why, why_len))
        return false;
    if (scheme->local && parameter(text, "socket").at == NULL)
        text_format(why, why_len, "names no socket: nbd+unix:///EXPORT?socket=PATH");
    return !scheme->local || parameter(text, "socket").at != NULL;
}

/* --- iSCSI --- */

/* "USER@HOST:PORT" */
static bool authority_parse(struct part authority, struct remote_iscsi_uri *out, char *why, size_t why_len)
{
    struct part user;
    if (!user_take(&authority, &user, "?secret_file=FILE", why, why_len) || !host_check(authority, why, why_len))
        return false;
    if (part_take(user, out->user) && part_take(authority, out->portal))
        return true;
    text_format(why, why_len, "has a user or host longer than %d bytes", REMOTE_TEXT_MAX);
    return false;
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
    static const char *const known[] = {"secret_file", "target_user", "target_secret_file", "initiator", NULL};
    char *const to[] = {out->secret_file, out->target_user, out->target_secret_file, out->initiator};
    if (!parameters_check(text, known, why, why_len))
        return false;
    for (unsigned i = 0; known[i] != NULL; i++)
        if (!part_take(parameter(text, known[i]), to[i])) {
            text_format(why, why_len, "has a parameter \"%s\" longer than %d bytes", known[i], REMOTE_TEXT_MAX);
            return false;
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

bool remote_uri_check(const char *text, char *why, size_t why_len)
{
    static const struct nbd_scheme nbd[] = {
        {"nbd://", false, false}, {"nbds://", false, true}, {"nbd+unix://", true, false}, {"nbds+unix://", true, true}};
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
            return nbd_check(text, &nbd[i], why, why_len);
    text_format(why, why_len, "is neither nbd://, nbds://, nbd+unix://, nbds+unix:// nor iscsi://");
    return false;
}
