/*
 * The journal, as values: what is logged before a row is written, its entries to bytes and back, and which of those
 * found after a crash are to be replayed. Who writes, scans and replays: raid/journal_store.h, raid/journal_replay.h.
 *
 * A record is one window of one row. Each member that takes part logs its own part of it, an entry: one page of header,
 * then the payload, whole pages as they lie in memory. Of a page only the bytes of the extent count. Bytes are named by
 * role and column, so that whatever a header says, nothing but its own row can be written.
 *
 *   FULL    (policy journal) a part on every member that is to be written: what it is to be written.
 *   PARITY  (policy ppl) one part, on the parity's member: the exclusive or of the data chunks that do not change; none
 *           where all of them change. Replayed: parity := that, and the changed chunks as they stand.
 *   TAIL    no record: says on every live member which records are over (`tail`).
 *
 * What was found is replayed by these rules (journal_choose):
 *   - ids below the greatest tail in any entry are over;
 *   - a record some member of which survived without its part is not replayed: no byte of it was written in place. Nor
 *     was it if a member is in service that had been lost when it was logged: that loss never came to disk;
 *   - FULL: all others in order of their ids; all were written in place in that order, or not yet;
 *   - its row is torn all the same: what was a whole record may have been damaged on one member since, and then bytes of it
 *     are in place. Nobody can tell; so the row is to be resynchronised, which does no harm to one that was not begun. The
 *     same goes for a header without its payload. Not so while a member of the row is away: then there is nothing to
 *     compare with, and to compute what is lost from what is there is right for all records that were not begun;
 *   - PARITY: of each row the last one only. The writes of those before it were durable before it was logged, and their
 *     parity would be that of data that has changed since.
 *
 * Decoding treats the bytes as hostile.
 */
#ifndef RAID_JOURNAL_H
#define RAID_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "core/loop.h"
#include "core/page.h"
#include "core/uuid.h"
#include "raid/superblock.h"

enum journal_kind { JOURNAL_TAIL, JOURNAL_FULL, JOURNAL_PARITY };

/* In the order in which journal_choose() leaves them. */
enum journal_fate { JOURNAL_REPLAYED, JOURNAL_TORN, JOURNAL_VOID };

enum {
    JOURNAL_EXTENTS_MAX = 4,
    JOURNAL_ENTRY_PAGES = 64, /* at most, header and payload */
    JOURNAL_COLUMNS_MAX = 16 << 20,
    JOURNAL_RING_PAGES_MAX = 1 << 20, /* of a ring more is not used */
};
#define JOURNAL_WINDOW_MAX (128 * KIB) /* bytes of a chunk that one record logs at most */
#define JOURNAL_BYTES_MIN  (1 * MIB)   /* of a member's journal area */

struct journal_extent {
    uint32_t role, column, len; /* columns [column, column + len) of this role's chunk */
    uint32_t crc;               /* CRC32C of the bytes; 0 without payload */
    bool payload;               /* PARITY without: zeroes */
    uint64_t changed;           /* PARITY: the data roles that change */
};

struct journal_entry {
    struct uuid epoch;  /* of this run of the array: entries of other runs mean nothing */
    struct uuid volume; /* TAIL: nil */
    uint64_t id, tail;  /* ids below tail were over when this was written; ids begin with 1 */
    uint64_t row;
    uint64_t slots;  /* of the array, that have a part of this record */
    uint64_t absent; /* slots of the row that were lost when it was logged */
    enum journal_kind kind;
    unsigned slot; /* of this part */
    uint32_t page; /* where it stands in the ring */
    unsigned copy; /* not on disk: of several devices with the same, the one it was found on */
    bool damaged;  /* not on disk: its payload is not whole */
    unsigned fate; /* not on disk: enum journal_fate, for journal_choose() */
    unsigned extents_count;
    struct journal_extent extents[JOURNAL_EXTENTS_MAX];
};

/* Pages of payload of one extent, and of all of an entry with its header. */
uint32_t journal_extent_pages(const struct journal_extent *extent);
uint32_t journal_entry_pages(const struct journal_entry *entry);
/* CRC32C of `len` bytes that begin at `column` % PAGE_BYTES of pages[0]. */
uint32_t journal_crc(struct page *const *pages, uint64_t column, uint64_t len);

/* The header, into PAGE_BYTES. */
void journal_encode(const struct journal_entry *entry, uint8_t *out);
/* Is it a header, and are its numbers in range? */
bool journal_decode(const uint8_t *bytes, struct journal_entry *entry);
/* Are these pages, from behind the header on, the payload? */
bool journal_payload_is_whole(const struct journal_entry *entry, struct page *const *pages);

/* Can the entry be about this volume of this array, in its slot? */
bool journal_entry_fits(const struct journal_entry *entry, const struct sb_volume *volume, const struct layout *layout);

/*
 * Of all entries of the epoch found on members `survivors`, of which `active` are not being rebuilt: those that are to be
 * replayed, moved to the front, in order of replay, the parts of a record beside each other. Returns how many. Behind
 * them, so ordered, stand *torn entries of records that are not whole.
 */
size_t journal_choose(struct journal_entry *entries, size_t count, uint64_t survivors, uint64_t active, size_t *torn);

/* --- what a row asks for --- */

/* Bytes that are to be logged. */
struct journal_piece {
    unsigned slot;
    uint32_t role, column, len;
    uint64_t changed;
    struct page **pages; /* the first one holds byte `column`; NULL: no payload. Lent until `over` */
};

struct journal_record {
    /* Set by the row. */
    const struct uuid *volume;
    uint64_t row, members; /* members: slots of the row */
    enum journal_kind kind;
    struct journal_piece *pieces; /* those of a slot beside each other */
    unsigned pieces_count;
    struct task *task; /* deferred when */
    bool over;         /* it is durable on all members that are live, or the volume has failed */

    /* The journal's. */
    STAILQ_ENTRY(journal_record) link;
    uint64_t group;
    bool live; /* it is in the log, and its writes in place are not over */
};
STAILQ_HEAD(journal_record_list, journal_record);

/* Are the volume's rows never in doubt after a crash? */
static inline bool consistency_is_closed(enum sb_consistency consistency)
{
    return consistency == SB_PPL || consistency == SB_JOURNAL;
}

#endif
