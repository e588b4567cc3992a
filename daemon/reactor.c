/*
 * The turn, the mailbox, the clock: see daemon/reactor.h.
 *
 *      wait once  ->  mail  ->  completions  ->  ready and late tasks  ->  submit once
 *      (libevent:                                (bounded; sends are
 *       sockets are read)                         late tasks)
 *
 * System calls are paid per turn: one epoll_wait, one io_uring_enter, and one sendmsg for each connection that has
 * replies. A turn that left something ready does not sleep in the next wait.
 *
 * Time stands still while the process is stopped (a machine that is paused or moved, a debugger, SIGSTOP), or does not
 * get to run. Else the first thing to happen behind such a pause would be that all deadlines have passed: disks that
 * have answered long ago would be given up before anybody has looked. So a turn that comes more than 2 s after the
 * timer that was to wake it counts as one second.
 *
 * The mailbox is a stack of tasks: a caller pushes with compare-and-swap, the reactor takes the whole stack and turns
 * it round. Whoever pushes on an empty stack writes the eventfd; the others know that this is done. The eventfd is
 * watched edge-triggered and so is never read.
 *
 * The next timer wakes us by a timerfd, watched in the same way. It is set anew only when it would ring too late: to
 * set one costs more than a small request on a virtual machine, and most timers are stopped before they are due. When
 * it rings too early the turn that comes of it sets it right. (libevent's own precise timers set one in every wait.)
 */
#include "daemon/reactor.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "core/page.h"
#include "daemon/helpers.h"
#include "daemon/ring.h"

enum {
    TASKS_PER_TURN = 512, /* then look at the sockets and the ring again: about a millisecond */
    DEFAULT_RING_ENTRIES = 1024,
    HELPER_THREADS = 4,
    SPIN_NS = 40000, /* see wait_awake() */
};

#define LAST_WAIT_NS 2000000000ull /* for disks, at the end */
#define STOPPED_NS   2000000000ull /* behind a timer that is due */
#define RESUMED_NS   1000000000ull

struct reactor {
    struct loop loop;
    char name[16];
    struct event_base *base;
    struct event mail_event, ring_event, alarm_event;
    struct ring *ring;
    struct helpers *helpers;
    int mail_fd, alarm_fd;
    bool started;
    bool woken;        /* now_ns was taken since the wait */
    bool more;         /* the last turn left tasks ready */
    bool spins;        /* the last wait was over within SPIN_NS */
    uint64_t alarm_ns; /* the time the alarm is set to, not behind the next timer; UINT64_MAX: not set */
    uint64_t stood_ns; /* how long time stood still, in all */
    uint64_t random[32];
    unsigned random_used; /* of them */
    pthread_t thread;
    /* What other threads touch. */
    _Atomic(struct task *) mail;
    _Atomic pthread_t current; /* 0: the thread that is starting */
    atomic_bool stopping;
    atomic_uint_fast64_t turns;
};

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* --- the loop's operations --- */

/* So many bytes the kernel gives whole or not at all, and fails only where it knows no getrandom() (getrandom(2)). */
static bool random_fill(struct reactor *r)
{
    static_assert(sizeof r->random <= 256, "what getrandom() gives in one piece");
    r->random_used = 0;
    return getrandom(r->random, sizeof r->random, 0) == sizeof r->random;
}

/* None may be guessed from others: tokens of copies are made of them, and initiators see those. */
static uint64_t reactor_random(struct loop *loop)
{
    struct reactor *r = reactor_of(loop);
    if (r->random_used == ARRAY_LENGTH(r->random))
        ASSERT(random_fill(r));
    uint64_t value = r->random[r->random_used];
    r->random[r->random_used++] = 0;
    return value;
}

static uint64_t reactor_wall_clock(struct loop *loop)
{
    (void)loop;
    return (uint64_t)time(NULL);
}

static bool reactor_is_current(const struct loop *loop)
{
    const struct reactor *r = container_of(loop, struct reactor, loop);
    return pthread_equal(atomic_load_explicit(&r->current, memory_order_relaxed), pthread_self());
}

static void ring_the_bell(struct reactor *r)
{
    uint64_t one = 1;
    ssize_t written = write(r->mail_fd, &one, sizeof one);
    ASSERT(written == sizeof one);
}

static void reactor_call(struct loop *loop, struct task *task)
{
    struct reactor *r = reactor_of(loop);
    if (reactor_is_current(loop)) {
        loop_defer(loop, task);
        return;
    }
    struct task *top = atomic_load_explicit(&r->mail, memory_order_relaxed);
    do {
        task->link.stqe_next = top;
    } while (!atomic_compare_exchange_weak_explicit(&r->mail, &top, task, memory_order_release, memory_order_relaxed));
    if (top == NULL)
        ring_the_bell(r);
}

static const struct loop_ops reactor_ops = {reactor_random, reactor_wall_clock, reactor_call, reactor_is_current};

