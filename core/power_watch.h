/*
 * How many hear of one thing: the health of the power source and what follows from it, told from the loop that knows it
 * to others; and what those others have to save before the battery ends, told back.
 *
 * The board is the teller's, on its loop. A watch is embedded in who wants to hear, on whichever loop: it is told what
 * is once it has started, then each change, in order, and whenever the board asks; changes that come faster than they
 * are heard are told as one. Nothing is allocated and nothing locked: a task, the ball, goes to and fro between the two
 * loops, and the values beside it belong to the loop that has the ball.
 */
#ifndef CORE_POWER_WATCH_H
#define CORE_POWER_WATCH_H

#include <sys/queue.h>

#include "core/loop.h"
#include "core/power.h"

struct power_news {
    struct power_health health;
    uint64_t shutdown_s; /* what the machine needs to stop, once all is saved */
    bool rest;           /* background work is not to run */
    bool hurry;          /* the machine was told to stop: what cannot be written is not tried for long */
    unsigned drain; /* counted up each time that all that is in memory only is to go to the disks, and be flushed */
};

/* What somebody has to save. */
struct power_load {
    uint64_t dirty_bytes;
    uint64_t seconds; /* that takes */
    unsigned drained; /* the last drain that was carried out */
};

struct power_board {
    struct loop *loop;
    struct power_news news;
    LIST_HEAD(, power_watch) watches;
};

struct power_watch {
    /* On the watch's loop. The news are the caller's, valid during the call. Says in *load what there is to save. */
    void (*changed)(struct power_watch *watch, const struct power_news *news, struct power_load *load);
    /* Private. */
    struct loop *loop;
    struct power_board *board;
    bool stopped; /* the watch's loop */
    struct task ball;
    struct power_news told; /* both of the loop that has the ball */
    struct power_load load;
    struct power_load answered; /* the board's loop */
    LIST_ENTRY(power_watch) link;
    bool away, outdated, leaving; /* the board's loop: the ball is with the watch; there is news; it is to be let go */
    struct task farewell, *gone;
};

/* On its loop. It must outlive its watches. */
void power_board_init(struct power_board *board, struct loop *loop);
/* On its loop: what is now. Told if it differs by more than words. */
void power_board_set(struct power_board *board, const struct power_news *news);
/* On its loop: ask all watches what they have to save, though nothing changed. */
void power_board_ask(struct power_board *board);
/* On its loop: what all have to save, as last answered: bytes together, the longest time (they work side by side), the
 * drain that all have carried out. */
struct power_load power_board_load(const struct power_board *board);

/* On the watch's loop; `changed` is set. */
void power_watch_start(struct power_watch *watch, struct power_board *board, struct loop *loop);
/* On the watch's loop: changed() is called no more. `gone` is run there when the watch may be freed. */
void power_watch_stop(struct power_watch *watch, struct task *gone);

#endif
