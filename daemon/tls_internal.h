/* TLS from within: shared by the files daemon/tls*.c. */
#ifndef DAEMON_TLS_INTERNAL_H
#define DAEMON_TLS_INTERNAL_H

#include <openssl/ssl.h>

#include "core/stream.h"

enum {
    TLS_PSK_NAME_MAX = 128,
    TLS_PSK_KEY_MIN = 16, /* bytes: 128 bits */
    TLS_PSK_KEY_MAX = 64,
    TLS_FILE_MAX = 1 << 20, /* a longer file is a mistake */
};

/* What a connection's handshake notes on its way; the SSL object's application data. */
struct tls_handshake {
    char psk_name[TLS_PSK_NAME_MAX + 1]; /* of the key that was looked up last; "": none */
};

/* What lies between OpenSSL and a socket: what is sealed and not sent yet, and whether the socket was seen empty. */
enum {
    TLS_RECORD_BYTES = SSL3_RT_MAX_PLAIN_LENGTH,
    TLS_RECORDS = 4,                /* that are sent in one go */
    TLS_RECORD_OVERHEAD_MAX = 2048, /* of so many bytes, also where a peer asks for records of 512 bytes */
    TLS_WIRE_BYTES = TLS_RECORDS * (TLS_RECORD_BYTES + TLS_RECORD_OVERHEAD_MAX),
};
struct tls_wire {
    bool collects; /* nothing is sent now */
    bool empty;    /* the last read brought all there was: it is not asked again before the owner's next call */
    size_t start, end;
    uint8_t bytes[TLS_WIRE_BYTES];
};

/* --- tls_socket.c --- */

/* How OpenSSL reaches a socket; the application data of such a BIO is its tls_wire. NULL: no memory. */
BIO_METHOD *tls_socket_method(void);
/* 1: all of it is gone; 0: the socket takes no more now; -1: never. */
int tls_wire_flush(struct tls_wire *wire, int fd);

/* --- tls_credentials.c --- */

/* The server's end of a cipher on a socket, not owned, nor is `wire`. NULL: no memory. */
SSL *tls_credentials_open(struct stream_credentials *credentials, int fd, struct tls_wire *wire);
void tls_credentials_shut(SSL *ssl);

/* --- tls_psk.c: keys shared beforehand --- */

struct tls_psks;

/* From the text of a file. NULL: `why`, without the file's name. */
struct tls_psks *tls_psks_parse(const char *text, size_t len, char *why, size_t why_len);
void tls_psks_free(struct tls_psks *psks);
/* Bytes of the key, which are in `key`; 0: there is none of this name. Takes as long for one as for another. */
unsigned tls_psks_find(const struct tls_psks *psks, const char *name, size_t name_len, unsigned char *key, size_t room);

/* --- tls_proof.c --- */

/* After a handshake: what the peer has proved. */
void tls_proof_take(SSL *ssl, const struct tls_handshake *handshake, struct stream_proof *proof);

#endif
