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

#define TICK_NS      1000000000ull
#define ON_LOW_NS    60000000000ull /* how long the command that shuts down may take */
#define ON_LOW_AGAIN 5000000000ull  /* it failed: try again after this */

struct power_monitor {
    struct reactor *reactor;
    struct power_board board;
    struct power_judge judge;
    struct power_source *source; /* NULL: none */
    char source_text[CONFIG_PATH_MAX + 1], user[128], password_file[CONFIG_PATH_MAX + 1];
    uint64_t poll_ns, asked_ns;
    bool asking;
    struct timer tick;
    uint64_t since_s;
    /* The time to shut down. */
    char on_low[COMMAND_LINE_MAX + 1];
    struct command command;
    bool low_done;
    uint64_t low_again_ns;
};

static struct loop *loop_of(const struct power_monitor *m)
{
    return reactor_loop(m->reactor);
}

/* --- shutting down --- */

static void on_low_ended(struct command *command, enum command_end end, int number)
{
    struct power_monitor *m = container_of(command, struct power_monitor, command);
    m->low_done = end == COMMAND_EXITED && number == 0;
    m->low_again_ns = loop_now_ns(loop_of(m)) + ON_LOW_AGAIN;
    if (m->low_done)
        log_notice("power: %s was run", m->on_low);
    else
        log_error("power: %s %s (%d): it is run again", m->on_low,
                  end == COMMAND_EXITED     ? "failed"
                  : end == COMMAND_TOO_SLOW ? "did not end in time"
                  : end == COMMAND_KILLED   ? "was killed"
                                            : "cannot be run",
                  number);
}

static void see_to_shutdown(struct power_monitor *m)
{
    enum power_state state = m->board.health.state;
    if (state == POWER_ONLINE && !m->command.running) {
        m->low_done = false;
        m->low_again_ns = 0;
    }
    if (state != POWER_LOW || m->on_low[0] == '\0' || m->low_done || m->command.running ||
        loop_now_ns(loop_of(m)) < m->low_again_ns)
        return;
    log_error("power: the battery is low: running %s", m->on_low);
    command_start(&m->command, m->reactor, m->on_low, ON_LOW_NS);
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
    const struct power_health was = m->board.health;
    struct power_health health = power_judge_look(&m->judge, loop_now_ns(loop_of(m)));
    power_board_set(&m->board, &health);
    if (health.state != was.state || strcmp(health.cause, was.cause) != 0) {
        m->since_s = loop_wall_clock_s(loop_of(m));
        if (strcmp(health.cause, "unheard") != 0) /* it was only just asked */
            log_change(&health);
    }
    see_to_shutdown(m);
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

static void on_tick(struct timer *timer)
{
    struct power_monitor *m = container_of(timer, struct power_monitor, tick);
    uint64_t now = loop_now_ns(loop_of(m));
    timer_start(loop_of(m), &m->tick, MIN(m->poll_ns, TICK_NS));
    look(m);
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
    struct power_health none = power_no_source();
    power_judge_init(&m->judge, limits);
    m->since_s = loop_wall_clock_s(loop_of(m));
    m->source = open_source(m);
    power_board_set(&m->board, &none);
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
    power_board_init(&m->board, reactor_loop(control));
    return m;
}

void power_monitor_configure(struct power_monitor *m, const struct config_power *config)
{
    struct power_limits limits = config_power_limits(config);
    bool same = strcmp(m->source_text, config->source.text) == 0 && strcmp(m->user, config->user.text) == 0 &&
                strcmp(m->password_file, config->password_file.text) == 0;
    m->poll_ns = config->poll_ns;
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
    *report = (struct power_report){.health = m->board.health, .since_s = m->since_s, .heard_s_ago = UINT64_MAX};
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
