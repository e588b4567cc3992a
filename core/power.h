/*
 * Does a battery stand behind what is in memory? The rules, as values.
 *
 * A source (a UPS, a battery of the machine's own, a command) is read now and then; each reading, each error of the
 * source and the time that passes are told to a judge, which says what that means: struct power_health, the value that
 * the cache goes by and that people are shown. Any error, silence or doubt means: not healthy. The daemon asks the
 * sources and hands the result round (core/power_watch.h); nothing here knows a clock, a socket or a file.
 *
 * Healthy means: on mains, with a battery that is charged, sound and lasts long enough. Whoever was not healthy becomes
 * so again only after all that was true for a while (`settle_ns`), with a higher charge than is needed to stay so.
 */
#ifndef CORE_POWER_H
#define CORE_POWER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/sm.h"

enum power_state {
    POWER_UNKNOWN,    /* nobody says, or what is said cannot be believed */
    POWER_ONLINE,     /* on mains */
    POWER_ON_BATTERY, /* the mains failed */
    POWER_LOW,        /* and the battery ends soon, or must be taken to: the time to shut down */
};

#define POWER_CHARGE_UNKNOWN  UINT32_MAX
#define POWER_RUNTIME_UNKNOWN UINT64_MAX

struct power_health {
    enum power_state state;
    bool healthy;
    const char *cause; /* a word that stays the same, for programs: the row of the judge's table that holds */
    char reason[192];  /* why not healthy, in words; "" if healthy */
    uint32_t charge;   /* percent */
    uint64_t runtime_s;
    bool exercise; /* on battery on purpose, as far as the source says: a learn cycle or a test */
};

/* What a source says. Behind each: NUT's word for it. */
enum power_flag {
    POWER_FLAG_ONLINE = 1 << 0,      /* OL */
    POWER_FLAG_ON_BATTERY = 1 << 1,  /* OB */
    POWER_FLAG_LOW = 1 << 2,         /* LB */
    POWER_FLAG_SHUTDOWN = 1 << 3,    /* FSD: it will be switched off */
    POWER_FLAG_REPLACE = 1 << 4,     /* RB: the battery is worn out */
    POWER_FLAG_CALIBRATING = 1 << 5, /* CAL, TEST: a learn cycle, or a test, discharges it */
    POWER_FLAG_DISCHARGING = 1 << 6, /* DISCHRG */
    POWER_FLAG_BYPASS = 1 << 7,      /* BYPASS: the mains go past it */
    POWER_FLAG_OFF = 1 << 8,         /* OFF: it feeds nothing */
    POWER_FLAG_OVERLOADED = 1 << 9,  /* OVER */
    POWER_FLAG_ALARM = 1 << 10,      /* ALARM */
    POWER_FLAGS = (1 << 11) - 1,
};

struct power_reading {
    uint32_t flags;     /* enum power_flag */
    uint32_t charge;    /* percent, or POWER_CHARGE_UNKNOWN */
    uint64_t runtime_s; /* what it would last, or POWER_RUNTIME_UNKNOWN */
};

struct power_limits {
    uint32_t charge_min;    /* percent, to stay healthy; 0: the charge need not be known */
    uint32_t charge_ok;     /* percent, to become healthy; at least charge_min */
    uint32_t charge_low;    /* on battery: the time to shut down; 0: only the source says when */
    uint64_t runtime_min_s; /* to be healthy; on battery: below it is the time to shut down. 0: it need not be known */
    uint64_t runtime_assumed_s; /* where the source does not tell it: what a full battery lasts; 0: unknown */
    uint64_t silence_max_ns;    /* how old a reading may be */
    uint64_t settle_ns;         /* how long all must be well before it is healthy again */
};

/* May be changed at any time. */
struct power_judge {
    struct power_limits limits;
    /* Private. */
    struct sm sm;
    bool heard, error;
    struct power_reading last;
    uint64_t heard_ns, battery_ns, settle_from_ns;
    char trouble[128]; /* what the source, or the way to it, said last; "": nothing since it was heard */
};

void power_judge_init(struct power_judge *judge, const struct power_limits *limits);
/* A reading has come. */
void power_judge_read(struct power_judge *judge, const struct power_reading *reading, uint64_t now_ns);
/* The source answered that it does not know: what it said before counts no more. */
void power_judge_error(struct power_judge *judge, const char *why);
/* The source cannot be asked at the moment: what it said before counts until silence_max_ns is over. */
void power_judge_silence(struct power_judge *judge, const char *why);
/* What all that means now. To be asked after each of the above, and now and then: time passes. */
struct power_health power_judge_look(struct power_judge *judge, uint64_t now_ns);

/* What there is to say where no source is configured. */
struct power_health power_no_source(void);
/* "unknown", "on mains", "on battery", "low". */
const char *power_state_name(enum power_state state);

/*
 * How many dirty bytes a battery can save: what is written at `rate` bytes a second in its run time less a margin. 0 if
 * the run time is not known.
 */
uint64_t power_dirty_limit(uint64_t runtime_s, uint64_t margin_s, uint64_t rate);
/* The other way round: how long that many dirty bytes take, in full seconds, at `rate` bytes a second, not 0. */
uint64_t power_destage_seconds(uint64_t dirty_bytes, uint64_t rate);

#endif
