/*
 * An NBD client made of helpers, for the tests of target/nbd/: a server with one disk, and streams whose peer is the
 * test. Everything it takes from a stream it checks with Criterion.
 */
#ifndef TESTS_UNIT_TARGET_NBD_PEER_H
#define TESTS_UNIT_TARGET_NBD_PEER_H

#include "core/bytes.h"
#include "core/check.h"
#include "target/nbd/nbd.h"
#include "target/nbd/protocol.h"
#include "tests/unit/lib/testloop.h"
#include "tests/unit/lib/teststream.h"

/* A device that keeps what it is given until the test says how it ends. Every read is filled with 0x5a. */
struct holder {
    struct blkdev dev;
    struct blk_req_list held;
    uint32_t count; /* held now */
    uint64_t seen;  /* ever */
};
void holder_init(struct holder *h, struct loop *loop, uint64_t size);
/* End the oldest one, or the newest. */
void holder_end(struct holder *h, bool newest, enum blk_status status, uint64_t bad_off);
void holder_end_all(struct holder *h, enum blk_status status);

enum { PEER_DISK_BYTES = 4 << 20, PEER_DATA_MAX = 70000, PEER_EXTENTS_MAX = 520 };

struct peer_setup {
    uint32_t pages, requests, connections, half_open; /* 0: plenty */
    bool two_loops;                                   /* the device lives on another loop than the server */
    uint32_t logical_block;                           /* 0: 512 */
    uint64_t seed;                                    /* not 0: receives and sends are short */
};

struct peer {
    struct testloop *t, *far; /* the server's loop, the device's: often the same */
    struct memdisk *disk;
    struct nbd_server *server;
    struct teststream *s; /* the stream at hand */
    enum nbd_mode mode;   /* of it */
    enum nbd_tls tls;     /* of the listener where streams arrive */
    uint64_t seed;
};

struct peer peer_start(const struct peer_setup *setup);
/* Drains the server and checks that nothing is left. */
void peer_stop(struct peer *p);
/* Run both loops until nothing is ready; time stands still. */
void peer_run(struct peer *p);
/* A new stream to the server; it becomes the one at hand. */
struct teststream *peer_connect(struct peer *p);
/* Free the stream at hand, which the server has closed. */
void peer_forget(struct peer *p);
void peer_export(struct peer *p, const char *name, const char *description, bool read_only, bool hidden);

/* --- options --- */

/* Take the greeting, answer with `flags`. */
void peer_greet(struct peer *p, uint32_t flags);
void peer_option(struct peer *p, uint32_t option, const void *data, uint32_t len);
/* Take the reply to an option and check its type. Returns its length; the data is in `data`. */
uint32_t peer_option_reply(struct peer *p, uint32_t option, uint32_t type, uint8_t data[PEER_DATA_MAX]);
/* LIST_META_CONTEXT or SET_META_CONTEXT. Only sends. */
void peer_meta(struct peer *p, uint32_t option, const char *name, const char *const *queries, uint32_t count);
/* INFO or GO, with the `count` information requests. Only sends. */
void peer_info(struct peer *p, uint32_t option, const char *name, uint32_t name_len, const uint16_t *infos,
               uint16_t count);
/* From the greeting to transmission on export `name`. Returns the transmission flags. */
uint16_t peer_go(struct peer *p, const char *name, enum nbd_mode mode);
/* The same with base:allocation selected. */
uint16_t peer_go_with_status(struct peer *p, const char *name, enum nbd_mode mode);

/* A bench with a client in transmission on export "disk"; on one whose device waits for the test. */
struct peer peer_serving(const struct peer_setup *setup, enum nbd_mode mode);
struct peer peer_holding(const struct peer_setup *setup, struct holder *h, uint64_t size, enum nbd_mode mode);

/* --- transmission --- */

/* A header as it is given; and one whose write says that it has a payload, as extended ones must. */
void peer_header(struct peer *p, uint16_t flags, uint16_t command, uint64_t cookie, uint64_t off, uint64_t len);
void peer_request(struct peer *p, uint16_t flags, uint16_t command, uint64_t cookie, uint64_t off, uint64_t len);
void peer_write(struct peer *p, uint16_t flags, uint64_t cookie, uint64_t off, const void *data, uint32_t len);

struct peer_reply {
    bool chunk;
    unsigned chunks, holes; /* chunks in all; of them holes */
    uint64_t cookie;
    uint32_t error;
    uint16_t type;  /* of the last chunk */
    uint64_t off;   /* where the data begin; ERROR_OFFSET */
    char text[256]; /* of an error chunk */
    uint32_t context, extents;
    struct {
        uint64_t len, state;
    } extent[PEER_EXTENTS_MAX]; /* of a chunk of block status */
    uint32_t len;               /* bytes of data taken, and of holes, which are zeroes in `data` */
};
/* Take one reply, all chunks of it. `data_len` is what a successful simple reply carries; a chunk says it itself.
 * `data` may be NULL. */
struct peer_reply peer_take(struct peer *p, uint8_t *data, uint32_t data_len);
/* Take a reply without data and check it, simple or chunk. */
void peer_expect(struct peer *p, uint64_t cookie, uint32_t error);
/* Take the reply to a read, and check that it is what the disk holds. */
void peer_expect_data(struct peer *p, uint64_t cookie, uint64_t off, uint32_t len);
/* Ask and check the answer, in one step. */
void peer_ask(struct peer *p, uint16_t flags, uint16_t command, uint64_t off, uint64_t len, uint32_t error);

#endif
