/*
 * For the tests of TLS: a folder with certificates made on the spot, and a client, which is OpenSSL in a thread of its
 * own, at the other end of a socket pair.
 */
#ifndef TESTS_UNIT_DAEMON_TLS_RIG_H
#define TESTS_UNIT_DAEMON_TLS_RIG_H

#include <openssl/ssl.h>
#include <pthread.h>

#include "daemon/reactor.h"
#include "daemon/socket.h"
#include "daemon/tls.h"

/* --- files --- */

struct tls_place {
    char dir[64];
    unsigned serial;
    EVP_PKEY *ca_key, *other_key;
    X509 *ca, *other;
};

/* ca.pem, other.pem (another CA), server.pem and .key, alice.pem and .key (cn:alice, dns:alice.example.org),
 * mallory.pem and .key (as alice, of the other CA), psk (carol). */
struct tls_place tls_place_make(void);
void tls_place_drop(struct tls_place *place);
/* "DIR/NAME", in a buffer that the eighth call after it uses again. */
const char *tls_path(const struct tls_place *place, const char *name);
void tls_file(const struct tls_place *place, const char *name, const char *text, size_t len, unsigned mode);
/* NAME.pem and NAME.key, signed by one of the CAs; `names` as OpenSSL's configuration writes subjectAltName, or
 * NULL. */
void tls_certificate(struct tls_place *place, const char *name, bool of_other, const unsigned char *common,
                     int common_len, const char *names);
/* With certificates, the CA of clients, and PSKs. */
struct tls_settings tls_settings_full(const struct tls_place *place);
struct stream_credentials *tls_credentials_of(const struct tls_settings *settings);

/* --- the client --- */

struct tls_client {
    const struct tls_place *place;
    const char *certificate; /* "alice"; NULL: none */
    const char *psk;         /* hexadecimal; with the name in psk_name */
    const char *psk_name;
    int version;                                 /* TLS1_2_VERSION ...; 0: any */
    void (*talk)(struct tls_client *, SSL *ssl); /* after the handshake; may be NULL */
    void *data;
    int fd; /* closed by the thread */
    bool connected;
    pthread_t thread;
};

/* Runs the client in a thread, on its end of a pair; the other end is the stream's. */
struct stream *tls_client_start(struct tls_client *client, struct reactor *reactor);
void tls_client_join(struct tls_client *client);

#endif
