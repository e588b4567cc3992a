/*
 * A command as power source: it is run each time, for 10 seconds at most. Its exit status says it: 0 on mains with a
 * good battery, 1 on battery, 2 and that is low, anything else: unknown. What it prints first may tell more:
 * charge=PERCENT and runtime=SECONDS.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/command.h"
#include "daemon/power_command.h"
#include "daemon/power_source.h"

#define ANSWER_NS 10000000000ull

struct command_source {
    struct power_source source;
    struct command command;
    char line[COMMAND_LINE_MAX + 1];
};

/* The number behind `key` at the beginning of a word of the first line; `unknown`: none from 0 to max. */
static uint64_t number_of(const char *output, const char *key, uint64_t max, uint64_t unknown)
{
    size_t len = strlen(key);
    for (const char *at = output; *at != '\0' && *at != '\n'; at++) {
        if (strncmp(at, key, len) != 0 || (at != output && at[-1] != ' '))
            continue;
        char *end;
        if (at[len] < '0' || at[len] > '9')
            return unknown;
        unsigned long long value = strtoull(at + len, &end, 10);
        return value <= max && strchr(" \n", *end) != NULL ? value : unknown;
    }
    return unknown;
}

bool power_command_judge(int status, const char *output, struct power_reading *out)
{
    enum { YEAR_S = 31536000 };
    static const uint32_t flags[] = {POWER_FLAG_ONLINE, POWER_FLAG_ON_BATTERY, POWER_FLAG_ON_BATTERY | POWER_FLAG_LOW};
    if (status < 0 || (unsigned)status >= ARRAY_LENGTH(flags))
        return false;
    *out = (struct power_reading){flags[status], (uint32_t)number_of(output, "charge=", 100, POWER_CHARGE_UNKNOWN),
                                  number_of(output, "runtime=", YEAR_S, POWER_RUNTIME_UNKNOWN)};
    return true;
}

/* What a command prints goes to the log and to terminals: its first line, without what is no text. */
static void make_printable(char *text)
{
    text[strcspn(text, "\n")] = '\0';
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

static void on_ended(struct command *command, enum command_end end, int number)
{
    struct command_source *s = container_of(command, struct command_source, command);
    struct power_reading reading;
    char why[160];
    if (end == COMMAND_EXITED && power_command_judge(number, command->output, &reading)) {
        power_answered(&s->source, POWER_READING, &reading, NULL);
        return;
    }
    if (end == COMMAND_EXITED)
        text_format(why, sizeof why, "the command ended with status %d: %.80s", number, command->output);
    else if (end == COMMAND_KILLED)
        text_format(why, sizeof why, "the command was ended by signal %d", number);
    else if (end == COMMAND_TOO_SLOW)
        text_format(why, sizeof why, "the command did not end within %llu s and was killed", ANSWER_NS / 1000000000);
    else
        text_format(why, sizeof why, "the command cannot be run: %s", strerror(number));
    make_printable(why);
    power_answered(&s->source, POWER_ERROR, NULL, why);
}

static void command_ask(struct power_source *source)
{
    struct command_source *s = container_of(source, struct command_source, source);
    command_start(&s->command, source->reactor, s->line, ANSWER_NS);
}

static void command_close(struct power_source *source)
{
    struct command_source *s = container_of(source, struct command_source, source);
    command_cancel(&s->command);
    free(s);
}

struct power_source *power_command_open(struct reactor *reactor, const struct power_source_spec *spec)
{
    struct command_source *s = calloc(1, sizeof *s);
    ASSERT(s != NULL && spec->kind == POWER_SOURCE_COMMAND);
    s->source = (struct power_source){.ask = command_ask, .close = command_close, .reactor = reactor};
    s->command.ended = on_ended;
    text_format(s->line, sizeof s->line, "%s", spec->text);
    return &s->source;
}
