#include "daemon/ctl_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/check.h"
#include "daemon/units.h"

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value != NULL ? value : "-";
}

static uint64_t number(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static void bytes(const json_t *object, const char *key, char out[32])
{
    size_format(number(object, key), out, 32);
}

/* What goes on, if all is well: "resync of v 12 %". */
static const char *activity(const json_t *array, char *out, size_t len)
{
    size_t i;
    json_t *job;
    out[0] = '\0';
    json_array_foreach(json_object_get(array, "jobs"), i, job)
    {
        uint64_t done = number(job, "done_bytes"), total = number(job, "total_bytes");
        if (text(job, "waits_for")[0] != '\0')
            continue;
        snprintf(out, len, "%s of %s %" PRIu64 " %%", text(job, "kind"), text(job, "volume"),
                 total > 0 ? done * 100 / total : 100);
        break;
    }
    return out;
}

void print_arrays(const json_t *status)
{
    char doing[128];
    size_t i;
    json_t *array;
    printf("%-16s %-12s %-6s %-8s %s\n", "ARRAY", "STATE", "DISKS", "VOLUMES", "");
    json_array_foreach(json_object_get(status, "arrays"), i, array)
    {
        const char *state = text(array, "state");
        printf("%-16s %-12s %-6zu %-8zu %s\n", text(array, "name"), state,
               json_array_size(json_object_get(array, "members")), json_array_size(json_object_get(array, "volumes")),
               strncmp(state, "not ", 4) == 0 ? text(array, "reason")
               : strcmp(state, "frozen") == 0 ? "bring its disks back, then corbelctl array assemble"
                                              : activity(array, doing, sizeof doing));
    }
}

/* What cannot be read any more, by volume address. */
static void print_lost(const json_t *array, const json_t *volume)
{
    size_t i;
    json_t *range;
    json_array_foreach(json_object_get(volume, "lost"), i, range)
    {
        printf("  %s/%s: lost until overwritten: %" PRIu64 " bytes at %" PRIu64 "\n", text(array, "name"),
               text(volume, "name"), number(range, "bytes"), number(range, "offset"));
    }
}

/* Without redundancy nothing has to be kept right. */
static const char *policy(const json_t *volume)
{
    static const char *const plain[] = {"jbod", "span", "raid0"};
    for (unsigned i = 0; i < ARRAY_LENGTH(plain); i++)
        if (strcmp(text(volume, "level"), plain[i]) == 0)
            return "-";
    return text(volume, "consistency");
}

static void print_held(const json_t *array, const json_t *volume)
{
    const char *held = json_string_value(json_object_get(volume, "held"));
    if (held != NULL)
        printf("%s/%s is held, not served: %s; corbelctl cache discard gives that up\n", text(array, "name"),
               text(volume, "name"), held);
}

/* Arenas that no cache uses. */
static void print_arenas(const json_t *status)
{
    size_t i, j;
    json_t *arena, *offset;
    json_array_foreach(json_object_get(status, "arenas"), i, arena)
    {
        char dirty[32];
        bytes(arena, "arena_dirty_bytes", dirty);
        printf("arena %s of volume %s is %s: %s of answered writes, in %s\n", text(arena, "id"), text(arena, "volume"),
               text(arena, "state"), dirty, text(arena, "where"));
        json_array_foreach(json_object_get(arena, "torn_offsets"), j, offset)
            if (json_is_integer(offset))
                printf("  torn: the block at %" PRId64 "\n", (int64_t)json_integer_value(offset));
            else
                printf("  torn: a block at a place that is not known\n");
    }
}

void print_volumes(const json_t *status)
{
    size_t i, j;
    json_t *array, *volume;
    printf("%-24s %-8s %-8s %-10s %-10s %-10s %-10s %s\n", "VOLUME", "LEVEL", "POLICY", "SIZE", "USED", "CHUNK", "READ",
           "WRITTEN");
    json_array_foreach(json_object_get(status, "arrays"), i, array)
    {
        json_array_foreach(json_object_get(array, "volumes"), j, volume)
        {
            char name[256], size[32], used[32], chunk[32], read[32], written[32];
            snprintf(name, sizeof name, "%s/%s", text(array, "name"), text(volume, "name"));
            bytes(volume, "size_bytes", size);
            bytes(volume, "used_bytes", used);
            bytes(volume, "chunk_bytes", chunk);
            bytes(volume, "read_bytes", read);
            bytes(volume, "written_bytes", written);
            printf("%-24s %-8s %-8s %-10s %-10s %-10s %-10s %s\n", name, text(volume, "level"), policy(volume), size,
                   used, chunk, read, written);
            if (strcmp(text(volume, "init"), "foreground") == 0)
                printf("  %s: not served until it is initialised\n", name);
            print_held(array, volume);
            print_lost(array, volume);
        }
    }
}

/* "93 %", or "-" of nothing. */
static const char *share(uint64_t part, uint64_t of, char out[16])
{
    if (of > 0)
        snprintf(out, 16, "%u %%", (unsigned)(part * 100 / of));
    else
        snprintf(out, 16, "-");
    return out;
}

static void print_log(const json_t *log)
{
    char size[32], used[32];
    size_t i;
    json_t *device;
    bytes(log, "log_bytes", size);
    bytes(log, "log_used_bytes", used);
    printf("  log of %s, %s in use; %" PRIu64 " commits for %" PRIu64 " flushes\n", size, used, number(log, "commits"),
           number(log, "committed_calls"));
    json_array_foreach(json_object_get(log, "devices"), i, device)
        printf("    %s: %s\n", text(device, "path"), text(device, "state"));
    const char *reason = json_string_value(json_object_get(log, "log_reason"));
    if (reason != NULL)
        printf("    %s\n", reason);
}

static void print_cache(const json_t *array, const json_t *volume, const json_t *cache)
{
    char name[256], size[32], used[32], dirty[32], hits[16], ahead[16];
    uint64_t asked = number(cache, "hits") + number(cache, "misses");
    const char *reason = json_string_value(json_object_get(cache, "reason"));
    snprintf(name, sizeof name, "%s/%s", text(array, "name"), text(volume, "name"));
    bytes(cache, "size_bytes", size);
    bytes(cache, "used_bytes", used);
    bytes(cache, "cache_dirty_bytes", dirty);
    printf("%-24s %-8s %-8s %-10s %-10s %-10s %-8s %s\n", name, text(cache, "mode"),
           json_is_true(json_object_get(cache, "volatile")) ? "yes" : "no", size, used, dirty,
           share(number(cache, "hits"), asked, hits),
           share(number(cache, "ahead_used_bytes"), number(cache, "ahead_bytes"), ahead));
    if (reason != NULL)
        printf("  %s\n", reason);
    const json_t *arena = json_object_get(cache, "arena");
    if (json_is_object(arena))
        printf("  what is dirty outlives %s: in %s\n", text(arena, "outlives"), text(arena, "where"));
    const json_t *log = json_object_get(cache, "log");
    if (json_is_object(log))
        print_log(log);
}

void print_caches(const json_t *status)
{
    size_t i, j;
    json_t *array, *volume;
    printf("%-24s %-8s %-8s %-10s %-10s %-10s %-8s %s\n", "VOLUME", "MODE", "VOLATILE", "SIZE", "USED", "DIRTY", "HITS",
           "AHEAD");
    json_array_foreach(json_object_get(status, "arrays"), i, array)
    {
        json_array_foreach(json_object_get(array, "volumes"), j, volume)
        {
            const json_t *cache = json_object_get(volume, "cache");
            if (json_is_object(cache))
                print_cache(array, volume, cache);
            print_held(array, volume);
        }
    }
    print_arenas(status);
}

/* Microseconds as "less than" of a bucket. */
static const char *latency(const json_t *io, const char *key, char out[32])
{
    uint64_t us = number(io, key);
    if (us == 0)
        snprintf(out, 32, "-");
    else if (us < 10000)
        snprintf(out, 32, "<%" PRIu64 " us", us);
    else
        snprintf(out, 32, "<%" PRIu64 " ms", us / 1000);
    return out;
}

static void print_io(const char *name, const json_t *io, const char *behind)
{
    char read[32], written[32], p50[32], p99[32];
    bytes(io, "read_bytes", read);
    bytes(io, "written_bytes", written);
    printf("%-11s %-9" PRIu64 " %-9" PRIu64 " %-8" PRIu64 " %-10s %-10s %-7" PRIu64 " %-8" PRIu64 " %-7" PRIu64
           " %-10s %-10s %s\n",
           name, number(io, "reads"), number(io, "writes"), number(io, "others"), read, written, number(io, "failed"),
           number(io, "aborted"), number(io, "digest_errors"), latency(io, "latency_p50_us", p50),
           latency(io, "latency_p99_us", p99), behind);
}

static void session_words(const json_t *session, char *out, size_t len)
{
    char since[32] = "";
    time_t seconds = (time_t)number(session, "since");
    struct tm tm;
    const char *client = text(session, "client"), *object = text(session, "object");
    const char *initiator = client[0] != '\0' && client[0] != '-' ? client : text(session, "initiator");
    if (seconds > 0 && localtime_r(&seconds, &tm) != NULL)
        strftime(since, sizeof since, ", since %Y-%m-%d %H:%M:%S", &tm);
    snprintf(out, len, "%s%s%s, %s%s%s%s", strcmp(initiator, "-") != 0 ? initiator : "",
             strcmp(initiator, "-") != 0 ? " at " : "", text(session, "peer"), *object != '\0' ? object : "no object",
             strcmp(text(session, "phase"), "full feature") != 0 ? ", " : "",
             strcmp(text(session, "phase"), "full feature") != 0 ? text(session, "phase") : "", since);
}

void print_sessions(const json_t *answer)
{
    char words[1024], name[32];
    size_t i, j;
    json_t *session, *lun;
    printf("%-11s %-9s %-9s %-8s %-10s %-10s %-7s %-8s %-7s %-10s %-10s %s\n", "SESSION", "READS", "WRITES", "OTHERS",
           "READ", "WRITTEN", "FAILED", "ABORTED", "DIGEST", "HALF", "99 %", "");
    json_array_foreach(json_object_get(answer, "sessions"), i, session)
    {
        session_words(session, words, sizeof words);
        print_io(text(session, "id"), json_object_get(session, "io"), words);
        json_array_foreach(json_object_get(session, "luns"), j, lun)
        {
            if (json_is_null(json_object_get(lun, "lun")))
                snprintf(name, sizeof name, "  elsewhere");
            else
                snprintf(name, sizeof name, "  LUN %" PRIu64, number(lun, "lun"));
            print_io(name, json_object_get(lun, "io"), "");
        }
    }
}

static void print_spares(const json_t *status)
{
    size_t i;
    json_t *spare;
    json_array_foreach(json_object_get(status, "spares"), i, spare)
    {
        const char *array = text(spare, "array"), *trouble = text(spare, "trouble");
        printf("%-16s %-11s %-8s %s%s%s\n", *array != '\0' ? array : "(all)", "spare", "", text(spare, "path"),
               *trouble != '\0' ? ": " : "", trouble);
    }
}

static void print_journal(const json_t *array)
{
    size_t i;
    json_t *device, *journal = json_object_get(array, "journal");
    json_array_foreach(json_object_get(journal, "devices"), i, device)
    {
        char slot[128];
        const char *path = text(device, "path");
        snprintf(slot, sizeof slot, "%s/journal", text(array, "name"));
        printf("%-16s %-11s %-8s %s (%s)\n", slot, text(device, "state"), "",
               *path != '\0' ? path : text(device, "identity"), text(journal, "where"));
    }
}

void print_disks(const json_t *status)
{
    size_t i, j;
    json_t *array, *member;
    printf("%-16s %-11s %-8s %s\n", "SLOT", "STATE", "ERRORS", "DISK");
    json_array_foreach(json_object_get(status, "arrays"), i, array)
    {
        json_array_foreach(json_object_get(array, "members"), j, member)
        {
            char slot[128];
            const char *path = text(member, "path");
            snprintf(slot, sizeof slot, "%s/%" PRIu64, text(array, "name"), number(member, "slot"));
            printf("%-16s %-11s %-8" PRIu64 " %s%s\n", slot, text(member, "state"),
                   number(member, "read_errors") + number(member, "write_errors"),
                   *path != '\0' ? path : text(member, "identity"),
                   json_is_true(json_object_get(member, "slow")) ? " (slow)" : "");
        }
        print_journal(array);
    }
    print_spares(status);
}

void print_imports(const json_t *status)
{
    size_t i, j;
    json_t *import, *member;
    printf("%-16s %-12s %-10s %s\n", "IMPORT", "STATE", "SIZE", "");
    json_array_foreach(json_object_get(status, "imports"), i, import)
    {
        char size[32];
        bytes(import, "size_bytes", size);
        printf("%-16s %-12s %-10s md \"%s\": %s\n", text(import, "name"), text(import, "state"), size,
               text(import, "md_name"), text(import, "reason"));
        json_array_foreach(json_object_get(import, "members"), j, member)
        {
            printf("  %-14" PRIu64 " %-12s %s\n", number(member, "slot"), text(member, "state"), text(member, "path"));
        }
    }
}

static void print_jobs(const json_t *array)
{
    size_t i;
    json_t *job;
    json_array_foreach(json_object_get(array, "jobs"), i, job)
    {
        char speed[32], left[32];
        uint64_t done = number(job, "done_bytes"), total = number(job, "total_bytes");
        bytes(job, "bytes_per_second", speed);
        duration_format(number(job, "seconds_left"), left, sizeof left);
        printf("  %s of %s: %.1f %%", text(job, "kind"), text(job, "volume"),
               total > 0 ? 100.0 * (double)done / (double)total : 100.0);
        if (number(job, "bytes_per_second") > 0)
            printf(", %s/s, %s left", speed, left);
        if (text(job, "waits_for")[0] != '\0')
            printf(", waits: %s", text(job, "waits_for"));
        printf("\n");
    }
}

static void print_blocks(const json_t *result)
{
    printf("%" PRIu64 " blocks of 512 bytes differ, %" PRIu64 " repaired, %" PRIu64
           " with redundancy rewritten, %" PRIu64 " unreadable\n",
           number(result, "mismatched_blocks"), number(result, "repaired_blocks"), number(result, "rewritten_blocks"),
           number(result, "unreadable_blocks"));
}

void print_scrub(const json_t *scrub)
{
    size_t i;
    const json_t *running = json_object_get(scrub, "running"), *last = json_object_get(scrub, "last");
    json_t *f;
    if (last != NULL) {
        char date[32];
        time_t finished = (time_t)number(last, "finished");
        struct tm tm;
        /* A disk may hold any number. */
        bool known = localtime_r(&finished, &tm) != NULL && strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &tm) > 0;
        printf("last: %s, ended %s: ", text(last, "mode"), known ? date : "at no date that can be");
        print_blocks(last);
    } else {
        printf("last: never\n");
    }
    if (running != NULL) {
        printf("now: %s, so far: ", text(running, "mode"));
        print_blocks(running);
    }
    json_array_foreach(json_object_get(scrub, "findings"), i, f)
    {
        printf("  bytes %" PRIu64 " to %" PRIu64 ": %s", number(f, "volume_offset"),
               number(f, "volume_offset") + number(f, "volume_bytes") - 1, text(f, "found"));
        if (json_object_get(f, "slot") != NULL)
            printf(" in slot %" PRIu64 " at %" PRIu64 ", %" PRIu64 " bytes", number(f, "slot"),
                   number(f, "disk_offset"), number(f, "disk_bytes"));
        printf(": %s\n", text(f, "remedy"));
    }
    if (number(scrub, "findings_not_shown") > 0)
        printf("  and %" PRIu64 " more\n", number(scrub, "findings_not_shown"));
}

