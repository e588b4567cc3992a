/* What the NBD part of the config comes to: words into values, defaults that hang on each other. See
 * daemon/config.h. */
#ifndef DAEMON_CONFIG_NBD_H
#define DAEMON_CONFIG_NBD_H

#include <sys/types.h>

#include "daemon/config.h"
#include "daemon/tls.h"
#include "target/nbd/nbd.h"

/* False: neither off, allow nor require. */
bool config_tls_word(const char *word, enum nbd_tls *out);
/* Is there anything that TLS could be done with? */
bool config_has_tls(const struct config_nbd *nbd);
/* Of a listener that says `word`, or "". */
enum nbd_tls config_listener_tls(const struct config_nbd *nbd, const char *word);
struct tls_settings config_tls_settings(const struct config_nbd *nbd);

/* "0660". False: no such mode. */
bool config_mode_word(const char *word, mode_t *out);
/* ""; -1. False: there is nobody of this name, nor is it a number. */
bool config_user_word(const char *word, uid_t *out);
bool config_group_word(const char *word, gid_t *out);

#endif
