/*
 * What stands on a member: the description of its array, as a value; to bytes and back.
 *
 * A superblock is a fixed header (one 4 KiB block: magic, format version, feature masks, array UUID, member UUID, slot,
 * generation, length, CRC32C of the text, CRC32C of the header) and a JSON text that describes the whole array. Both
 * are little-endian and readable with dd; docs/on-disk-format.md has the byte table. A member holds four copies: two
 * slots at its head, written in turn, and a copy of both at its tail (see raid/label.h for the writing).
 *
 * Decoding treats the bytes as hostile: anything may be wrong, nothing is asserted.
 */
#ifndef RAID_SUPERBLOCK_H
#define RAID_SUPERBLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/check.h"
#include "core/uuid.h"
#include "raid/bad_blocks.h"
#include "raid/layout.h"

enum { SB_NAME_SIZE = 64, SB_IDENTITY_SIZE = 128, SB_VOLUMES_MAX = 64, SB_FORKS_MAX = 256, SB_JOURNALS_MAX = 2 };
enum { SB_KEPT_BYTES = 24 * 1024 };

/* No array gets there: a number above it was not counted up, and leaves no room to count on. */
#define SB_GENERATION_MAX (INT64_MAX / 2)

/* Bytes of one slot, and where the four copies stand. Byte 0 to 4095 of a disk are never touched. */
#define SB_SLOT_BYTES (252 * KIB)
#define SB_HEAD_0     (4 * KIB)
#define SB_HEAD_1     (256 * KIB)
#define SB_TAIL_BYTES (1 * MIB) /* the last MiB of the disk's size rounded down to 1 MiB: copies of both slots */

enum sb_member_state { SB_ACTIVE, SB_REBUILDING, SB_FAILED, SB_ABSENT };

struct sb_member {
    struct uuid uuid;
    enum sb_member_state state;
    char identity[SB_IDENTITY_SIZE]; /* serial number or, for a file, its path: as recorded when last seen */
    uint64_t size;                   /* bytes of the disk that the array uses, tail included */
    /* While it is not ACTIVE: the region maps call DIRTY or SUSPECT every row that it lacks, provided that it is the
     * disk that it was at this generation, the last that it had for certain. 0: they do not. */
    uint64_t missed_from;
    bool vanished; /* it just was not there: it may come back by itself */
    bool filling;  /* REBUILDING: of each volume it has the rows below `rebuilt` */
};

/* What was filled of a member counts no more when its state changes. */
static inline void sb_member_move(struct sb_member *member, enum sb_member_state state)
{
    member->state = state;
    member->filling = false;
}

/* DOUBTFUL: it was given up while the array was not clean; until it is clean every row with a closed policy that was
 * written is in doubt after each unclean stop. */
enum sb_journal_state { SB_JOURNAL_ACTIVE, SB_JOURNAL_LOST, SB_JOURNAL_DOUBTFUL };

/* A disk that holds the journal in the members' stead: raid/journal_device.h. */
struct sb_journal_device {
    struct uuid uuid;
    enum sb_journal_state state;
    char identity[SB_IDENTITY_SIZE];
    uint64_t start, bytes; /* of the ring; the same on both, if there are two */
};

enum sb_consistency { SB_RESYNC, SB_BITMAP, SB_PPL, SB_JOURNAL };

/* What a scrub found, in blocks of 512 bytes of a chunk: raid/row_scrub.c. */
struct sb_scrub_result {
    uint64_t mismatched, repaired, rewritten, unreadable;
};

enum sb_scrub_mode { SB_SCRUB_NONE, SB_SCRUB_CHECK, SB_SCRUB_REPAIR, SB_SCRUB_PATROL };

struct sb_scrub {
    enum sb_scrub_mode mode;    /* under way */
    uint64_t row;               /* the rows below it are done */
    struct sb_scrub_result now; /* so far */
    uint64_t finished_s;        /* the last one that came to its end, seconds since 1970; 0: none did */
    enum sb_scrub_mode last_mode;
    struct sb_scrub_result last;
    uint64_t called_off_s; /* a patrol that was called off since; 0: none was */
};

/* Zeroes are being written to what was never written; FOREGROUND: and the volume is not served until that is over. */
enum sb_init { SB_INIT_NONE, SB_INIT_BACKGROUND, SB_INIT_FOREGROUND };

