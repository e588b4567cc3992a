/* See daemon/power.h. A tick of a second or less looks at the judges, since time passes for them, and asks when it is
 * due. */
#include "daemon/power.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/command.h"
#include "daemon/power_feed.h"
#include "daemon/units.h"

#define TICK_NS   1000000000ull
#define HURRY_NS  100000000ull   /* the tick while caches are emptied */
#define ON_LOW_NS 60000000000ull /* how long the command that shuts down may take */

struct power_monitor {
    struct reactor *reactor;
    struct power_board board;
    unsigned count, needed; /* sources; how many must feed the machine */
    struct power_feed feeds[POWER_SOURCES_MAX];
    uint64_t poll_ns;
    struct timer tick;
    struct power_health health; /* of all together, as judged last */
    unsigned whose;             /* the feed that decides it */
    uint64_t since_s;
    /* The mains failed. */
    struct power_order order;
    uint64_t shutdown_s;
    char on_low[COMMAND_LINE_MAX + 1];
    struct command command;
    unsigned steps_count;
    struct power_step steps[POWER_STEPS_MAX];
};

static struct loop *loop_of(const struct power_monitor *m)
{
    return reactor_loop(m->reactor);
}

/* --- the order in which things are saved, and the machine shut down --- */

/* The run time as it was last told, less the time since. */
static struct order_facts facts_now(const struct power_monitor *m)
{
    const struct power_health *health = &m->health;
    struct order_facts facts = {.state = health->state,
                                .exercise = health->exercise,
                                .source = m->count > 0,
                                .command = m->on_low[0] != '\0',
                                .runtime_s = health->runtime_s,
                                .shutdown_s = m->shutdown_s,
                                .load = power_board_load(&m->board)};
    if (facts.runtime_s != POWER_RUNTIME_UNKNOWN)
        facts.runtime_s -= MIN(power_feed_age_s(&m->feeds[m->whose]), facts.runtime_s);
    return facts;
}

static void on_low_ended(struct command *command, enum command_end end, int number)
{
    struct power_monitor *m = container_of(command, struct power_monitor, command);
    bool good = end == COMMAND_EXITED && number == 0;
    power_order_ran(&m->order, good, loop_now_ns(loop_of(m)));
    if (good)
        log_notice("power: %s was run", m->on_low);
    else
        log_error("power: %s %s (%d): it is run again", m->on_low,
                  end == COMMAND_EXITED     ? "failed"
                  : end == COMMAND_TOO_SLOW ? "did not end in time"
                  : end == COMMAND_KILLED   ? "was killed"
                                            : "cannot be run",
                  number);
}

/* "12 MiB dirty, about 3 s; 1 min to stop; 18 min 20 s left" */
static void format_budget(const struct order_facts *facts, char *out, size_t len)
{
    char dirty[32], need[32], stop[32], left[32] = "an unknown time";
    size_format(facts->load.dirty_bytes, dirty, sizeof dirty);
    duration_format(facts->load.seconds, need, sizeof need);
    duration_format(facts->shutdown_s, stop, sizeof stop);
    if (facts->runtime_s != POWER_RUNTIME_UNKNOWN)
        duration_format(facts->runtime_s, left, sizeof left);
    text_format(out, len, "%s dirty, about %s; %s to stop; %s left", dirty, need, stop, left);
}

static void keep_step(struct power_monitor *m, const char *text)
{
    if (m->steps_count == POWER_STEPS_MAX)
        memmove(m->steps, m->steps + 1, --m->steps_count * sizeof *m->steps);
    struct power_step *step = &m->steps[m->steps_count++];
    step->at_s = loop_wall_clock_s(loop_of(m));
    text_format(step->text, sizeof step->text, "%s", text);
}

