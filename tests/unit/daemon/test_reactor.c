#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/check.h"
#include "daemon/helpers.h"
#include "daemon/reactor.h"

static struct reactor *new_reactor(bool no_uring)
{
    char why[200] = "";
    struct reactor_options options = {.name = "test", .pages = 8, .ring_entries = 8, .no_uring = no_uring};
    struct reactor *r = reactor_create(&options, why, sizeof why);
    cr_assert_not_null(r, "%s", why);
    return r;
}

/* --- the mailbox --- */

enum { CALLS = 10000 };

struct letter {
    struct task task;
    struct box *box;
    unsigned number;
};

struct box {
    struct reactor *reactor;
    unsigned arrived, out_of_order, wrong_thread;
    struct letter letters[CALLS];
};

static void letter_read(struct task *task)
{
    struct letter *l = container_of(task, struct letter, task);
    struct box *box = l->box;
    box->wrong_thread += !loop_is_current(reactor_loop(box->reactor));
    box->out_of_order += l->number != box->arrived;
    if (++box->arrived == CALLS)
        reactor_stop(box->reactor);
}

static void *write_letters(void *data)
{
    struct box *box = data;
    cr_expect_not(loop_is_current(reactor_loop(box->reactor)));
    for (unsigned i = 0; i < CALLS; i++)
        loop_call(reactor_loop(box->reactor), &box->letters[i].task);
    return NULL;
}

static struct box *new_box(struct reactor *r)
{
    struct box *box = calloc(1, sizeof *box);
    cr_assert_not_null(box);
    box->reactor = r;
    for (unsigned i = 0; i < CALLS; i++)
        box->letters[i] = (struct letter){.task.run = letter_read, .box = box, .number = i};
    return box;
}

Test(reactor, ten_thousand_calls_of_another_thread_arrive_in_order, .timeout = 60)
{
    struct reactor *r = new_reactor(false);
    struct box *box = new_box(r);
    pthread_t writer;
    cr_assert_eq(pthread_create(&writer, NULL, write_letters, box), 0);
    reactor_run(r);
    pthread_join(writer, NULL);
    cr_expect_eq(box->arrived, CALLS);
    cr_expect_eq(box->out_of_order, 0);
    cr_expect_eq(box->wrong_thread, 0);
    free(box);
    reactor_destroy(r);
}

Test(reactor, a_started_one_runs_in_its_own_thread_until_stopped, .timeout = 60)
{
    struct reactor *r = new_reactor(true);
    struct box *box = new_box(r);
    cr_expect(loop_is_current(reactor_loop(r)), "the creator may fill it");
    cr_assert_eq(reactor_start(r), 0);
    cr_expect_not(loop_is_current(reactor_loop(r)));
    write_letters(box); /* the last one stops it */
    reactor_join(r);
    cr_expect(loop_is_current(reactor_loop(r)), "who joins it has it back");
    cr_expect_eq(box->arrived, CALLS);
    cr_expect_eq(box->out_of_order, 0);
    cr_expect_eq(box->wrong_thread, 0);
    cr_expect_gt(reactor_turns(r), 0);
    free(box);
    reactor_destroy(r);
}

Test(reactor, a_stop_before_the_run_is_not_lost, .timeout = 60)
{
    struct reactor *r = new_reactor(false);
    reactor_stop(r);
    reactor_run(r);
    cr_expect_eq(reactor_turns(r), 0);
    reactor_destroy(r);
}

/* --- timers --- */

struct alarm {
    struct timer timer;
    struct reactor *reactor;
    uint64_t fired_ns;
    bool last;
};

static void alarm_fired(struct timer *timer)
{
    struct alarm *a = container_of(timer, struct alarm, timer);
    a->fired_ns = loop_now_ns(reactor_loop(a->reactor));
    if (a->last)
        reactor_stop(a->reactor);
}

Test(reactor, timers_fire_in_order_and_never_early_and_the_wait_sleeps, .timeout = 60)
{
    static const uint64_t delay_ms[] = {30, 1, 0, 12};
    struct reactor *r = new_reactor(false);
    struct alarm alarms[ARRAY_LENGTH(delay_ms)], stopped = {.timer.fire = alarm_fired, .reactor = r};
    for (unsigned i = 0; i < ARRAY_LENGTH(delay_ms); i++) {
        alarms[i] = (struct alarm){.timer.fire = alarm_fired, .reactor = r, .last = i == 0};
        timer_start(reactor_loop(r), &alarms[i].timer, delay_ms[i] * 1000000);
    }
    timer_start(reactor_loop(r), &stopped.timer, 5000000);
    timer_stop(reactor_loop(r), &stopped.timer);
    reactor_run(r);
    for (unsigned i = 0; i < ARRAY_LENGTH(delay_ms); i++)
        cr_expect(alarms[i].fired_ns >= alarms[i].timer.due_ns, "timer %u is early", i);
    cr_expect(alarms[2].fired_ns <= alarms[1].fired_ns && alarms[1].fired_ns <= alarms[3].fired_ns &&
              alarms[3].fired_ns <= alarms[0].fired_ns);
    cr_expect_eq(stopped.fired_ns, 0);
    cr_expect_lt(reactor_turns(r), 100, "%lu turns: it does not spin", reactor_turns(r));
    reactor_destroy(r);
}

