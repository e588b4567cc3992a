/*
 * The names of disks on other machines: what a URI in the configuration may look like. Pure functions.
 *
 *   nbd://HOST[:PORT]/EXPORT            nbds://...                with TLS; ?tls-certificates=DIR, ?tls-psk-file=FILE
 *   nbd+unix:///EXPORT?socket=PATH      nbds+unix://...
 *   iscsi://[USER@]HOST[:PORT]/IQN/LUN  ?secret_file=FILE&target_user=NAME&target_secret_file=FILE&initiator=NAME
 *
 * A secret never stands in a URI, because URIs stand in logs, in the status and on the disks: it is in a file.
 */
#ifndef DAEMON_REMOTE_URI_H
#define DAEMON_REMOTE_URI_H

#include <stdbool.h>
#include <stddef.h>

enum { REMOTE_TEXT_MAX = 255 };

/* Is this the name of a disk on another machine, and no path? Says nothing about whether it is a good one. */
bool remote_is_uri(const char *text);

/* False, and what is wrong with it (a part of a sentence). */
bool remote_uri_check(const char *text, char *why, size_t why_len);

bool remote_uri_is_iscsi(const char *text);

/* What of it names the disk, and not the way to it: the same when other certificates are used. */
void remote_uri_identity(const char *text, char *out, size_t len);

struct remote_iscsi_uri {
    char portal[REMOTE_TEXT_MAX + 1], target[REMOTE_TEXT_MAX + 1];
    char user[REMOTE_TEXT_MAX + 1], secret_file[REMOTE_TEXT_MAX + 1];
    char target_user[REMOTE_TEXT_MAX + 1], target_secret_file[REMOTE_TEXT_MAX + 1];
    char initiator[REMOTE_TEXT_MAX + 1]; /* "": the machine's */
    unsigned lun;
};
bool remote_iscsi_uri_parse(const char *text, struct remote_iscsi_uri *out, char *why, size_t why_len);

#endif