static void take_step(struct power_monitor *m, const struct order_step *step, const struct order_facts *facts,
                      enum order_phase was)
{
    char budget[160], text[sizeof m->steps->text];
    format_budget(facts, budget, sizeof budget);
    text_format(text, sizeof text, "%s (%s)", step->words, budget);
    if (was == ORDER_MAINS)
        m->steps_count = 0;
    keep_step(m, text);
    log_write(step->grave ? LOG_LEVEL_ERROR : LOG_LEVEL_WARN, "power: %s", text);
    if (!step->run)
        return;
    log_error("power: running %s", m->on_low);
    command_start(&m->command, m->reactor, m->on_low, ON_LOW_NS);
}

/* What follows from what is known; told to those who have to do it. */
static void follow_order(struct power_monitor *m)
{
    struct order_facts facts = facts_now(m);
    enum order_phase was = power_order_phase(&m->order);
    struct order_step step;
    while ((step = power_order_look(&m->order, &facts, loop_now_ns(loop_of(m)))).words != NULL) {
        take_step(m, &step, &facts, was);
        was = power_order_phase(&m->order);
    }
    struct power_news news = {.health = m->health,
                              .shutdown_s = m->shutdown_s,
                              .rest = power_order_rests(&m->order),
                              .hurry = power_order_hurries(&m->order),
                              .drain = m->order.drain};
    power_board_set(&m->board, &news);
}

/* --- what became of it --- */

/* `of`: which of several sources, or "". */
static void log_change(const char *of, const struct power_health *health)
{
    char charge[32] = "charge unknown", left[32] = "unknown";
    if (strcmp(health->cause, "unheard") == 0) /* it was only just asked */
        return;
    if (health->charge != POWER_CHARGE_UNKNOWN)
        text_format(charge, sizeof charge, "%u %%", health->charge);
    if (health->runtime_s != POWER_RUNTIME_UNKNOWN)
        duration_format(health->runtime_s, left, sizeof left);
    if (health->healthy)
        log_notice("power: %s%s, healthy (%s, run time %s)", of, power_state_name(health->state), charge, left);
    else
        log_write(health->state == POWER_LOW ? LOG_LEVEL_ERROR : LOG_LEVEL_WARN,
                  "power: %s%s, not healthy: %s (%s, run time %s)", of, power_state_name(health->state), health->reason,
                  charge, left);
}

/* Whoever was only just asked is waited for: without him the others might be too few. */
static bool find_unanswered(const struct power_monitor *m, unsigned *out)
{
    for (unsigned i = 0; i < m->count; i++) {
        if (m->feeds[i].answered)
            continue;
        *out = i;
        return true;
    }
    return false;
}

/* Each of several sources is told of for itself, then all together. */
static void look_at_feeds(struct power_monitor *m)
{
    struct power_health healths[POWER_SOURCES_MAX];
    char of[sizeof m->feeds->text + 8];
    for (unsigned i = 0; i < m->count; i++) {
        text_format(of, sizeof of, "%s: ", m->feeds[i].text);
        if (power_feed_look(&m->feeds[i]) && m->count > 1)
            log_change(of, &m->feeds[i].health);
        healths[i] = m->feeds[i].health;
    }
    const struct power_health was = m->health;
    if (find_unanswered(m, &m->whose))
        m->health = healths[m->whose];
    else
        m->health = power_combine(healths, m->count, m->needed, &m->whose);
    if (m->health.state == was.state && strcmp(m->health.cause, was.cause) == 0)
        return;
    m->since_s = loop_wall_clock_s(loop_of(m));
    log_change("", &m->health);
}

static void look(struct power_monitor *m)
{
    if (m->count > 0)
        look_at_feeds(m);
    follow_order(m);
}

/* --- the sources --- */

static void on_heard(struct power_feed *feed)
{
    look(feed->owner);
}

/* What others answer is seen with the next tick. */
static uint64_t tick_ns(const struct power_monitor *m)
{
    enum order_phase phase = power_order_phase(&m->order);
    return phase == ORDER_SAVING || phase == ORDER_LAST ? HURRY_NS : TICK_NS;
}

