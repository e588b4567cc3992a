/* See daemon/power_feed.h. */
#include "daemon/power_feed.h"

#include <string.h>

#include "core/check.h"
#include "core/log.h"

static struct loop *loop_of(const struct power_feed *feed)
{
    return reactor_loop(feed->reactor);
}

static struct power_source *open_source(struct power_feed *feed)
{
    struct power_source_spec spec;
    char why[200];
    ASSERT(power_source_parse(feed->text, &spec, why, sizeof why));
    if (spec.kind == POWER_SOURCE_NUT)
        return power_nut_open(feed->reactor, &spec, feed->user, feed->password_file);
    if (spec.kind == POWER_SOURCE_SYSFS)
        return power_sysfs_open(feed->reactor, &spec);
    ASSERT(spec.kind == POWER_SOURCE_COMMAND);
    return power_command_open(feed->reactor, &spec);
}

/* Only upsd has logins. */
static const char *login_of(const char *text, const struct config_text *login)
{
    return strncmp(text, "nut:", 4) == 0 ? login->text : "";
}

void power_feed_open(struct power_feed *feed, struct reactor *reactor, const char *text,
                     const struct config_power *config)
{
    struct power_limits limits = config_power_limits(config);
    *feed = (struct power_feed){.heard = feed->heard, .owner = feed->owner, .reactor = reactor};
    text_format(feed->text, sizeof feed->text, "%s", text);
    text_format(feed->user, sizeof feed->user, "%s", login_of(text, &config->user));
    text_format(feed->password_file, sizeof feed->password_file, "%s", login_of(text, &config->password_file));
    power_judge_init(&feed->judge, &limits);
    feed->health = power_no_source();
    feed->since_s = loop_wall_clock_s(loop_of(feed));
    feed->asked_ns = loop_now_ns(loop_of(feed)) - config->poll_ns;
    feed->source = open_source(feed);
    feed->source->feed = feed;
}

void power_feed_close(struct power_feed *feed)
{
    feed->source->close(feed->source);
    feed->source = NULL;
}

bool power_feed_keep(struct power_feed *feed, const char *text, const struct config_power *config)
{
    if (strcmp(feed->text, text) != 0 || strcmp(feed->user, login_of(text, &config->user)) != 0 ||
        strcmp(feed->password_file, login_of(text, &config->password_file)) != 0)
        return false;
    feed->judge.limits = config_power_limits(config);
    return true;
}

bool power_feed_look(struct power_feed *feed)
{
    const struct power_health was = feed->health;
    feed->health = power_judge_look(&feed->judge, loop_now_ns(loop_of(feed)));
    if (feed->health.state == was.state && strcmp(feed->health.cause, was.cause) == 0)
        return false;
    feed->since_s = loop_wall_clock_s(loop_of(feed));
    return true;
}

void power_feed_ask(struct power_feed *feed, uint64_t poll_ns)
{
    uint64_t now = loop_now_ns(loop_of(feed));
    if (feed->asking || now - feed->asked_ns < poll_ns)
        return;
    feed->asking = true;
    feed->asked_ns = now;
    feed->source->ask(feed->source);
}

void power_answered(struct power_source *source, enum power_answer answer, const struct power_reading *reading,
                    const char *why)
{
    struct power_feed *feed = source->feed;
    feed->asking = false;
    feed->answered = true;
    if (answer == POWER_READING)
        power_judge_read(&feed->judge, reading, loop_now_ns(loop_of(feed)));
    else if (answer == POWER_ERROR)
        power_judge_error(&feed->judge, why);
    else
        power_judge_silence(&feed->judge, why);
    feed->heard(feed);
}

uint64_t power_feed_age_s(const struct power_feed *feed)
{
    return feed->judge.heard ? (loop_now_ns(loop_of(feed)) - feed->judge.heard_ns) / 1000000000 : UINT64_MAX;
}
