/* One HTTP exchange with corbeld over its Unix socket, blocking: for corbelctl. */
#ifndef DAEMON_CTL_CLIENT_H
#define DAEMON_CTL_CLIENT_H

#include <jansson.h>
#include <stddef.h>

/*
 * Send `body` (NULL: a GET) to `path`. The answer, owned by the caller, and the HTTP code; or NULL with a sentence that
 * says why corbeld could not be asked.
 */
json_t *ctl_request(const char *socket_path, const char *path, const json_t *body, int *code, char *why,
                    size_t why_len);

#endif