/*
 * A relayout under way (docs/relayout.md). The new side is a volume of its own, with the old one's name; its rows
 * beyond the position are unwritten, and so are the old one's that were passed.
 */
struct sb_relayout {
    struct uuid from; /* the volume that this one is the new side of; nil: it is nobody's */
    bool backward;
    uint64_t position; /* bytes of the volume: raid/relayout_plan.h */
    uint64_t logged;   /* the position up to which the log counts; the same: it does not */
    uint64_t log_start, log_bytes; /* where in the headroom of each member; 0 bytes: there is none */
};

struct sb_volume {
    struct uuid uuid;
    struct uuid key; /* under which its region map and journal entries are written; nil: uuid */
    char name[SB_NAME_SIZE];
    struct layout_spec spec; /* jbod: members is 1 */
    unsigned slot;           /* jbod: the member it lies on */
    uint64_t without;        /* not jbod: slots that it passes over. The layout's slot i is the i-th of the others */
    uint64_t start,
        extent;    /* place in the data area of every member, bytes, multiples of 1 MiB (span: extent 0 = all) */
    uint64_t size; /* bytes the volume offers */
    uint32_t logical_block;
    enum sb_consistency consistency; /* without redundancy: SB_RESYNC */
    /* With redundancy, else 0: its region map, one entry a row. */
    uint64_t map_block; /* where in the map area it begins, in pairs of blocks */
    bool unmapped;      /* the map is not on the members yet: no row was ever written */
    struct sb_scrub scrub;
    enum sb_init init; /* under way */
    /* Background work. */
    unsigned priority;           /* percent, at most 100; 0: the usual */
    uint64_t min_rate, max_rate; /* bytes a second of all members together; 0: none */
    bool paused;
    uint64_t rebuilt; /* rows below it are done on members that are `filling`, but for those that are dirty */
    struct sb_relayout relayout;
};

/* Is it only the other side of a volume that stands in the description already? */
static inline bool sb_volume_is_new_side(const struct sb_volume *volume)
{
    return !uuid_is_nil(&volume->relayout.from);
}

/* Under which the region map and the entries of the journal are written. */
static inline const struct uuid *sb_volume_key(const struct sb_volume *volume)
{
    return uuid_is_nil(&volume->key) ? &volume->uuid : &volume->key;
}

/*
 * One line of history: the array ran on under this identity from this generation. A settled line is something else: a
 * history that lost a split brain. What stands under this identity up to this generation was given up by choice; it
 * is stale, and nobody is asked about it again.
 */
struct sb_fork {
    struct uuid id;
    uint64_t generation;
    bool settled;
    bool left;           /* all who were live under it have gone on to the next one: no member stands here any more */
    struct uuid witness; /* a member that was active before it began, and went on under it; nil: not told */
};

/* The description every member carries. */
struct sb_array {
    struct uuid uuid;
    char name[SB_NAME_SIZE];
    uint64_t generation;
    uint64_t committed;            /* a generation that all live members are known to have; 0: none is known */
    uint64_t created_s, updated_s; /* seconds since 1970 */
    bool clean;                    /* no write may be in flight anywhere */
    struct uuid epoch;             /* of the journal: entries with another one mean nothing. Nil: never opened */
    unsigned forks_count;          /* at least 1; the last is the present one */
    struct sb_fork forks[SB_FORKS_MAX];
    /* The plan of every member, bytes: all offsets stand here, none is computed from a constant. */
    uint64_t map_start, map_bytes, journal_start, journal_bytes, headroom_start, headroom_bytes, data_start, data_bytes;
    unsigned members_count;
    struct sb_member members[RAID_MEMBERS_MAX];
    unsigned volumes_count;
    struct sb_volume volumes[SB_VOLUMES_MAX];
    struct bad_list bad;     /* offsets in the members' data areas */
    unsigned journals_count; /* 0: the journal was on the members from the beginning */
    struct sb_journal_device journals[SB_JOURNALS_MAX];
    /* What users of volumes want to be kept, nothing that the array itself understands: "", or a JSON object of objects
     * by the volume's UUID. See superblock_kept_put(). */
    char kept[SB_KEPT_BYTES];
};