/* The next alarm of each is the following one; the earlier comes to be set after the later. */
struct relay {
    struct alarm first, stopped, second, sooner;
};

static void relay_fired(struct timer *timer)
{
    struct relay *relay = container_of(timer, struct relay, first.timer);
    struct loop *loop = reactor_loop(relay->first.reactor);
    alarm_fired(timer);
    timer_stop(loop, &relay->stopped.timer);
    timer_start(loop, &relay->second.timer, 40000000);
    timer_start(loop, &relay->sooner.timer, 20000000);
}

Test(reactor, an_alarm_for_a_timer_that_was_stopped_does_no_harm, .timeout = 60)
{
    struct reactor *r = new_reactor(false);
    const struct alarm alarm = {.timer.fire = alarm_fired, .reactor = r};
    struct relay relay = {alarm, alarm, alarm, alarm};
    relay.first.timer.fire = relay_fired;
    relay.second.last = true;
    timer_start(reactor_loop(r), &relay.stopped.timer, 10000000);
    timer_start(reactor_loop(r), &relay.first.timer, 2000000);
    reactor_run(r);
    cr_expect_eq(relay.stopped.fired_ns, 0);
    cr_expect_geq(relay.sooner.fired_ns, relay.sooner.timer.due_ns);
    cr_expect_geq(relay.second.fired_ns, relay.second.timer.due_ns);
    cr_expect_leq(relay.sooner.fired_ns, relay.second.fired_ns);
    cr_expect_lt(reactor_turns(r), 100, "%lu turns: it does not spin", reactor_turns(r));
    reactor_destroy(r);
}

/* --- tasks --- */

struct step {
    struct task task;
    struct reactor *reactor;
    char name, *log;
    struct step *then;
};

static void step_run(struct task *task)
{
    struct step *s = container_of(task, struct step, task);
    s->log[strlen(s->log)] = s->name;
    if (s->then != NULL)
        loop_defer(reactor_loop(s->reactor), &s->then->task);
    if (s->name == 'z')
        reactor_stop(s->reactor);
}

Test(reactor, late_tasks_run_after_everything_ready_in_the_same_turn, .timeout = 60)
{
    char log[8] = "";
    struct reactor *r = new_reactor(true);
    struct step b = {{.run = step_run}, r, 'b', log, NULL}, a = {{.run = step_run}, r, 'a', log, &b},
                z = {{.run = step_run}, r, 'z', log, NULL};
    loop_defer_late(reactor_loop(r), &z.task);
    loop_defer_late(reactor_loop(r), &z.task);
    loop_defer(reactor_loop(r), &a.task);
    reactor_run(r);
    cr_expect_str_eq(log, "abz");
    cr_expect_eq(reactor_turns(r), 1);
    reactor_destroy(r);
}

struct treadmill {
    struct task task, late;
    struct reactor *reactor;
    unsigned steps;
};

static void tread(struct task *task)
{
    struct treadmill *t = container_of(task, struct treadmill, task);
    if (++t->steps < 1000000)
        loop_defer(reactor_loop(t->reactor), task);
}

static void step_off(struct task *task)
{
    reactor_stop(container_of(task, struct treadmill, late)->reactor);
}

Test(reactor, late_tasks_are_not_starved_by_a_list_that_never_empties, .timeout = 60)
{
    struct reactor *r = new_reactor(true);
    struct treadmill t = {.task.run = tread, .late.run = step_off, .reactor = r};
    loop_defer_late(reactor_loop(r), &t.late);
    loop_defer(reactor_loop(r), &t.task);
    reactor_run(r);
    cr_expect_eq(reactor_turns(r), 1);
    cr_expect(t.steps > 1 && t.steps < 10000, "%u steps", t.steps);
    t.steps = 1000000;
    reactor_destroy(r);
}

