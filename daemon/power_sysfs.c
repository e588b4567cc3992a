/* See daemon/power_sysfs.h. The files are read on a helper thread. */
#include "daemon/power_sysfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/helpers.h"
#include "daemon/power_source.h"

/* What is known after some of the supplies. */
struct survey {
    bool mains_known, mains_on, discharges, fills;
    unsigned batteries;
    struct power_reading reading;
};

/* The first line of FOLDER/SUPPLY/NAME; "" if there is none. */
static void read_word(int supply, const char *name, char out[64])
{
    int fd = openat(supply, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 ? read(fd, out, 63) : -1;
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    if (fd >= 0)
        close(fd);
}

static bool word_is(int supply, const char *name, const char *word)
{
    char text[64];
    read_word(supply, name, text);
    return strcmp(text, word) == 0;
}

static uint64_t read_number(int supply, const char *name, uint64_t max, uint64_t unknown)
{
    char text[64], *end;
    read_word(supply, name, text);
    if (text[0] < '0' || text[0] > '9')
        return unknown;
    unsigned long long value = strtoull(text, &end, 10);
    return *end == '\0' && value <= max ? value : unknown;
}

/* Its health as flags. What is not known is no fault; heat and the like are. */
static uint32_t health_flags(const char *health)
{
    static const char *const sound[] = {"", "Good", "Unknown"}, *const worn[] = {"Dead", "Unspecified failure"};
    for (unsigned i = 0; i < ARRAY_LENGTH(sound); i++)
        if (strcmp(health, sound[i]) == 0)
            return 0;
    for (unsigned i = 0; i < ARRAY_LENGTH(worn); i++)
        if (strcmp(health, worn[i]) == 0)
            return POWER_FLAG_REPLACE;
    return POWER_FLAG_ALARM;
}

/* What is unknown of one is unknown of both. */
static uint64_t weaker(uint64_t a, uint64_t b, uint64_t unknown)
{
    return a == unknown || b == unknown ? unknown : MIN(a, b);
}

static void survey_battery(struct survey *s, int supply)
{
    enum { YEAR_S = 31536000 };
    char status[64], health[64];
    if (word_is(supply, "scope", "Device") || word_is(supply, "present", "0"))
        return;
    read_word(supply, "status", status);
    read_word(supply, "health", health);
    uint64_t charge = read_number(supply, "capacity", 100, POWER_CHARGE_UNKNOWN);
    uint64_t runtime = read_number(supply, "time_to_empty_now", YEAR_S, POWER_RUNTIME_UNKNOWN);
    bool discharges = strcmp(status, "Discharging") == 0;
    s->batteries++;
    s->discharges |= discharges;
    s->fills |= strcmp(status, "Charging") == 0 || strcmp(status, "Full") == 0 || strcmp(status, "Not charging") == 0;
    s->reading.flags |= health_flags(health);
    if (word_is(supply, "capacity_level", "Critical") || word_is(supply, "capacity_level", "Low"))
        s->reading.flags |= POWER_FLAG_LOW;
    if (runtime == 0 && !discharges) /* while it is filled that means nothing */
        runtime = POWER_RUNTIME_UNKNOWN;
    bool first = s->batteries == 1;
    s->reading.charge = first ? (uint32_t)charge : (uint32_t)weaker(s->reading.charge, charge, POWER_CHARGE_UNKNOWN);
    s->reading.runtime_s = first ? runtime : weaker(s->reading.runtime_s, runtime, POWER_RUNTIME_UNKNOWN);
}

static void survey_supply(struct survey *s, int supply)
{
    char type[64];
    read_word(supply, "type", type);
    if (strcmp(type, "Battery") == 0 || strcmp(type, "UPS") == 0) {
        survey_battery(s, supply);
    } else if (strcmp(type, "Mains") == 0 || strncmp(type, "USB", 3) == 0) {
        uint64_t online = read_number(supply, "online", 2, UINT64_MAX);
        s->mains_known |= online != UINT64_MAX;
        s->mains_on |= online == 1 || online == 2;
    }
}

static uint32_t mains_flags(const struct survey *s)
{
    if (!s->mains_known)
        return s->discharges ? POWER_FLAG_ON_BATTERY : s->fills ? POWER_FLAG_ONLINE : 0;
    if (!s->mains_on)
        return POWER_FLAG_ON_BATTERY;
    return s->discharges ? POWER_FLAG_ONLINE | POWER_FLAG_DISCHARGING : POWER_FLAG_ONLINE;
}

bool power_sysfs_read(const char *folder, struct power_reading *out, char *why, size_t why_len)
{
    struct survey s = {.batteries = 0};
    DIR *dir = opendir(folder);
    struct dirent *entry;
    if (dir == NULL) {
        text_format(why, why_len, "%s cannot be read: %s", folder, strerror(errno));
        return false;
    }
    while ((entry = readdir(dir)) != NULL) {
        int supply =
            entry->d_name[0] != '.' ? openat(dirfd(dir), entry->d_name, O_DIRECTORY | O_RDONLY | O_CLOEXEC) : -1;
        if (supply < 0)
            continue;
        survey_supply(&s, supply);
        close(supply);
    }
    closedir(dir);
    s.reading.flags |= mains_flags(&s);
    *out = s.reading;
    if (s.batteries == 0)
        text_format(why, why_len, "%s has no battery", folder);
    return s.batteries > 0;
}

/* --- the source --- */

struct sysfs_source {
    struct power_source source;
    struct helper_job job;
    bool busy, closed;
    bool good;
    struct power_reading reading;
    char folder[CONFIG_PATH_MAX + 1], why[160];
};

static void read_on_helper(struct helper_job *job)
{
    struct sysfs_source *s = container_of(job, struct sysfs_source, job);
    s->good = power_sysfs_read(s->folder, &s->reading, s->why, sizeof s->why);
}

static void on_read(struct task *task)
{
    struct sysfs_source *s = container_of(task, struct sysfs_source, job.done);
    s->busy = false;
    if (s->closed)
        free(s);
    else
        power_answered(&s->source, s->good ? POWER_READING : POWER_ERROR, &s->reading, s->why);
}

static void sysfs_ask(struct power_source *source)
{
    struct sysfs_source *s = container_of(source, struct sysfs_source, source);
    struct helpers *helpers = reactor_helpers(source->reactor);
    if (helpers == NULL) {
        power_answered(source, POWER_SILENCE, NULL, "there are no threads to read it with");
        return;
    }
    s->job = (struct helper_job){.work = read_on_helper, .done.run = on_read, .home = reactor_loop(source->reactor)};
    s->busy = true;
    helpers_submit(helpers, &s->job);
}

/* A helper may still be reading: then it is freed when that is over. */
static void sysfs_close(struct power_source *source)
{
    struct sysfs_source *s = container_of(source, struct sysfs_source, source);
    s->closed = true;
    if (!s->busy)
        free(s);
}

struct power_source *power_sysfs_open(struct reactor *reactor, const struct power_source_spec *spec)
{
    struct sysfs_source *s = calloc(1, sizeof *s);
    ASSERT(s != NULL && spec->kind == POWER_SOURCE_SYSFS);
    s->source = (struct power_source){.ask = sysfs_ask, .close = sysfs_close, .reactor = reactor};
    text_format(s->folder, sizeof s->folder, "%s", spec->text);
    return &s->source;
}
