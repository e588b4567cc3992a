/*
 * Relayout, as values: a volume's bytes move from one shape to another, in place, step by step. What may be moved when,
 * where a byte lives meanwhile, and what cannot be done at all. No I/O: who reads, writes, flushes is no concern here.
 * docs/relayout.md has the algorithm and why it is right.
 *
 * A shape is a layout and where it stands on the members. The volume's bytes are moved in order: forward, from the
 * first on, or backward, from the last. The position parts them: what was passed lives in the new shape, the rest in
 * the old one. It stands on disk, and is moved only when what it tells is durable. A position is a border of rows of
 * the new shape, or the volume's end.
 *
 * M1  At each position that ever stood on disk, no place of a row of the new shape that was passed is also one of a row
 *     of the old shape that holds a byte that was not (relayout_rests). So both sides are whole, with all their
 *     redundancy: what either bears to lose may be lost at any time.
 * M2  A free step writes rows of the new shape to places that are in M1's sense clear at the position on disk. So until
 *     the position is moved the old side is whole, also as far as the step has come.
 * M3  A logged step needs M1 at its end only. Its rows may lie over the old ones that it moves itself; so all of
 *     them, redundancy and all, first go to the log, durably, then the other end of the step to disk: from there on
 *     they count there, and a crash is followed by copying them to their places. The log is laid out as the new shape
 *     is, over the same members, its rows counted from 0: so it bears what the new shape bears.
 * M4  In place: where the new shape uses a member of the old one, the bytes that belong there are there already. Both
 *     sides' places are the same then, so the position rests only at borders of rows of both.
 * M5  What relayout_plan() is content with never comes to a position from which there is no step.
 */
#ifndef RAID_RELAYOUT_PLAN_H
#define RAID_RELAYOUT_PLAN_H

#include "raid/layout.h"

enum { RELAYOUT_NOWHERE = 0xff };

struct relayout_shape {
    struct layout layout;
    uint64_t start;                        /* of its extent on each member, bytes of the device */
    uint8_t slot[RAID_MEMBERS_MAX];        /* the array's slot of each of the layout's */
    uint8_t layout_slot[RAID_MEMBERS_MAX]; /* and back; RELAYOUT_NOWHERE */
};

struct relayout {
    struct relayout_shape from, to;
    uint64_t size; /* bytes of the volume */
    bool backward, in_place;
    uint64_t window; /* bytes of a member that a step moves, about, and one row at least */
    uint64_t log;    /* bytes of each member for the log; 0: none */
};

/* --- deciding --- */

/* Byte offsets are the members' devices'. A shape passes over array slots of its set `without`. */
struct relayout_request {
    struct layout_spec from, to;
    uint64_t from_without, to_without;
    uint64_t size;
    uint64_t start, extent; /* of the old shape; span: extent has no meaning */
    uint64_t low, high;     /* what the new shape may use of each member, the old extent in it; multiples of 1 MiB */
    const uint64_t *end;    /* span: where the room on each member ends, by array slot */
    uint64_t lost;          /* array slots that cannot be read now */
    uint64_t window, log;
    bool pack; /* as far down as it goes: the old extent is not all that is to be used anew */
};

struct relayout_plan {
    struct relayout relayout;
    uint64_t extent;        /* bytes of each member that the new shape takes, from relayout.to.start on; span: 0 */
    uint64_t read, written; /* bytes, of all members together, if every byte of the volume was once written */
    uint64_t logged;        /* and to their logs, about */
    unsigned tolerance;     /* members that may be lost meanwhile, in the worst case, all members being there */
    char mistake[240];      /* the sentence of a relayout_plan() that failed */
};

/* NULL, or a sentence that says why not; it lives in *plan. */
const char *relayout_plan(const struct relayout_request *request, struct relayout_plan *plan);

/* For who finds a relayout under way described on disk. NULL, or what layout_init() says. */
const char *relayout_shape_init(struct relayout_shape *shape, const struct layout_spec *spec, uint64_t without,
                                uint64_t start, const uint64_t *extent_by_layout_slot);
/* The same without its layout, which is there already. */
void relayout_shape_place(struct relayout_shape *shape, uint64_t without, uint64_t start);
/* M4. */
bool relayout_is_in_place(const struct relayout_shape *from, const struct relayout_shape *to, uint64_t size);
/* M5. False: from position *stuck there is no step. Else *logged: bytes to logs, of all members, about. */
bool relayout_is_passable(const struct relayout *r, uint64_t *stuck, uint64_t *logged);
/* Is every row of the shape readable without these array slots? */
bool relayout_shape_survives(const struct relayout_shape *shape, uint64_t lost);

/* --- going --- */

uint64_t relayout_begin(const struct relayout *r); /* the first position */
uint64_t relayout_end(const struct relayout *r);   /* the last one */
/* M1; for positions only. */
bool relayout_rests(const struct relayout *r, uint64_t position);

struct relayout_step {
    bool logged;
    /* Volume bytes that it moves: forward from position `first` to `end`, backward the other way. */
    uint64_t first, end;
    uint64_t row, rows; /* of the new shape */
};
/* The longest step from a position. False: it is the end. */
bool relayout_step(const struct relayout *r, uint64_t position, struct relayout_step *step);
/* A free step may end earlier: after so many of its rows, or at the next border where the position may rest. */
void relayout_step_cut(const struct relayout *r, uint64_t rows, struct relayout_step *step);
/* The farthest position that one step comes to, of either kind; `position` itself: there is none. */
uint64_t relayout_reach(const struct relayout *r, uint64_t position);
/* Bytes of log that the shortest logged step from here takes; 0: there is none, however large the log. */
uint64_t relayout_log_needed(const struct relayout *r, uint64_t position);
/*
 * Where nothing between two positions was ever written there is nothing to move: the farthest position up to `limit`
 * (a volume byte) where it rests. `position` itself: there is none.
 */
uint64_t relayout_skip(const struct relayout *r, uint64_t position, uint64_t limit);

/* Bytes of a member that rows of a shape take: one range. */
struct relayout_range {
    uint64_t off, len;
};
struct relayout_range relayout_range(const struct relayout_shape *shape, uint64_t row, uint64_t rows, unsigned slot);
/* The old shape's rows that hold bytes of the step. */
void relayout_step_sources(const struct relayout *r, const struct relayout_step *step, uint64_t *row, uint64_t *rows);
/* The shape of the log, for a place that it is given. */
void relayout_log_shape(const struct relayout *r, uint64_t start, struct relayout_shape *shape);
/* Array slots that hold the new shape's bytes before they are written: M4. */
uint64_t relayout_kept(const struct relayout *r);

/* --- serving meanwhile --- */

enum relayout_home {
    RELAYOUT_OLD,
    RELAYOUT_NEW,
    /* In the step under way. Free: the old side is right until the step is over, so reads go there; a write goes to the
     * old side, and to what was written of the new one. Logged: everybody waits. */
    RELAYOUT_MOVING,
};
/* Whose is byte `off`, with a step under way that ends at position `moving` (the same as `position`: none)? And how
 * many bytes from it on are alike. */
enum relayout_home relayout_home(const struct relayout *r, uint64_t position, uint64_t moving, uint64_t off,
                                 uint64_t *len);

/*
 * The way back, from here: what was passed becomes what is to be moved, the position stays. False: this position is not
 * a border of rows of the old shape (the next one that is comes at the latest after relayout_period() bytes), or the
 * log is too small for that direction.
 */
bool relayout_turn(struct relayout *r, uint64_t position);
/* Bytes of the volume after which both shapes stand to each other as they do at its beginning. */
uint64_t relayout_period(const struct relayout *r);

#endif