static void print_services(const json_t *status)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(status, "listeners"), i, item)
        printf("%s listens on %s\n", text(item, "protocol"), text(item, "address"));
    json_array_foreach(json_object_get(status, "exports"), i, item)
        printf("NBD export \"%s\": volume %s\n", text(item, "name"), text(item, "volume"));
    json_array_foreach(json_object_get(status, "targets"), i, item)
        printf("iSCSI target %s: %" PRIu64 " LUN%s\n", text(item, "name"), number(item, "luns"),
               number(item, "luns") == 1 ? "" : "s");
    json_array_foreach(json_object_get(status, "connections"), i, item)
    {
        char read[32], written[32];
        bytes(item, "read_bytes", read);
        bytes(item, "written_bytes", written);
        printf("%s client %s on %s: %s, read %s, written %s\n", text(item, "protocol"), text(item, "peer"),
               text(item, "object"), text(item, "phase"), read, written);
    }
}

/* "87 %, run time 20 min 0 s"; what is unknown is left out. */
static const char *power_figures(const json_t *power, char *out, size_t len)
{
    char left[32];
    const json_t *charge = json_object_get(power, "charge_percent"),
                 *runtime = json_object_get(power, "runtime_seconds");
    duration_format((uint64_t)json_integer_value(runtime), left, sizeof left);
    if (json_is_integer(charge))
        snprintf(out, len, "%" PRIu64 " %%%s%s", (uint64_t)json_integer_value(charge),
                 json_is_integer(runtime) ? ", run time " : "", json_is_integer(runtime) ? left : "");
    else
        snprintf(out, len, "charge unknown%s%s", json_is_integer(runtime) ? ", run time " : "",
                 json_is_integer(runtime) ? left : "");
    return out;
}

