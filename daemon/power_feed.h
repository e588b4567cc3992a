/*
 * One source of power and its judge: asked now and then, judged at each look. A machine with several power supplies may
 * have several of these. Private to daemon/power*.c, on the control reactor.
 */
#ifndef DAEMON_POWER_FEED_H
#define DAEMON_POWER_FEED_H

#include "daemon/config.h"
#include "daemon/power_source.h"

struct power_feed {
    char text[CONFIG_PATH_MAX + 1];         /* as in the config */
    struct power_health health;             /* as judged at the last look */
    uint64_t since_s;                       /* since when its state and its cause have been so, in seconds since 1970 */
    void (*heard)(struct power_feed *feed); /* an answer came: time for a look */
    void *owner;
    bool answered; /* at all, be it that it does not know */
    /* Private. */
    struct reactor *reactor;
    struct power_source *source;
    struct power_judge judge;
    char user[128], password_file[CONFIG_PATH_MAX + 1];
    uint64_t asked_ns;
    bool asking;
};

/* The config was checked. `heard` and `owner` are set. */
void power_feed_open(struct power_feed *feed, struct reactor *reactor, const char *text,
                     const struct config_power *config);
void power_feed_close(struct power_feed *feed);
/* Is this what the config says? Then new limits are taken over, and its history stays. */
bool power_feed_keep(struct power_feed *feed, const char *text, const struct config_power *config);
/* Judge anew. True: its state or its cause is another. */
bool power_feed_look(struct power_feed *feed);
/* Ask, if poll_ns is over since the last time. */
void power_feed_ask(struct power_feed *feed, uint64_t poll_ns);
/* How old the last reading is; UINT64_MAX: there is none. */
uint64_t power_feed_age_s(const struct power_feed *feed);

#endif
