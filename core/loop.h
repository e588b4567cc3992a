/*
 * The door to time: now, timers, deferred calls, randomness, a call to another loop.
 *
 * A loop is one thread of events. Everything that lives on it (devices, connections, timers) is touched by that
 * thread only. The daemon puts libevent and io_uring behind this door (daemon/reactor.c), the tests and the simulator
 * an event heap and a seed. core/loop.c is what all of them share: the ready list, the list of the turn's end, and the
 * timers. A door embeds `struct loop`, fills `ops`, and in each turn
 *
 *     sets now_ns, delivers events, calls loop_run() until nothing is ready, then waits until loop_next_timer_ns().
 *
 * Order: tasks run first in, first out. Late tasks (loop_defer_late) run when the ready list has become empty: "once
 * per turn", e.g. one send for all replies of a connection, one submission for all disk requests.
 *
 * Tasks and timers are embedded in their owner; nothing is allocated here. All functions but loop_call() belong to the
 * loop's own thread.
 */
#ifndef CORE_LOOP_H
#define CORE_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct loop;
struct page_pool;

/* A call to be made soon. Owned by whoever embeds it; may be queued again once run() was entered. */
struct task {
    STAILQ_ENTRY(task) link;
    void (*run)(struct task *);
    bool queued; /* written by the loop */
};
STAILQ_HEAD(task_list, task);

/* A call to be made at a time. The links form a pairing heap (core/loop.c). */
struct timer {
    void (*fire)(struct timer *);
    uint64_t due_ns;
    struct timer *child, *next, *prev; /* prev: the parent, for a first child */
    bool armed;
};

struct loop_ops {
    uint64_t (*random)(struct loop *);          /* 64 random bits */
    uint64_t (*wall_clock_s)(struct loop *);    /* seconds since 1970, for dates shown to people */
    void (*call)(struct loop *, struct task *); /* any thread: run the task on this loop */
    bool (*is_current)(const struct loop *);    /* is the caller on this loop's thread? */
};

struct loop {
    const struct loop_ops *ops;
    uint64_t now_ns;         /* monotonic, constant within a turn; written by the door */
    struct page_pool *pages; /* the pool of everything on this loop; set by the door, not owned here */
    struct task_list ready, late;
    struct timer *timers; /* root of the heap, the next one due */
};

void loop_init(struct loop *loop, const struct loop_ops *ops, struct page_pool *pages);

static inline uint64_t loop_now_ns(const struct loop *loop)
{
    return loop->now_ns;
}

uint64_t loop_random(struct loop *loop);
uint64_t loop_wall_clock_s(struct loop *loop);
bool loop_is_current(const struct loop *loop);

/* Run the task in this turn, after what is ready already. The task must not be queued. */
void loop_defer(struct loop *loop, struct task *task);
/* Run the task at the end of this turn, when nothing else is ready. No effect if it is queued already. */
void loop_defer_late(struct loop *loop, struct task *task);
/* Run the task on `loop`, from any thread. The task must not be queued anywhere. */
void loop_call(struct loop *loop, struct task *task);

/* (Re)arm: fire once, after at least `delay_ns`. timer_stop() of an unarmed timer does nothing. */
void timer_start(struct loop *loop, struct timer *timer, uint64_t delay_ns);
void timer_stop(struct loop *loop, struct timer *timer);

/* For the doors only. */
bool loop_run(struct loop *loop, unsigned budget); /* run due timers and up to `budget` tasks; true: more is ready */
void loop_end_turn(struct loop *loop);             /* run the late tasks, though others are ready */
/* Is anything late but, maybe, this task? Then others have been at work in this turn. */
bool loop_has_late(const struct loop *loop, const struct task *but);
uint64_t loop_next_timer_ns(const struct loop *loop); /* due time of the next timer; UINT64_MAX: none */

#endif