/* "12 MiB dirty, needs about 3 s; 1 min to stop" */
static const char *power_needs(const json_t *order, char *out, size_t len)
{
    char dirty[32], need[32], stop[32];
    bytes(order, "unsaved_bytes", dirty);
    duration_format(number(order, "destage_seconds"), need, sizeof need);
    duration_format(number(order, "shutdown_seconds"), stop, sizeof stop);
    snprintf(out, len, "%s dirty, needs about %s; %s to stop", dirty, need, stop);
    return out;
}

static void format_time(uint64_t at, char *out, size_t len)
{
    struct tm tm;
    time_t seconds = (time_t)at;
    if (localtime_r(&seconds, &tm) == NULL || strftime(out, len, "%Y-%m-%d %H:%M:%S", &tm) == 0)
        snprintf(out, len, "-");
}

/* One of several. */
static void print_source(const json_t *source)
{
    char figures[96];
    bool healthy = json_is_true(json_object_get(source, "healthy"));
    printf("          %s: %s, %s%s (%s)\n", text(source, "source"), text(source, "state"),
           healthy ? "healthy" : "not healthy: ", healthy ? "" : text(source, "reason"),
           power_figures(source, figures, sizeof figures));
}

static void print_order(const json_t *order)
{
    char needs[160], at[32];
    size_t i;
    json_t *step;
    printf("to save:  %s\n", power_needs(order, needs, sizeof needs));
    printf("order:    %s%s\n", text(order, "phase"),
           json_is_true(json_object_get(order, "work_rests")) ? ", background work rests" : "");
    json_array_foreach(json_object_get(order, "steps"), i, step)
    {
        format_time(number(step, "at"), at, sizeof at);
        printf("          %s %s\n", at, text(step, "text"));
    }
}

