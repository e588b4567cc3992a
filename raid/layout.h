/*
 * Where the bytes of a volume lie: pure arithmetic, there and back.
 *
 * A volume is a sequence of rows. A row has `data` data chunks (roles 0 .. data-1, in volume order) and `redundancy`
 * further chunks (roles data .. roles-1): parities P, Q, R, or copies of the one data chunk. Row t of a volume with D
 * data chunks of K bytes holds volume bytes [t*D*K, (t+1)*D*K). layout_place() tells for a row and role the member and
 * the offset within the volume's extent on that member; layout_find() is its inverse. Which level it is makes no
 * difference to anybody else: rows, jobs and codec see roles only.
 *
 *   level        row                                  members
 *   jbod         one chunk, no redundancy             exactly 1
 *   span         one chunk, no redundancy             members end to end, sizes may differ
 *   0            one chunk, no redundancy             >= 2 striped
 *   1            one chunk and n-1 copies             n >= 2
 *   10, 1E       one chunk and c-1 copies (near)      10: n a multiple of c; 1E: not
 *   3            n-1 data of one 4 KiB block, P last  n >= 3
 *   5, 6, tp     n-m data, m parities, rotating       n >= 3, 4, 5
 *   30, 50, 60   as 3, 5, 6 within a span; rows go    n a multiple of spans
 *                round the spans: row t is row t/spans of span t%spans
 *
 * On disk this is Linux md's order where md has the level (RAID 4, 5, 6 with their four rotations, RAID 10 near,
 * RAID 0 with equal members), and so are Q's exponents: layout_codec_role(). Triple parity rotates like RAID 6, with R
 * behind Q; its exponents are the roles.
 */
#ifndef RAID_LAYOUT_H
#define RAID_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

enum { RAID_MEMBERS_MAX = 64 };

enum raid_level {
    RAID_JBOD,
    RAID_SPAN,
    RAID_0,
    RAID_1,
    RAID_10,
    RAID_1E,
    RAID_3,
    RAID_5,
    RAID_6,
    RAID_TP,
    RAID_30,
    RAID_50,
    RAID_60,
};
enum { RAID_LEVEL_COUNT = 13 };

enum raid_rotation {
    ROTATE_LEFT_ASYMMETRIC,
    ROTATE_RIGHT_ASYMMETRIC,
    ROTATE_LEFT_SYMMETRIC,
    ROTATE_RIGHT_SYMMETRIC,
    /* The parities stay where they are. Arrays of other makers only (raid/md_assembly.h): no description has these. */
    ROTATE_PARITY_FIRST,
    ROTATE_PARITY_LAST,
};

/* What an administrator asks for. layout_init() fills in what is 0 for want of a choice. */
struct layout_spec {
    enum raid_level level;
    enum raid_rotation rotation; /* 5, 6, tp, 50, 60 */
    unsigned members;
    unsigned spans;  /* 30, 50, 60: at least 2; else 0 or 1 */
    unsigned copies; /* 10, 1E: at least 2 (0: 2); 1: as many as members (or 0, 1); else 0 or 1 */
    uint32_t chunk;  /* bytes: a power of two, 4 KiB to 16 MiB; 3, 30: 4 KiB (or 0) */
};

struct layout {
    struct layout_spec spec;                   /* complete: spans, copies and chunk as they are used */
    unsigned data;                             /* data chunks a row */
    unsigned redundancy;                       /* further chunks a row; as many may be lost in any one row */
    unsigned roles;                            /* data + redundancy */
    bool parity;                               /* redundancy is parity, not copies */
    uint64_t row_data;                         /* bytes of volume data a row */
    uint64_t rows;                             /* whole rows that fit */
    uint64_t span_start[RAID_MEMBERS_MAX + 1]; /* span level: first row of each member, then the count */
    char mistake[120];                         /* the sentence of a layout_init() that failed */
};

struct layout_place {
    unsigned slot; /* member, 0 .. members-1 */
    uint64_t off;  /* bytes from the start of the volume's extent on that member; a multiple of the chunk */
};

/*
 * Check `spec` and compute the layout for extents of extent[slot] bytes (all equal but for span; what is smaller or
 * ragged is rounded down). NULL, or a sentence that says what is wrong with the spec; it lives in *layout.
 */
const char *layout_init(struct layout *layout, const struct layout_spec *spec, const uint64_t *extent);

void layout_place(const struct layout *layout, uint64_t row, unsigned role, struct layout_place *place);
/* False for a place that no row uses. `off` may be any byte; the role's chunk contains it. */
bool layout_find(const struct layout *layout, unsigned slot, uint64_t off, uint64_t *row, unsigned *role);

/*
 * Bytes of the slot's extent that rows below `row` (at most `rows`) take: from its beginning on, without a gap. All rows
 * from `row` on lie behind. A multiple of the chunk.
 */
uint64_t layout_filled(const struct layout *layout, unsigned slot, uint64_t row);

/* Bytes of extent needed on each member for `size` bytes of data (not span). The spec is one layout_init() accepts. */
uint64_t layout_extent_for(const struct layout_spec *spec, uint64_t size);

/*
 * The codec's role for a role of this row: itself, but for the data of RAID 6 and 60 that rotates asymmetrically. There
 * md counts Q's exponents round the ring of slots from behind Q, and so the data chunks are turned.
 */
unsigned layout_codec_role(const struct layout *layout, uint64_t row, unsigned role);

/* Members that may be lost at once in the worst case. */
unsigned layout_tolerance(const struct layout *layout);
/* Is every row still readable without the members of this set (bit = slot)? */
bool layout_survives(const struct layout *layout, uint64_t lost);

const char *raid_level_name(enum raid_level level); /* "jbod", "span", "raid0", "raid10", "raid1e", "raidtp", ... */
/* The name, or what follows "raid" in it ("6", "tp"), in either case. */
bool raid_level_parse(const char *name, enum raid_level *level);
const char *raid_rotation_name(enum raid_rotation r); /* "left-symmetric", ... */
/* Of those that a description may have. */
bool raid_rotation_parse(const char *name, enum raid_rotation *r);

#endif
