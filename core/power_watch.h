/*
 * How many hear of one thing: the health of the power source, told from the loop that knows it to others.
 *
 * The board is the teller's, on its loop. A watch is embedded in who wants to hear, on whichever loop: it is told what
 * is once it has started, then each change, in order; changes that come faster than they are heard are told as one.
 * Nothing is allocated and nothing locked: a task, the ball, goes to and fro between the two loops, and the value
 * beside it belongs to the loop that has the ball.
 */
#ifndef CORE_POWER_WATCH_H
#define CORE_POWER_WATCH_H

#include <sys/queue.h>

#include "core/loop.h"
#include "core/power.h"

struct power_board {
    struct loop *loop;
    struct power_health health;
    LIST_HEAD(, power_watch) watches;
};

struct power_watch {
    /* On the watch's loop. The health is the caller's, valid during the call. */
    void (*changed)(struct power_watch *watch, const struct power_health *health);
    /* Private. */
    struct loop *loop;
    struct power_board *board;
    bool stopped; /* the watch's loop */
    struct task ball;
    struct power_health told; /* of the loop that has the ball */
    LIST_ENTRY(power_watch) link;
    bool away, outdated, leaving; /* the board's loop: the ball is with the watch; there is news; it is to be let go */
    struct task farewell, *gone;
};

/* On its loop. It must outlive its watches. */
void power_board_init(struct power_board *board, struct loop *loop);
/* On its loop: what is now. Told if it differs by more than words. */
void power_board_set(struct power_board *board, const struct power_health *health);

/* On the watch's loop; `changed` is set. */
void power_watch_start(struct power_watch *watch, struct power_board *board, struct loop *loop);
/* On the watch's loop: changed() is called no more. `gone` is run there when the watch may be freed. */
void power_watch_stop(struct power_watch *watch, struct task *gone);

#endif
