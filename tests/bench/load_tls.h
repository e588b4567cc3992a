/*
 * TLS for the load generators, by OpenSSL. The handshake and what comes before the run block; then the descriptor is
 * made non-blocking, and receive tells by errno EAGAIN that nothing moves now, as the calls for plain sockets do.
 *
 * System calls are few, so that the servers are measured and not the load: one for all that is sent at once, and as
 * much as there is in one read.
 */
#ifndef TESTS_BENCH_LOAD_TLS_H
#define TESTS_BENCH_LOAD_TLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct load_tls;

/* `folder` holds ca-cert.pem, client-cert.pem and client-key.pem. Exits on failure. */
struct load_tls *load_tls_start(int fd, const char *folder);
void load_tls_free(struct load_tls *tls);
/* As much as is there; less than `len`: nothing more was. */
ssize_t load_tls_receive(struct load_tls *tls, void *bytes, uint64_t len);
/* A beginning of what the entries hold, taken over: some of it may wait here for the socket (load_tls_waits). */
uint64_t load_tls_send(struct load_tls *tls, const struct iovec *iov, unsigned count);
/* Shall it be called when the socket takes more, though with nothing new? */
bool load_tls_waits(const struct load_tls *tls);

#endif
