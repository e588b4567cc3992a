/*
 * The log of a cache, as values: labels and groups to bytes and back. Who writes and replays them: cache/log.h.
 *
 * A device of a log, in pages of 4096 bytes:
 *
 *      0, 1       labels: whose log it is, which of its devices count, and where the first group is that counts. The one
 *                 with the higher generation counts; the next one is written in the place of the other
 *      2 - 15     nothing
 *      16 -       a ring of groups
 *
 * A group is a page of header, and then the pages that its entries speak of, in their order; behind the last page of
 * the ring it goes on in the first. It says
 *
 *      DATA       these sectors of a block have the bytes that stand in its page
 *      GONE       the volume has newer bytes for these sectors than any group before this one
 *
 * A group counts if its header and all of its pages are whole, it stands where it says, it is of this log and this
 * epoch (of this run of it), and its sequence number is the next. So what is left in the ring from an earlier round or
 * an earlier run is nothing, whole or not, and what is behind a torn group is nothing either: nobody was told that it is
 * durable.
 *
 * Decoding treats the bytes as hostile.
 */
#ifndef CACHE_LOG_RECORD_H
#define CACHE_LOG_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/page.h"
#include "core/uuid.h"

enum {
    LOG_FORMAT = 1,
    LOG_DEVICES = 2,
    LOG_LABELS = 2,
    LOG_RING_AT = 16,    /* pages */
    LOG_RING_MIN = 16,   /* of a ring */
    LOG_NAME_BYTES = 64, /* with the 0 at the end */
    LOG_ENTRIES_MAX = 160,
    LOG_DATA_MAX = 128, /* pages of a group, beside its header */
};
#define LOG_RING_MAX     (UINT32_MAX - 1ull)                      /* pages of a ring; more of a device is not used */
#define LOG_LABELS_BYTES ((uint64_t)LOG_LABELS * PAGE_BYTES)      /* from the beginning of a device on */
#define LOG_BYTES_MIN    ((LOG_RING_AT + LOG_RING_MIN) * 4096ull) /* of a device */

struct log_identity {
    struct uuid log, array, volume, fork; /* fork: the array's history when the label was written */
    char name[LOG_NAME_BYTES]; /* of array and volume, for people */
};

struct log_label {
    struct log_identity identity;
    uint64_t generation;               /* every label that is written has a higher one */
    uint64_t ring;                     /* pages */
    uint64_t epoch;                    /* of the groups that count */
    uint64_t tail_page, tail_sequence; /* the first of these */
    unsigned live;                     /* devices that count, a bit each: the others missed something */
    unsigned place;                    /* of this one: 0, 1 */
    bool clean;                        /* there is no group that counts */
};

enum log_verdict {
    LOG_NONE,    /* no label of ours */
    LOG_DAMAGED, /* it was one */
    LOG_TOO_NEW, /* of a later format; only the identity is told */
    LOG_CLEAN,   /* closed: it holds nothing */
    LOG_IN_USE,  /* it may hold the newest bytes of its volume */
};

void log_label_encode(const struct log_label *label, uint8_t out[PAGE_BYTES]);
/* The label that counts, of the first LOG_LABELS_BYTES of a device with so many bytes. */
enum log_verdict log_labels_look(const uint8_t *bytes, uint64_t device_bytes, struct log_label *out);
const char *log_verdict_name(enum log_verdict verdict);

enum log_kind { LOG_DATA, LOG_GONE };

struct log_entry {
    enum log_kind kind;
    uint8_t sectors; /* DATA: of the block, a bit each */
    uint32_t crc;    /* DATA: CRC32C of the page */
    uint64_t first;  /* DATA: number of the block; GONE: first sector */
    uint64_t count;  /* GONE: sectors */
};

struct log_group {
    struct uuid log;
    uint64_t epoch, sequence;
    uint64_t page;    /* of the ring, where it stands */
    uint64_t durable; /* groups up to this sequence number were durable when this one was written */
    uint32_t data;    /* pages: so many of its entries are LOG_DATA */
    uint32_t entries_count;
    struct log_entry entries[LOG_ENTRIES_MAX];
};

void log_group_encode(const struct log_group *group, uint8_t out[PAGE_BYTES]);
/* False: this is none. Its pages are still to be looked at. */
bool log_group_decode(const uint8_t page[PAGE_BYTES], struct log_group *out);

#endif
