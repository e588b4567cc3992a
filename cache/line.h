/*
 * Lines: the rows of the volume that have dirty blocks, in the order of the disk and in the order of age.
 *
 * A line covers a full row of the volume (or several small ones, or a part of a huge one), so that it can be destaged
 * without a read. Lines are few: only those that are dirty exist, 36 bytes each, a quarter of the blocks' number. They
 * hang in a treap by number; every node knows which classes there are below it, so that the next line of a class behind
 * a place is found in as many steps as the tree is deep.
 *
 *      FULL       every block of it is dirty as a whole: it can go as one full row
 *      PARTIAL    some are
 *      (no class) some are leaving now, or it was set aside
 *      UNLOGGED   something dirty may not be in the log (commit.c)
 *      ANY        each line
 *
 * L1  A line exists exactly while it has dirty blocks, or runs that are leaving.
 * L2  By age: those with dirty blocks that are not set aside, by the epoch in which the oldest of these became dirty:
 *     flushes with a lower one need not wait for them. Epochs never go back, so who joins is the youngest.
 */
#ifndef CACHE_LINE_H
#define CACHE_LINE_H

#include <stdbool.h>
#include <stdint.h>

enum { LINE_FULL = 1, LINE_PARTIAL = 2, LINE_ANY = 4, LINE_UNLOGGED = 8 };
enum { LINES_FRACTION = 4 }; /* of the number of blocks */

struct line {
    uint64_t number : 40, class : 4, below : 4; /* below: classes in its subtree, its own among them */
    uint64_t leaving : 8;                       /* runs */
    uint64_t aside : 1;                         /* its destage failed */
    uint64_t aged : 1;                          /* it is in the list of ages */
    uint64_t unlogged : 1;                      /* see UNLOGGED */
    uint64_t round : 2;                         /* of the log's, that last came by: its low bits */
    uint64_t gappy : 1;                         /* what it lacks of its row could not be read */
    uint32_t left, right;                       /* right: also the next of the free */
    uint32_t older, newer;
    uint32_t epoch, since_ms;
    uint16_t dirty, whole; /* blocks with dirty sectors, with nothing else */
} __attribute__((packed, aligned(4)));

struct lines {
    struct line *table;
    uint32_t count, used, free, root;
    uint32_t oldest, newest;
    uint32_t aside;  /* how many are */
    uint32_t blocks; /* in a line */
    uint32_t salt;
};

bool lines_init(struct lines *lines, uint32_t count, uint32_t blocks, uint32_t salt); /* false: no memory */
void lines_fini(struct lines *lines);
uint64_t lines_bytes(uint32_t count);

struct line *line_find(const struct lines *lines, uint64_t number);
/* ... or a new one; NULL: all are in use. Settle it. */
struct line *line_get(struct lines *lines, uint64_t number);
/* After its counts or flags changed. It may be no more on return. */
void line_settle(struct lines *lines, struct line *line);
/* Nobody destages a line that is set aside, until lines_recall(). Settles it. */
void line_set_aside(struct lines *lines, struct line *line);
/* None is aside any more: they are as if they had become dirty in this epoch. */
void lines_recall(struct lines *lines, uint32_t epoch);
/* The first at or behind `number` that is of one of the classes; NULL: none. */
struct line *line_next(const struct lines *lines, uint64_t number, unsigned classes);
struct line *line_oldest(const struct lines *lines);
/* The next younger one. */
struct line *line_younger(const struct lines *lines, const struct line *line);

#endif
