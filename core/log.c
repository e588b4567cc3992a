/* Log and flight recorder: see core/log.h. The sink and the threshold are the only process-wide state of core/. */
#include "core/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/check.h"

enum { FLIGHT_NOTES = 512, LINE_MAX_LEN = 1024 };

struct flight_entry {
    const char *what;
    uint64_t a, b;
};

static void sink_stderr(enum log_level level, const char *line)
{
    fprintf(stderr, "%s: %s\n", log_level_name(level), line);
}

static log_sink current_sink = sink_stderr;
static enum log_level current_threshold = LOG_LEVEL_NOTICE;

static _Thread_local struct flight_entry flight_ring[FLIGHT_NOTES];
static _Thread_local uint64_t flight_count;

void log_setup(log_sink sink, enum log_level threshold)
{
    current_sink = sink != NULL ? sink : sink_stderr;
    current_threshold = threshold;
}

const char *log_level_name(enum log_level level)
{
    static const char *const names[] = {"error", "warning", "notice", "info", "debug"};
    return (unsigned)level < ARRAY_LENGTH(names) ? names[level] : "unknown";
}

void log_write(enum log_level level, const char *format, ...)
{
    if (level > current_threshold)
        return;
    char line[LINE_MAX_LEN];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    current_sink(level, line);
}

void text_format(char *out, uint64_t out_len, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out, (size_t)out_len, format, args);
    va_end(args);
}

void flight_note(const char *what, uint64_t a, uint64_t b)
{
    flight_ring[flight_count % FLIGHT_NOTES] = (struct flight_entry){what, a, b};
    flight_count++;
}

void flight_dump(void (*print)(const char *line))
{
    uint64_t first = flight_count > FLIGHT_NOTES ? flight_count - FLIGHT_NOTES : 0;
    for (uint64_t i = first; i < flight_count; i++) {
        const struct flight_entry *e = &flight_ring[i % FLIGHT_NOTES];
        char line[160];
        snprintf(line, sizeof line, "flight %" PRIu64 ": %s %" PRIu64 " %" PRIu64, i, e->what, e->a, e->b);
        print(line);
    }
}

static void print_stderr(const char *line)
{
    fprintf(stderr, "%s\n", line);
}

_Noreturn void check_failed(const char *file, int line, const char *what)
{
    flight_dump(print_stderr);
    log_write(LOG_LEVEL_ERROR, "assertion failed at %s:%d: %s", file, line, what);
    abort();
}