/* The newest is on top: turn the stack round, then queue. */
static void collect_mail(struct reactor *r)
{
    if (atomic_load_explicit(&r->mail, memory_order_relaxed) == NULL)
        return;
    struct task *task = atomic_exchange_explicit(&r->mail, NULL, memory_order_acquire), *oldest = NULL;
    while (task != NULL) {
        struct task *next = task->link.stqe_next;
        task->link.stqe_next = oldest;
        oldest = task;
        task = next;
    }
    while (oldest != NULL) {
        struct task *next = oldest->link.stqe_next;
        loop_defer(&r->loop, oldest);
        oldest = next;
    }
}

/* --- the turn --- */

/* The loop's time: that of the machine, without what was slept through. */
static uint64_t time_ns(const struct reactor *r)
{
    return clock_ns() - r->stood_ns;
}

void reactor_woken(struct reactor *r)
{
    if (r->woken)
        return;
    uint64_t now = time_ns(r), due = loop_next_timer_ns(&r->loop);
    if (now > STOPPED_NS && now - STOPPED_NS > due && now - r->loop.now_ns > STOPPED_NS) {
        uint64_t stood = now - r->loop.now_ns - RESUMED_NS;
        log_warn("reactor %s did not run for %llu s: stopped, or the machine is too busy", r->name,
                 (unsigned long long)(stood + RESUMED_NS) / 1000000000);
        r->stood_ns += stood;
        now -= stood;
    }
    r->woken = true;
    r->loop.now_ns = now;
}

/* The wait was ended; what is there is collected by the turn. */
static void wake_up(evutil_socket_t fd, short what, void *data)
{
    (void)fd;
    (void)what;
    reactor_woken(data);
}

static void alarm_rings(evutil_socket_t fd, short what, void *data)
{
    wake_up(fd, what, data);
    ((struct reactor *)data)->alarm_ns = UINT64_MAX;
}

static bool is_busy(const struct reactor *r)
{
    return r->more || !STAILQ_EMPTY(&r->loop.ready) || !STAILQ_EMPTY(&r->loop.late) ||
           atomic_load_explicit(&r->mail, memory_order_relaxed) != NULL || (r->ring != NULL && ring_is_ready(r->ring));
}

/* See to it that we are woken when the next timer is due. True if it is due already. */
static bool set_alarm(struct reactor *r)
{
    uint64_t due = loop_next_timer_ns(&r->loop);
    if (due >= r->alarm_ns)
        return false;
    if (due <= time_ns(r))
        return true;
    uint64_t clock = due + r->stood_ns;
    struct itimerspec at = {.it_value = {(time_t)(clock / 1000000000), (long)(clock % 1000000000)}};
    int error = timerfd_settime(r->alarm_fd, TFD_TIMER_ABSTIME, &at, NULL);
    ASSERT(error == 0);
    r->alarm_ns = due;
    return false;
}

/*
 * Going to sleep and being woken costs as much as a small request. So while a client answers quickly, as one with a
 * single request in flight does, we look for its next request for a moment before we sleep; one look in vain, and we
 * do not look again until a sleep turns out to have been short. Who is idle costs nothing.
 */