void print_power(const json_t *power)
{
    char figures[96], since[32], heard[32] = "never";
    const json_t *sources = json_object_get(power, "sources");
    size_t i;
    json_t *source;
    bool healthy = json_is_true(json_object_get(power, "healthy"));
    if (text(power, "source")[0] == '\0') {
        printf("no power source is configured\n");
        return;
    }
    format_time(number(power, "since"), since, sizeof since);
    if (json_is_integer(json_object_get(power, "heard_seconds_ago")))
        snprintf(heard, sizeof heard, "%" PRIu64 " s ago", number(power, "heard_seconds_ago"));
    if (json_array_size(sources) > 1) {
        printf("sources:  %zu, of which %" PRIu64 " must feed this machine:\n", json_array_size(sources),
               number(power, "needed"));
        json_array_foreach(sources, i, source) print_source(source);
    } else {
        printf("source:   %s\n", text(power, "source"));
    }
    printf("state:    %s, since %s\n", text(power, "state"), since);
    printf("healthy:  %s%s%s\n", healthy ? "yes" : "no", healthy ? "" : ": ", text(power, "reason"));
    printf("battery:  %s\nheard:    %s\n", power_figures(power, figures, sizeof figures), heard);
    print_order(json_object_get(power, "order"));
}

/* A line, if there is a source and all is not well; another one while the mains are away. */
static void print_power_trouble(const json_t *power)
{
    char figures[96], needs[160];
    const char *source = json_string_value(json_object_get(power, "source"));
    const json_t *order = json_object_get(power, "order");
    if (source == NULL || *source == '\0' || json_is_true(json_object_get(power, "healthy")))
        return;
    printf("power: %s, not healthy: %s (%s)\n", text(power, "state"), text(power, "reason"),
           power_figures(power, figures, sizeof figures));
    if (json_is_true(json_object_get(order, "work_rests")))
        printf("power: %s: %s\n", text(order, "phase"), power_needs(order, needs, sizeof needs));
    printf("\n");
}

