/* See daemon/power.h. A tick of a second or less looks at the judge, since time passes for it, and asks when it is
 * due. */
#include "daemon/power.h"

#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/command.h"
#include "daemon/power_source.h"
#include "daemon/units.h"

#define TICK_NS   1000000000ull
#define HURRY_NS  100000000ull   /* the tick while caches are emptied */
#define ON_LOW_NS 60000000000ull /* how long the command that shuts down may take */

struct power_monitor {
    struct reactor *reactor;
    struct power_board board;
    struct power_judge judge;
    struct power_source *source; /* NULL: none */
    char source_text[CONFIG_PATH_MAX + 1], user[128], password_file[CONFIG_PATH_MAX + 1];
    uint64_t poll_ns, asked_ns;
    bool asking;
    struct timer tick;
    struct power_health health; /* as judged last */
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
                                .source = m->source != NULL,
                                .command = m->on_low[0] != '\0',
                                .runtime_s = health->runtime_s,
                                .shutdown_s = m->shutdown_s,
                                .load = power_board_load(&m->board)};
    uint64_t age_s = m->judge.heard ? (loop_now_ns(loop_of(m)) - m->judge.heard_ns) / 1000000000 : 0;
    if (facts.runtime_s != POWER_RUNTIME_UNKNOWN)
        facts.runtime_s -= MIN(age_s, facts.runtime_s);
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
    struct power_news news = {m->health, m->shutdown_s, power_order_rests(&m->order), m->order.drain};
    power_board_set(&m->board, &news);
}

/* --- what became of it --- */

static void log_change(const struct power_health *health)
{
    char charge[32] = "charge unknown", left[32] = "unknown";
    if (health->charge != POWER_CHARGE_UNKNOWN)
        text_format(charge, sizeof charge, "%u %%", health->charge);
    if (health->runtime_s != POWER_RUNTIME_UNKNOWN)
        duration_format(health->runtime_s, left, sizeof left);
    if (health->healthy)
        log_notice("power: %s, healthy (%s, run time %s)", power_state_name(health->state), charge, left);
    else
        log_write(health->state == POWER_LOW ? LOG_LEVEL_ERROR : LOG_LEVEL_WARN,
                  "power: %s, not healthy: %s (%s, run time %s)", power_state_name(health->state), health->reason,
                  charge, left);
}

static void look(struct power_monitor *m)
{
    const struct power_health was = m->health;
    m->health = power_judge_look(&m->judge, loop_now_ns(loop_of(m)));
    if (m->health.state != was.state || strcmp(m->health.cause, was.cause) != 0) {
        m->since_s = loop_wall_clock_s(loop_of(m));
        if (strcmp(m->health.cause, "unheard") != 0) /* it was only just asked */
            log_change(&m->health);
    }
    follow_order(m);
}

/* --- the source --- */

void power_answered(struct power_source *source, enum power_answer answer, const struct power_reading *reading,
                    const char *why)
{
    struct power_monitor *m = source->monitor;
    m->asking = false;
    if (answer == POWER_READING)
        power_judge_read(&m->judge, reading, loop_now_ns(loop_of(m)));
    else if (answer == POWER_ERROR)
        power_judge_error(&m->judge, why);
    else
        power_judge_silence(&m->judge, why);
    look(m);
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
    uint64_t now = loop_now_ns(loop_of(m));
    look(m);
    timer_start(loop_of(m), &m->tick, MIN(m->poll_ns, tick_ns(m)));
    power_board_ask(&m->board);
    if (m->asking || now - m->asked_ns < m->poll_ns)
        return;
    m->asking = true;
    m->asked_ns = now;
    m->source->ask(m->source);
}

static struct power_source *open_source(struct power_monitor *m)
{
    struct power_source_spec spec;
    char why[200];
    ASSERT(power_source_parse(m->source_text, &spec, why, sizeof why)); /* the config was checked */
    if (spec.kind == POWER_SOURCE_NUT)
        return power_nut_open(m->reactor, &spec, m->user, m->password_file);
    if (spec.kind == POWER_SOURCE_SYSFS)
        return power_sysfs_open(m->reactor, &spec);
    return spec.kind == POWER_SOURCE_COMMAND ? power_command_open(m->reactor, &spec) : NULL;
}

static void close_source(struct power_monitor *m)
{
    timer_stop(loop_of(m), &m->tick);
    if (m->source != NULL)
        m->source->close(m->source);
    m->source = NULL;
    m->asking = false;
}

static void start_source(struct power_monitor *m, const struct power_limits *limits)
{
    power_judge_init(&m->judge, limits);
    m->since_s = loop_wall_clock_s(loop_of(m));
    m->source = open_source(m);
    m->health = power_no_source();
    follow_order(m);
    if (m->source == NULL)
        return;
    m->source->monitor = m;
    m->asked_ns = loop_now_ns(loop_of(m)) - m->poll_ns;
    timer_start(loop_of(m), &m->tick, 0);
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
    struct power_limits limits = config_power_limits(config);
    bool same = strcmp(m->source_text, config->source.text) == 0 && strcmp(m->user, config->user.text) == 0 &&
                strcmp(m->password_file, config->password_file.text) == 0;
    m->poll_ns = config->poll_ns;
    m->shutdown_s = config->shutdown_time_ns / 1000000000;
    text_format(m->on_low, sizeof m->on_low, "%s", config->on_low.text);
    if (same) {
        m->judge.limits = limits;
        if (m->source != NULL)
            timer_start(loop_of(m), &m->tick, 0);
        return;
    }
    close_source(m);
    text_format(m->source_text, sizeof m->source_text, "%s", config->source.text);
    text_format(m->user, sizeof m->user, "%s", config->user.text);
    text_format(m->password_file, sizeof m->password_file, "%s", config->password_file.text);
    start_source(m, &limits);
}

void power_monitor_report(struct power_monitor *m, struct power_report *report)
{
    uint64_t now = loop_now_ns(loop_of(m));
    if (m->source != NULL)
        look(m); /* for the seconds in its words */
    struct order_facts facts = facts_now(m);
    *report = (struct power_report){.health = m->health,
                                    .since_s = m->since_s,
                                    .heard_s_ago = UINT64_MAX,
                                    .order = power_order_name(&m->order),
                                    .rests = power_order_rests(&m->order),
                                    .shutdown_s = m->shutdown_s,
                                    .needs_s = power_order_needs(&facts),
                                    .load = facts.load,
                                    .steps_count = m->steps_count};
    memcpy(report->steps, m->steps, sizeof report->steps);
    text_format(report->source, sizeof report->source, "%s", m->source_text);
    if (m->judge.heard)
        report->heard_s_ago = (now - m->judge.heard_ns) / 1000000000;
}

struct power_board *power_monitor_board(struct power_monitor *m)
{
    return &m->board;
}

/* A shutdown that was begun goes on: it may be what ends us. */
void power_monitor_destroy(struct power_monitor *m)
{
    close_source(m);
    command_leave(&m->command);
    ASSERT(LIST_EMPTY(&m->board.watches));
    free(m);
}