Test(reactor, random_numbers_differ)
{
    struct reactor *r = new_reactor(true), *other = new_reactor(true);
    uint64_t ones = 0, zeros = 0;
    for (unsigned i = 0; i < 64; i++) {
        uint64_t value = loop_random(reactor_loop(r));
        cr_expect_neq(value, loop_random(reactor_loop(other)));
        ones |= value;
        zeros |= ~value;
    }
    cr_expect(ones == UINT64_MAX && zeros == UINT64_MAX, "each bit is sometimes set, sometimes not");
    cr_expect_gt(loop_wall_clock_s(reactor_loop(r)), 1600000000);
    reactor_destroy(r);
    reactor_destroy(other);
}

Test(reactor, the_ring_can_be_refused)
{
    struct reactor *r = new_reactor(true);
    cr_expect_not(reactor_has_uring(r));
    cr_expect_null(reactor_ring(r));
    reactor_destroy(r);
}

/* --- helpers --- */

struct chore {
    struct helper_job job;
    struct reactor *reactor;
    unsigned *left;
    bool worked_elsewhere, done_here;
};

static void chore_work(struct helper_job *job)
{
    struct chore *c = container_of(job, struct chore, job);
    c->worked_elsewhere = !loop_is_current(reactor_loop(c->reactor));
}

static void chore_done(struct task *task)
{
    struct chore *c = container_of(task, struct chore, job.done);
    c->done_here = loop_is_current(reactor_loop(c->reactor));
    if (--*c->left == 0)
        reactor_stop(c->reactor);
}

static void chores_submit(struct reactor *r, struct chore *chores, unsigned count, unsigned *left)
{
    *left = count;
    for (unsigned i = 0; i < count; i++) {
        chores[i] = (struct chore){.reactor = r, .left = left};
        chores[i].job = (struct helper_job){.work = chore_work, .done.run = chore_done, .home = reactor_loop(r)};
        helpers_submit(reactor_helpers(r), &chores[i].job);
    }
}

Test(reactor, helpers_work_elsewhere_and_report_home, .timeout = 60)
{
    enum { N = 200 };
    struct chore chores[N];
    unsigned left;
    struct reactor *r = new_reactor(true);
    chores_submit(r, chores, N, &left);
    reactor_run(r);
    for (unsigned i = 0; i < N; i++)
        cr_expect(chores[i].worked_elsewhere && chores[i].done_here, "job %u", i);
    reactor_destroy(r);
}

Test(reactor, destroy_finishes_what_is_under_way, .timeout = 60)
{
    enum { N = 50 };
    struct chore chores[N];
    unsigned left;
    struct reactor *r = new_reactor(false);
    chores_submit(r, chores, N, &left);
    reactor_destroy(r);
    cr_expect_eq(left, 0);
}

/* --- a pause --- */

struct pause {
    struct task task, after;
    struct timer soon, later;
    struct reactor *reactor;
    bool ran;             /* what was ready when the pause began */
    bool soon_late_to_it; /* a deadline passed before that */
    uint64_t began_ns, ended_ns;
};

static void soon_fires(struct timer *timer)
{
    struct pause *p = container_of(timer, struct pause, soon);
    p->soon_late_to_it = p->ran;
}

static void later_fires(struct timer *timer)
{
    struct pause *p = container_of(timer, struct pause, later);
    p->ended_ns = loop_now_ns(reactor_loop(p->reactor));
    reactor_stop(p->reactor);
}

static void after_the_pause(struct task *task)
{
    container_of(task, struct pause, after)->ran = true;
}

/* As if the process was stopped here: what another thread has sent meanwhile is found behind it. */
static void pause_begins(struct task *task)
{
    const struct timespec four_seconds = {.tv_sec = 4};
    struct pause *p = container_of(task, struct pause, task);
    struct loop *loop = reactor_loop(p->reactor);
    p->began_ns = loop_now_ns(loop);
    timer_start(loop, &p->soon, 1500000000);
    timer_start(loop, &p->later, 1600000000);
    nanosleep(&four_seconds, NULL);
    loop_defer(loop, &p->after);
}

Test(reactor, deadlines_do_not_pass_while_it_is_stopped, .timeout = 60)
{
    struct reactor *r = new_reactor(true);
    struct pause p = {.reactor = r,
                      .task.run = pause_begins,
                      .after.run = after_the_pause,
                      .soon.fire = soon_fires,
                      .later.fire = later_fires};
    loop_defer(reactor_loop(r), &p.task);
    reactor_run(r);
    cr_expect(p.soon_late_to_it, "what was ready came first");
    cr_expect_lt(p.ended_ns - p.began_ns, 3000000000ull, "the pause does not count");
    cr_expect_geq(p.ended_ns - p.began_ns, 1600000000ull);
    reactor_destroy(r);
}