/* What one member says: the array's description, and who it believes to be itself. */
struct sb_label {
    struct sb_array array;
    struct uuid member;
    unsigned slot;
    uint64_t tail_generation; /* not on disk: of the newest copy found at the tail; 0: none */
    bool tail_blank; /* not on disk: there is nothing at the tail, where a copy was before there was one here */
    unsigned place;  /* 0 or 1, not on disk: which of the two slots of copies this one was read from, or goes to */
};

/*
 * Bytes written (a multiple of 4 KiB, at most SB_SLOT_BYTES) into `out` of SB_SLOT_BYTES; the rest is of no meaning. 0:
 * it does not fit, or superblock_check() is not content with it: what is written can be read back.
 */
size_t superblock_encode(const struct sb_label *label, uint8_t *out);

enum sb_verdict { SB_VALID, SB_NONE /* no magic */, SB_DAMAGED, SB_UNSUPPORTED /* newer format or unknown feature */ };
/*
 * `why` (may be NULL) gets a sentence when the verdict is not SB_VALID. *label is defined with SB_VALID; with
 * SB_UNSUPPORTED only what stands in the header is: array.uuid, array.generation, member, slot.
 */
enum sb_verdict superblock_decode(const uint8_t *bytes, size_t len, struct sb_label *label, char *why, size_t why_len);
/* How much superblock_decode() wants to see of the superblock that begins with these 4 KiB: a multiple of 4 KiB, and
 * no more than they are when they tell enough. */
size_t superblock_length(const uint8_t *header);

/*
 * Do the parts of a label go together: numbers in range, names printable, areas in order and apart, layouts possible,
 * the member in its own table? NULL, or a sentence. Members' areas must lie before the tail of their size.
 */
const char *superblock_check(const struct sb_label *label);
/* The layout of a volume of a description; false: it has none that can be. */
bool superblock_layout(const struct sb_array *array, const struct sb_volume *volume, struct layout *layout);
/*
 * Both sides of the relayout whose new side this volume is, without a window; false: it is none's, or no layouts can be
 * what it says.
 */
struct relayout;
bool superblock_relayout(const struct sb_array *array, const struct sb_volume *volume, struct relayout *relayout);
/* Features that somebody must know to do anything with this array: the header's incompat bits. */
enum { SB_FEATURE_RELAYOUT = 1 };
uint32_t superblock_features(const struct sb_array *array);
/* Is it a name or identity that can be recorded: ended within `size` bytes, UTF-8, no control characters? */
bool superblock_text_ok(const char *text, size_t size);

/*
 * Fill the plan (map_start .. data_bytes) for members of at least `member_bytes` and volumes of chunks not below
 * `chunk`. journal_bytes is what is wished for, or 0. NULL or why not (too small).
 */
const char *superblock_plan(struct sb_array *array, uint64_t member_bytes, uint32_t chunk);
/* Blocks (pairs) of region map that the array has room for, and that a layout takes. */
uint64_t superblock_map_blocks(const struct sb_array *array);
uint64_t superblock_map_blocks_of(const struct layout *layout);

/* Offset of the tail area on a disk of `member_bytes` (sb_member.size). 0: the disk is too small to have one. */
uint64_t superblock_tail(uint64_t member_bytes);
/* The least ring of a journal device: a record of all members has room in a quarter of it. */
uint64_t superblock_journal_least(unsigned members);

/*
 * Something kept with a volume, by name: a JSON object or array. `json` NULL: forget it. 0, or -EINVAL: it is not, -ENOSPC: all that
 * is kept would be too long together, -ENOMEM; then nothing has changed.
 */
int superblock_kept_put(struct sb_array *array, const struct uuid *volume, const char *name, const char *json);
/* NULL: nothing is. The caller frees it. */
char *superblock_kept_get(const struct sb_array *array, const struct uuid *volume, const char *name);

const char *sb_member_state_name(enum sb_member_state state);
const char *sb_journal_state_name(enum sb_journal_state state);
const char *sb_scrub_mode_name(enum sb_scrub_mode mode);
const char *sb_init_name(enum sb_init init);
const char *sb_consistency_name(enum sb_consistency consistency);
/* Why a volume of this layout cannot have this policy, or NULL; and the one it gets if nothing is said. */
const char *superblock_consistency_check(const struct layout *layout, enum sb_consistency consistency);
enum sb_consistency superblock_consistency_for(const struct layout *layout);

#endif
