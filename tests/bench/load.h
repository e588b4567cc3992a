/*
 * A lean load generator: one thread, many requests in flight, few system calls.
 *
 * What protocols share: options, sockets, the turn (receive once, send once per connection), offsets, stamps, latency,
 * the report. A protocol logs in with blocking calls, then appends requests to an output queue and reads headers.
 *
 * Every 512 bytes written begin with a stamp {their byte offset, the run's number}, so that what a place must hold
 * follows from its offset alone, whatever the order of overlapping writes. --verify reads a sample back.
 */
#ifndef TESTS_BENCH_LOAD_H
#define TESTS_BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct load_tls;

struct load_options {
    const char *uri;     /* HOST:PORT or unix:PATH */
    const char *export_; /* export or target name */
    unsigned lun;        /* iSCSI */
    bool is_write, is_random, verify;
    bool digests;    /* iSCSI: CRC32C over headers and data */
    const char *tls; /* NBD: a folder with certificates, see load_tls.h; NULL: none */
    uint32_t block;  /* bytes a request */
    unsigned depth;  /* requests in flight a connection */
    unsigned connections;
    double seconds;
    uint64_t size; /* bytes of the device to use; 0: all */
};

/* A request in flight. `headers` is room of the protocol's, `data` the bytes to write (block). */
struct load_slot {
    unsigned index;
    uint64_t off, started_ns;
    uint8_t *data, *headers;
    unsigned headers_used;
};

struct load_connection {
    const struct load_options *options;
    unsigned index;
    int fd;
    struct load_tls *tls;  /* NULL: in clear */
    uint64_t device_size;  /* found by open */
    unsigned header_bytes; /* the protocol's, unless open changes it */
    void *state;           /* the protocol's */

    struct load_slot *slots, **idle;
    unsigned idle_count;

    struct iovec *out; /* out[out_first .. out_count-1] wait to be sent */
    unsigned out_first, out_count, out_room;

    uint8_t *in; /* received, not yet taken */
    uint64_t in_have;
    uint64_t payload_left; /* bytes behind the last header */
    uint8_t *capture;      /* where payload goes while there is room; else it is dropped */
    uint64_t capture_left;
    struct load_slot *completing; /* answered, once its payload is in */
    bool failed_status;           /* ... with an error */
    uint64_t next_off;            /* sequential modes */
};

struct load_protocol {
    unsigned header_bytes;
    void (*open)(struct load_connection *c);                       /* blocking; exits on failure */
    unsigned (*out_per_slot)(const struct load_connection *c);     /* iovecs, at most */
    unsigned (*headers_per_slot)(const struct load_connection *c); /* bytes */
    bool (*may_issue)(const struct load_connection *c);
    void (*issue)(struct load_connection *c, struct load_slot *slot, bool is_write); /* append to out */
    /* A header came: set payload_left, completing, failed_status; may append to out. */
    void (*header)(struct load_connection *c, const uint8_t *header);
};

int load_main(int argc, char **argv, const struct load_protocol *protocol);

/* For protocols. */
_Noreturn void load_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void load_append(struct load_connection *c, const void *base, uint64_t len);
void load_send_all(struct load_connection *c, const void *bytes, uint64_t len);
void load_receive_all(struct load_connection *c, void *bytes, uint64_t len);

#endif
