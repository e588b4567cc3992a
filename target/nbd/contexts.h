/*
 * Metadata contexts: what a client can have BLOCK_STATUS tell. Pure, as target/nbd/protocol.h.
 *
 *   base:allocation   1 (hole) and 2 (reads as zeroes) where nothing was ever written, or all was discarded
 *
 * There is no other: what else the layers beneath know (rows that are dirty or degraded) is not told by the interface
 * of block devices, and no client could act on it. Contexts of our own would be named `x-corbel:`.
 *
 * A query that is no name of a context at all (without a namespace, with a NUL) is an error; one of a namespace or a
 * leaf that we do not know selects nothing.
 */
#ifndef TARGET_NBD_CONTEXTS_H
#define TARGET_NBD_CONTEXTS_H

#include "target/nbd/protocol.h"

/* What LIST_META_CONTEXT and SET_META_CONTEXT carry. */
struct nbd_meta_request {
    const char *name; /* of the export: in the parsed bytes, not terminated */
    uint32_t name_len, query_count;
    const uint8_t *queries; /* each: u32 length, text; checked */
};
/* 0, or the type of the error reply. */
uint32_t nbd_parse_meta_request(const uint8_t *data, uint32_t len, struct nbd_meta_request *out);

enum { NBD_CONTEXT_ALLOCATION = 1 }; /* contexts as bits */
struct nbd_context {
    uint32_t bit, id; /* id: on the wire */
    const char *name;
};
enum { NBD_CONTEXTS = 1 };
extern const struct nbd_context nbd_contexts[NBD_CONTEXTS];

/* The contexts that the queries ask for, as bits. LIST knows wildcards (`base:`), and all if nothing is asked. */
uint32_t nbd_contexts_asked(const struct nbd_meta_request *request, bool is_list);

/* The payload of a BLOCK_STATUS: u64 length, then ids of those contexts (of `selected`) that are asked for. */
struct nbd_status_filter {
    uint64_t len;
    uint32_t contexts;
};
enum { NBD_FILTER_BYTES_MAX = 8 + 4 * NBD_CONTEXTS };
/* False: no id, an id twice or one that was not selected, or a length that does not fit. */
bool nbd_parse_status_filter(const uint8_t *data, uint32_t len, uint32_t selected, struct nbd_status_filter *out);

#endif
