/* A run: the loop with its virtual time, failing, and the actions in turn. See sim.h. */
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

enum { LOOP_PAGES = 4096 };
#define ANSWER_NS 900000000000ull /* within this time every request is answered */

/* --- the loop --- */

static uint64_t loop_sim_random(struct loop *loop)
{
    return dice_bits(&container_of(loop, struct sim, loop)->loop_dice);
}

static uint64_t loop_sim_wall_clock(struct loop *loop)
{
    return 1700000000 + loop->now_ns / 1000000000;
}

static void loop_sim_call(struct loop *loop, struct task *task)
{
    loop_defer(loop, task);
}

static bool loop_sim_is_current(const struct loop *loop)
{
    (void)loop;
    return true;
}

static const struct loop_ops sim_loop_ops = {loop_sim_random, loop_sim_wall_clock, loop_sim_call, loop_sim_is_current};

static void check_answers(struct sim *s)
{
    for (unsigned i = 0; i < SIM_IOS; i++)
        if (s->ios[i].busy && s->loop.now_ns - s->ios[i].began_ns > ANSWER_NS)
            sim_fail(s, "a %s of %llu bytes at %llu has had no answer for %llu s", blk_op_name(s->ios[i].req.op),
                     (unsigned long long)s->ios[i].req.len, (unsigned long long)s->ios[i].req.off,
                     ANSWER_NS / 1000000000);
}

bool sim_event(struct sim *s)
{
    struct loop *loop = &s->loop;
    if (s->cut_inside)
        world_cut(s, s->crash_power);
    if (STAILQ_EMPTY(&loop->ready) && STAILQ_EMPTY(&loop->late) && loop_next_timer_ns(loop) > loop->now_ns) {
        if (loop_next_timer_ns(loop) == UINT64_MAX)
            return false;
        loop->now_ns = loop_next_timer_ns(loop);
    }
    loop_run(loop, 1);
    if (++s->events % 256 == 0)
        check_answers(s);
    if (s->cut_inside || (s->crash_in > 0 && --s->crash_in == 0))
        world_cut(s, s->crash_power);
    return true;
}

void sim_events(struct sim *s, uint64_t count)
{
    while (count-- > 0 && sim_event(s))
        ;
}

void sim_events_ready(struct sim *s)
{
    while (!STAILQ_EMPTY(&s->loop.ready))
        (void)sim_event(s);
}

struct sleep {
    struct timer timer;
    bool over;
};

static void sleep_over(struct timer *timer)
{
    container_of(timer, struct sleep, timer)->over = true;
}

void sim_wait_ns(struct sim *s, uint64_t ns)
{
    struct sleep sleep = {.timer.fire = sleep_over};
    timer_start(&s->loop, &sleep.timer, ns);
    sim_wait(s, &sleep.over, "the clock stands still");
}

void sim_wait(struct sim *s, const bool *flag, const char *what)
{
    uint64_t end = s->events + 3000000;
    while (!*flag) {
        bool more = sim_event(s);
        SIM_CHECK(s, more || *flag, "%s: nothing is left to happen", what);
        SIM_CHECK(s, s->events < end, "%s: still not after 3000000 events", what);
    }
}

/* --- what is said --- */

void sim_fail(struct sim *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(s->result->said, sizeof s->result->said, format, args);
    va_end(args);
    longjmp(s->failed, 1);
}

void sim_trace(struct sim *s, const char *format, ...)
{
    char line[1024];
    va_list args;
    if (!s->verbose)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    printf("%11.6f %7llu  %s\n", (double)s->loop.now_ns / 1e9, (unsigned long long)s->events, line);
}

static struct sim *speaking; /* whose log lines these are */

static void log_line(enum log_level level, const char *line)
{
    (void)level;
    if (strncmp(line, "assertion", 9) == 0)
        fprintf(stderr, "%s\n", line);
    if (speaking != NULL)
        sim_trace(speaking, "      | %s", line);
}

/* --- what the disks tell --- */

static void hash_add(struct sim *s, uint64_t value)
{
    s->result->hash = (s->result->hash ^ value) * UINT64_C(0x100000001b3);
    s->result->hash ^= s->result->hash >> 31;
}

static bool is_slot_of(const struct sim *s, const struct simdisk *disk, unsigned *slot)
{
    for (*slot = 0; *slot < s->config.members; (*slot)++)
        if (s->disk_of_slot[*slot] == (int)disk->number)
            return true;
    return false;
}