static void on_tick(struct timer *timer)
{
    struct power_monitor *m = container_of(timer, struct power_monitor, tick);
    if (m->count > 0)
        look(m);
    timer_start(loop_of(m), &m->tick, m->count > 0 ? MIN(m->poll_ns, tick_ns(m)) : TICK_NS);
    power_board_ask(&m->board);
    for (unsigned i = 0; i < m->count; i++)
        power_feed_ask(&m->feeds[i], m->poll_ns);
}

static bool same_feeds(struct power_monitor *m, const struct config_power *config)
{
    bool same = m->count == config_power_sources(config);
    for (unsigned i = 0; i < m->count && same; i++)
        same = power_feed_keep(&m->feeds[i], config->source.items[i].text, config);
    return same;
}

static void close_feeds(struct power_monitor *m)
{
    timer_stop(loop_of(m), &m->tick);
    while (m->count > 0)
        power_feed_close(&m->feeds[--m->count]);
    m->whose = 0;
    m->health = power_no_source();
}

static void open_feeds(struct power_monitor *m, const struct config_power *config)
{
    m->since_s = loop_wall_clock_s(loop_of(m));
    for (; m->count < config_power_sources(config); m->count++) {
        struct power_feed *feed = &m->feeds[m->count];
        *feed = (struct power_feed){.heard = on_heard, .owner = m};
        power_feed_open(feed, m->reactor, config->source.items[m->count].text, config);
    }
    follow_order(m);
}

/* --- for others --- */

struct power_monitor *power_monitor_create(struct reactor *control)
{
    struct power_monitor *m = calloc(1, sizeof *m);
    ASSERT(m != NULL);
    m->reactor = control;
    m->tick.fire = on_tick;
    m->command.ended = on_low_ended;
    m->health = power_no_source();
    power_order_init(&m->order);
    power_board_init(&m->board, reactor_loop(control));
    return m;
}

void power_monitor_configure(struct power_monitor *m, const struct config_power *config)
{
    m->poll_ns = config->poll_ns;
    m->shutdown_s = config->shutdown_time_ns / 1000000000;
    text_format(m->on_low, sizeof m->on_low, "%s", config->on_low.text);
    m->needed = config_power_needed(config);
    if (!same_feeds(m, config)) {
        close_feeds(m);
        open_feeds(m, config);
    }
    timer_start(loop_of(m), &m->tick, 0); /* without a source, too: what is told with it is asked for each second */
}

static void report_order(const struct power_monitor *m, struct power_report *report)
{
    struct order_facts facts = facts_now(m);
    report->order = power_order_name(&m->order);
    report->rests = power_order_rests(&m->order);
    report->shutdown_s = m->shutdown_s;
    report->needs_s = power_order_needs(&facts);
    report->load = facts.load;
    report->steps_count = m->steps_count;
    memcpy(report->steps, m->steps, sizeof report->steps);
}

void power_monitor_report(struct power_monitor *m, struct power_report *report)
{
    look(m); /* for the seconds in its words */
    *report = (struct power_report){
        .health = m->health, .since_s = m->since_s, .needed = m->needed, .sources_count = m->count};
    for (unsigned i = 0; i < m->count; i++) {
        struct power_report_source *source = &report->sources[i];
        *source = (struct power_report_source){.health = m->feeds[i].health,
                                               .since_s = m->feeds[i].since_s,
                                               .heard_s_ago = power_feed_age_s(&m->feeds[i])};
        text_format(source->text, sizeof source->text, "%s", m->feeds[i].text);
    }
    report_order(m, report);
}

struct power_board *power_monitor_board(struct power_monitor *m)
{
    return &m->board;
}

/* A shutdown that was begun goes on: it may be what ends us. */
void power_monitor_destroy(struct power_monitor *m)
{
    close_feeds(m);
    command_leave(&m->command);
    ASSERT(LIST_EMPTY(&m->board.watches));
    free(m);
}
