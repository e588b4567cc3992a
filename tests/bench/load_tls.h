/*
 * TLS for the load generators, by OpenSSL. The handshake and what comes before the run block; then the descriptor is made
 * non-blocking, and send and receive tell by errno EAGAIN that nothing moves now, as the calls for plain sockets do.
 */
#ifndef TESTS_BENCH_LOAD_TLS_H
#define TESTS_BENCH_LOAD_TLS_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct load_tls;

/* `folder` holds ca-cert.pem, client-cert.pem and client-key.pem. Exits on failure. */
struct load_tls *load_tls_start(int fd, const char *folder);
void load_tls_free(struct load_tls *tls);
ssize_t load_tls_receive(struct load_tls *tls, void *bytes, uint64_t len);
/* A beginning of what the entries hold; what was not taken must be offered again, perhaps with more behind it. */
ssize_t load_tls_send(struct load_tls *tls, const struct iovec *iov, unsigned count);

#endif