/* A disk took a write. */
static void crash_may_follow(struct sim *s, bool of_row)
{
    uint64_t *due = &s->crash_after_write;
    if (*due == 0 && of_row)
        due = &s->crash_after_row;
    s->crash_in = *due;
    *due = 0;
}

static void disk_answered(struct simdisk_watch *watch, struct simdisk *disk, const struct blk_req *req,
                          enum blk_status status)
{
    struct sim *s = container_of(watch, struct sim, watch);
    unsigned slot;
    hash_add(s, disk->number ^ (uint64_t)req->op << 8 ^ (uint64_t)status << 16 ^ req->off << 20 ^ req->len);
    hash_add(s, s->loop.now_ns);
    if (s->verbose)
        sim_trace(s, "            %s %s%s %llu +%llu: %s", disk->dev.name, blk_op_name(req->op),
                  req->flags & BLK_FUA ? " fua" : "", (unsigned long long)req->off, (unsigned long long)req->len,
                  blk_status_name(status));
    if (blk_op_writes(req->op) && status == BLK_OK && s->crash_in == 0)
        crash_may_follow(s, is_slot_of(s, disk, &slot) && req->off >= s->rows_from && req->off < s->rows_to);
    if (status != BLK_OK && !s->crashed && is_slot_of(s, disk, &slot))
        world_slot_lost(s, slot);
}

static void disk_hangs(struct simdisk_watch *watch, struct simdisk *disk)
{
    struct sim *s = container_of(watch, struct sim, watch);
    unsigned slot;
    if (!s->crashed && is_slot_of(s, disk, &slot))
        world_slot_lost(s, slot);
}

/* --- a run --- */

static void run_actions(struct sim *s, const bool *skip)
{
    world_create(s);
    for (unsigned i = 0; i < s->actions_count; i++) {
        if (skip[i])
            continue;
        s->result->actions++;
        sim_trace(s, "-- action %u: %s", i, sim_action_name(s->actions[i].kind));
        sim_action(s, &s->actions[i]);
    }
    sim_trace(s, "-- the end");
    rest(s);
}

static void run_free(struct sim *s)
{
    while (sim_event(s))
        ;
    for (unsigned i = 0; i < s->disks_count; i++)
        simdisk_destroy(s->disks[i]);
    for (unsigned i = 0; i < s->config.volumes; i++) {
        model_destroy(s->volumes[i].model);
        arena_free(&s->volumes[i].cache);
    }
    SIM_CHECK(s, page_pool_free(s->loop.pages) == LOOP_PAGES, "%u pages are missing",
              LOOP_PAGES - page_pool_free(s->loop.pages));
    page_pool_destroy(s->loop.pages);
}

static void describe(struct sim *s)
{
    const struct sim_config *c = &s->config;
    const struct layout *a = &s->volumes[0].layout, *b = &s->volumes[1].layout;
    s->result->strict = c->strict;
    text_format(s->result->what, sizeof s->result->what, "%s, %s, %u members, %u logs, chunk %u%s%s%s%s",
                raid_level_name(a->spec.level), sb_consistency_name(s->volumes[0].spec.consistency), c->members,
                c->logs, a->spec.chunk, c->volumes > 1 ? ", and " : "",
                c->volumes > 1 ? raid_level_name(b->spec.level) : "", c->cached ? ", cached" : "",
                c->strict ? "" : ", more faults than it bears");
}

bool sim_run(const struct sim_order *order, struct sim_result *result)
{
    struct sim *s = calloc(1, sizeof *s);
    ASSERT(s != NULL);
    *result = (struct sim_result){.hash = order->seed};
    s->result = result;
    s->seed = order->seed;
    s->verbose = order->verbose;
    s->loop_dice = dice_for(order->seed, 2);
    s->watch.answered = disk_answered;
    s->watch.hangs = disk_hangs;
    loop_init(&s->loop, &sim_loop_ops, page_pool_create(LOOP_PAGES));
    s->loop.now_ns = 1000000000;
    speaking = order->verbose ? s : NULL;
    log_setup(log_line, order->verbose ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR);
    volatile bool good = setjmp(s->failed) == 0;
    if (good) {
        config_draw(s, order->theme, order->caches);
        describe(s);
        sim_trace(s, "seed %llu: %s", (unsigned long long)order->seed, result->what);
        run_actions(s, order->skip);
        run_free(s);
    }
    result->events = s->events;
    result->virtual_ns = s->loop.now_ns;
    speaking = NULL;
    if (good) /* after a failure the pieces lie where they fell */
        free(s);
    return good;
}