static void wait_for_events(struct reactor *r)
{
    uint64_t start = time_ns(r), now = start;
    while (r->spins && !r->woken && now < start + SPIN_NS) {
        event_base_loop(r->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
        now = time_ns(r);
    }
    if (!r->woken)
        event_base_loop(r->base, EVLOOP_ONCE);
    reactor_woken(r);
    r->spins = r->loop.now_ns - start < SPIN_NS;
}

static void turn(struct reactor *r)
{
    if (set_alarm(r) || is_busy(r))
        event_base_loop(r->base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    else
        wait_for_events(r);
    reactor_woken(r);
    collect_mail(r);
    if (r->ring != NULL)
        ring_reap(r->ring);
    r->more = loop_run(&r->loop, TASKS_PER_TURN);
    if (r->more) /* a job on fast disks keeps the ready list full: the replies of others must leave nevertheless */
        loop_end_turn(&r->loop);
    if (r->ring != NULL)
        ring_submit(r->ring);
    r->woken = false;
    atomic_fetch_add_explicit(&r->turns, 1, memory_order_relaxed);
}

void reactor_run(struct reactor *r)
{
    atomic_store(&r->current, pthread_self());
    while (!atomic_load_explicit(&r->stopping, memory_order_acquire))
        turn(r);
    atomic_store(&r->stopping, false);
}

void reactor_stop(struct reactor *r)
{
    atomic_store(&r->stopping, true);
    ring_the_bell(r);
}

static void *thread_main(void *data)
{
    struct reactor *r = data;
    pthread_setname_np(pthread_self(), r->name);
    reactor_run(r);
    return NULL;
}

int reactor_start(struct reactor *r)
{
    ASSERT(!r->started && reactor_is_current(&r->loop));
    sigset_t all, before; /* signals are for the main thread */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_store(&r->current, 0);
    int error = pthread_create(&r->thread, NULL, thread_main, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        atomic_store(&r->current, pthread_self());
    r->started = error == 0;
    return -error;
}

void reactor_join(struct reactor *r)
{
    ASSERT(r->started);
    pthread_join(r->thread, NULL);
    r->started = false;
    atomic_store(&r->current, pthread_self());
}

/* --- birth and death --- */

static struct event_base *create_base(void)
{
    struct event_config *config = event_config_new();
    if (config == NULL)
        return NULL;
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK); /* the mailbox is the only way in from other threads */
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

static bool watch_edges(struct reactor *r, struct event *event, int fd, event_callback_fn woken)
{
    if (fd < 0)
        return false;
    event_assign(event, r->base, fd, EV_READ | EV_PERSIST | EV_ET, woken, r);
    return event_add(event, NULL) == 0;
}

static bool create_bells(struct reactor *r)
{
    r->mail_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r->alarm_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    return watch_edges(r, &r->mail_event, r->mail_fd, wake_up) &&
           watch_edges(r, &r->alarm_event, r->alarm_fd, alarm_rings);
}

static bool create_ring(struct reactor *r, const struct reactor_options *options)
{
    if (options->no_uring)
        return true;
    int error;
    r->ring = ring_create(options->ring_entries > 0 ? options->ring_entries : DEFAULT_RING_ENTRIES, &error);
    if (r->ring == NULL) {
        log_notice("reactor %s: io_uring is not available (%s); disks are served by threads", r->name, strerror(error));
        return true;
    }
    event_assign(&r->ring_event, r->base, ring_fd(r->ring), EV_READ | EV_PERSIST, wake_up, r);
    return event_add(&r->ring_event, NULL) == 0;
}

static bool create_parts(struct reactor *r, const struct reactor_options *options)
{
    if (!random_fill(r))
        return false;
    r->base = create_base();
    if (r->base == NULL)
        return false;
    return create_bells(r) && create_ring(r, options);
}

static void free_parts(struct reactor *r)
{
    if (r->base != NULL) {
        if (r->ring != NULL)
            event_del(&r->ring_event);
        if (event_initialized(&r->mail_event))
            event_del(&r->mail_event);
        if (event_initialized(&r->alarm_event))
            event_del(&r->alarm_event);
        event_base_free(r->base);
    }
    if (r->ring != NULL)
        ring_destroy(r->ring);
    if (r->mail_fd >= 0)
        close(r->mail_fd);
    if (r->alarm_fd >= 0)
        close(r->alarm_fd);
    if (r->loop.pages != NULL)
        page_pool_retire(r->loop.pages);
    free(r);
}

struct reactor *reactor_create(const struct reactor_options *options, char *why, size_t why_len)
{
    struct reactor *r = calloc(1, sizeof *r);
    struct page_pool *pages = options->pages > 0 ? page_pool_create(options->pages) : NULL;
    if (r == NULL || (pages == NULL && options->pages > 0)) {
        text_format(why, why_len, "reactor %s: not enough memory for %u pages", options->name, options->pages);
        free(r);
        return NULL;
    }
    loop_init(&r->loop, &reactor_ops, pages);
    text_format(r->name, sizeof r->name, "%s", options->name);
    r->mail_fd = r->alarm_fd = -1;
    r->alarm_ns = UINT64_MAX;
    r->loop.now_ns = clock_ns();
    atomic_store(&r->current, pthread_self());
    if (!create_parts(r, options)) {
        text_format(why, why_len, "reactor %s cannot be set up: %s", options->name, strerror(errno));
        free_parts(r);
        return NULL;
    }
    return r;
}

struct last_wait {
    struct timer timer;
    bool over;
};

static void last_wait_over(struct timer *timer)
{
    container_of(timer, struct last_wait, timer)->over = true;
}

/* A disk that was left alone because it does not answer (raid/patience.h) may still fill the pages: they stay. */
void reactor_destroy(struct reactor *r)
{
    ASSERT(!r->started && reactor_is_current(&r->loop));
    struct last_wait wait = {.timer.fire = last_wait_over};
    bool idle = r->helpers == NULL || helpers_destroy(r->helpers);
    timer_start(&r->loop, &wait.timer, LAST_WAIT_NS);
    while (!wait.over && (is_busy(r) || (r->ring != NULL && !ring_is_idle(r->ring))))
        turn(r);
    timer_stop(&r->loop, &wait.timer);
    if (idle && !wait.over)
        free_parts(r);
    else
        log_warn("reactor %s ends while a disk has not answered", r->name);
}

/* --- looking in --- */

struct loop *reactor_loop(struct reactor *r)
{
    return &r->loop;
}

struct reactor *reactor_of(struct loop *loop)
{
    ASSERT(loop->ops == &reactor_ops);
    return container_of(loop, struct reactor, loop);
}

struct event_base *reactor_base(struct reactor *r)
{
    return r->base;
}

bool reactor_has_uring(const struct reactor *r)
{
    return r->ring != NULL;
}

uint64_t reactor_turns(const struct reactor *r)
{
    return atomic_load_explicit(&r->turns, memory_order_relaxed);
}

struct ring *reactor_ring(struct reactor *r)
{
    return r->ring;
}

struct helpers *reactor_helpers(struct reactor *r)
{
    if (r->helpers != NULL)
        return r->helpers;
    ASSERT(reactor_is_current(&r->loop));
    r->helpers = helpers_create(HELPER_THREADS);
    return r->helpers;
}
