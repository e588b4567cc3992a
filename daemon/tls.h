/*
 * TLS by OpenSSL: the credentials of a server, and the cipher over a socket's stream.
 *
 * TLS 1.2 and later; certificates, keys shared beforehand (PSK), or both. Every connection begins anew: there are no
 * tickets and nothing is resumed, so that what is taken back by new credentials is gone with the next connection.
 *
 * stream_start_tls() of a socket's stream takes what tls_credentials_create() makes. Both ends of a cipher work on what
 * the socket gives and takes; the peer's certificate is read out once, into stream->proof (daemon/tls_proof.c).
 */
#ifndef DAEMON_TLS_H
#define DAEMON_TLS_H

#include <stdbool.h>
#include <stddef.h>

struct stream_credentials;

/* Files; "": none. A certificate needs its key, and there must be a certificate or a file of PSKs. */
struct tls_settings {
    const char *certificate; /* PEM: the server's, and what lies between it and its CA */
    const char *key;         /* PEM, kept as a secret is (daemon/secrets.h) */
    const char *ca;          /* PEM: who signs clients' certificates; none: they are not asked for one */
    const char *revoked;     /* PEM: lists of certificates that these CAs took back */
    bool clients_need_one;   /* with a CA: who has no certificate does not come in */
    const char *psk;         /* lines of NAME:HEX, kept as a secret is */
};

/* NULL: `why`, which names the file, and the setting in *wrong. */
struct stream_credentials *tls_credentials_create(const struct tls_settings *settings, const char **wrong, char *why,
                                                  size_t why_len);
/* Streams that use them go on. NULL is none. */
void tls_credentials_free(struct stream_credentials *credentials);
/* Was the same in all the files? Both may be NULL. */
bool tls_credentials_same(const struct stream_credentials *a, const struct stream_credentials *b);

#endif