void print_status(const json_t *status)
{
    char up[32];
    size_t i;
    json_t *array;
    duration_format(number(status, "uptime_seconds"), up, sizeof up);
    printf("corbeld %s, up %s, health: %s\n\n", text(status, "version"), up, text(status, "health"));
    print_power_trouble(json_object_get(status, "power"));
    print_arrays(status);
    json_array_foreach(json_object_get(status, "arrays"), i, array) print_jobs(array);
    printf("\n");
    print_volumes(status);
    print_arenas(status);
    printf("\n");
    print_disks(status);
    printf("\n");
    if (json_array_size(json_object_get(status, "imports")) > 0) {
        print_imports(status);
        printf("\n");
    }
    print_services(status);
}

void print_plan(const json_t *result)
{
    size_t i;
    json_t *step, *error;
    json_array_foreach(json_object_get(result, "plan"), i, step)
    {
        const json_t *refused = json_object_get(step, "refused");
        printf("%s %s\n",
               refused != NULL                             ? "REFUSED"
               : strcmp(text(step, "action"), "note") == 0 ? "note   "
                                                           : "will   ",
               text(step, "text"));
        if (refused != NULL)
            printf("        because %s\n", json_string_value(refused));
    }
    json_array_foreach(json_object_get(result, "errors"), i, error)
        fprintf(stderr, "corbelctl: %s\n", json_string_value(error));
}

void print_reload(const json_t *result)
{
    size_t i;
    json_t *item, *taken = json_object_get(result, "taken"), *refused = json_object_get(result, "refused"),
                  *errors = json_object_get(result, "errors");
    json_array_foreach(taken, i, item) printf("taken over: %s\n", json_string_value(item));
    json_array_foreach(refused, i, item) printf("not taken over: %s\n", json_string_value(item));
    json_array_foreach(errors, i, item) fprintf(stderr, "corbelctl: %s\n", json_string_value(item));
    if (json_array_size(errors) > 0)
        fprintf(stderr, "corbelctl: nothing was changed\n");
    else if (json_array_size(taken) + json_array_size(refused) == 0)
        printf("nothing to take over\n");
}
