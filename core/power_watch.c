/* The ball and its ways: see core/power_watch.h. A mailbox keeps the order of what one thread puts into it, so that a
 * watch has entered before it leaves. */
#include "core/power_watch.h"

#include <string.h>

#include "core/check.h"

static void watch_hear(struct task *ball);

/* --- on the board's loop --- */

static void tell(struct power_board *board, struct power_watch *watch)
{
    watch->outdated = watch->away;
    if (watch->away)
        return;
    watch->away = true;
    watch->told = board->news;
    watch->ball.run = watch_hear;
    loop_call(watch->loop, &watch->ball);
}

static void watch_gone(struct task *farewell)
{
    struct power_watch *watch = container_of(farewell, struct power_watch, farewell);
    loop_defer(watch->loop, watch->gone);
}

static void let_go(struct power_watch *watch)
{
    watch->farewell.run = watch_gone;
    loop_call(watch->loop, &watch->farewell);
}

static void board_enter(struct task *ball)
{
    struct power_watch *watch = container_of(ball, struct power_watch, ball);
    LIST_INSERT_HEAD(&watch->board->watches, watch, link);
    tell(watch->board, watch);
}

static void board_back(struct task *ball)
{
    struct power_watch *watch = container_of(ball, struct power_watch, ball);
    watch->away = false;
    watch->answered = watch->load;
    if (watch->leaving)
        let_go(watch);
    else if (watch->outdated)
        tell(watch->board, watch);
}

static void board_leave(struct task *farewell)
{
    struct power_watch *watch = container_of(farewell, struct power_watch, farewell);
    LIST_REMOVE(watch, link);
    watch->leaving = true;
    if (!watch->away)
        let_go(watch);
}

void power_board_init(struct power_board *board, struct loop *loop)
{
    *board = (struct power_board){.loop = loop, .news.health = power_no_source()};
    LIST_INIT(&board->watches);
}

static bool same_health(const struct power_health *a, const struct power_health *b)
{
    return a->state == b->state && a->healthy == b->healthy && a->charge == b->charge && a->runtime_s == b->runtime_s &&
           strcmp(a->cause, b->cause) == 0;
}

void power_board_set(struct power_board *board, const struct power_news *news)
{
    const struct power_news *was = &board->news;
    bool same = same_health(&was->health, &news->health) && was->shutdown_s == news->shutdown_s &&
                was->rest == news->rest && was->hurry == news->hurry && was->drain == news->drain;
    ASSERT(loop_is_current(board->loop));
    board->news = *news;
    if (!same)
        power_board_ask(board);
}

void power_board_ask(struct power_board *board)
{
    struct power_watch *watch;
    ASSERT(loop_is_current(board->loop));
    LIST_FOREACH(watch, &board->watches, link)
    tell(board, watch);
}

struct power_load power_board_load(const struct power_board *board)
{
    struct power_load sum = {.drained = board->news.drain};
    const struct power_watch *watch;
    LIST_FOREACH(watch, &board->watches, link)
    {
        sum.dirty_bytes += watch->answered.dirty_bytes;
        sum.seconds = MAX(sum.seconds, watch->answered.seconds);
        if ((int)(watch->answered.drained - sum.drained) < 0)
            sum.drained = watch->answered.drained;
    }
    return sum;
}

/* --- on the watch's loop --- */

static void watch_hear(struct task *ball)
{
    struct power_watch *watch = container_of(ball, struct power_watch, ball);
    if (!watch->stopped)
        watch->changed(watch, &watch->told, &watch->load);
    watch->ball.run = board_back;
    loop_call(watch->board->loop, &watch->ball);
}

void power_watch_start(struct power_watch *watch, struct power_board *board, struct loop *loop)
{
    ASSERT(watch->changed != NULL && loop_is_current(loop));
    *watch = (struct power_watch){
        .changed = watch->changed, .loop = loop, .board = board, .ball.run = board_enter, .farewell.run = board_leave};
    loop_call(board->loop, &watch->ball);
}

void power_watch_stop(struct power_watch *watch, struct task *gone)
{
    ASSERT(!watch->stopped && loop_is_current(watch->loop));
    watch->stopped = true;
    watch->gone = gone;
    loop_call(watch->board->loop, &watch->farewell);
}
