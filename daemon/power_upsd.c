/* See daemon/power_upsd.h. Each line goes through the state of the conversation; the words of a line are a table's. */
#include "daemon/power_upsd.h"

#include <ctype.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"

enum { LINES_MAX = 2000 };

/* --- words --- */

/* One word from *at on, with its end put behind it in `to`. NULL: a quote has no end. */
static char *take_word(const char **at, const char *end, char *to)
{
    bool quoted = **at == '"';
    for (*at += quoted; *at < end && (quoted ? **at != '"' : **at != ' '); (*at)++) {
        if (quoted && **at == '\\' && *at + 1 < end)
            (*at)++;
        *to++ = **at;
    }
    if (quoted && *at == end)
        return NULL;
    *at += quoted;
    *to++ = '\0';
    return to;
}

bool upsd_line_parse(const char *bytes, size_t len, struct upsd_line *out)
{
    const char *at = bytes, *end = bytes + len;
    char *to = out->text;
    out->count = 0;
    if (len > UPSD_LINE_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)bytes[i] < ' ' || bytes[i] == 0x7f)
            return false;
    for (;;) {
        while (at < end && *at == ' ')
            at++;
        if (at == end)
            return true;
        if (out->count == UPSD_WORDS_MAX)
            return false;
        out->words[out->count++] = to;
        to = take_word(&at, end, to);
        if (to == NULL)
            return false;
    }
}

uint32_t upsd_status_parse(const char *status)
{
    static const struct {
        const char *word;
        uint32_t flag;
    } words[] = {{"OL", POWER_FLAG_ONLINE},           {"OB", POWER_FLAG_ON_BATTERY},   {"LB", POWER_FLAG_LOW},
                 {"FSD", POWER_FLAG_SHUTDOWN},        {"RB", POWER_FLAG_REPLACE},      {"CAL", POWER_FLAG_CALIBRATING},
                 {"TEST", POWER_FLAG_CALIBRATING},    {"BYPASS", POWER_FLAG_BYPASS},   {"OFF", POWER_FLAG_OFF},
                 {"DISCHRG", POWER_FLAG_DISCHARGING}, {"OVER", POWER_FLAG_OVERLOADED}, {"ALARM", POWER_FLAG_ALARM}};
    uint32_t flags = 0;
    while (*status != '\0') {
        size_t len = strcspn(status, " ");
        for (unsigned i = 0; i < ARRAY_LENGTH(words); i++)
            if (strlen(words[i].word) == len && strncmp(words[i].word, status, len) == 0)
                flags |= words[i].flag;
        status += len;
        status += strspn(status, " ");
    }
    /* A battery that discharges while the mains are away is no news. */
    return flags & POWER_FLAG_ON_BATTERY ? flags & ~(uint32_t)POWER_FLAG_DISCHARGING : flags;
}

/* "1234", "87.5": the whole part. `unknown` if it is no number from 0 to max. */
static uint64_t number_parse(const char *text, uint64_t max, uint64_t unknown)
{
    uint64_t value = 0;
    const char *at = text;
    for (; isdigit((unsigned char)*at) && value <= max; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    if (at == text || value > max)
        return unknown;
    if (*at == '.')
        for (at++; isdigit((unsigned char)*at);)
            at++;
    return *at == '\0' ? value : unknown;
}

static void take_variable(struct upsd_talk *talk, const char *name, const char *value)
{
    enum { YEAR_S = 31536000 };
    if (strcmp(name, "ups.status") == 0) {
        talk->reading.flags = upsd_status_parse(value);
        talk->status_seen = true;
        talk->waiting = strcmp(value, "WAIT") == 0;
    } else if (strcmp(name, "battery.charge") == 0) {
        talk->reading.charge = (uint32_t)number_parse(value, 100, POWER_CHARGE_UNKNOWN);
    } else if (strcmp(name, "battery.runtime") == 0) {
        talk->reading.runtime_s = number_parse(value, YEAR_S, POWER_RUNTIME_UNKNOWN);
    }
}

/* --- the conversation --- */

/* Text in quotes, so that it is one word whatever it holds. */
static size_t put_quoted(char *out, size_t at, const char *text)
{
    out[at++] = '"';
    for (; *text != '\0' && at < UPSD_ASK_MAX - 4; text++) {
        if (*text == '"' || *text == '\\')
            out[at++] = '\\';
        out[at++] = *text;
    }
    out[at++] = '"';
    return at;
}

static size_t put_command(char *out, size_t at, const char *command, const char *word)
{
    size_t len = strlen(command);
    ASSERT(at + len + 2 * strlen(word) + 8 < UPSD_ASK_MAX);
    memcpy(out + at, command, len);
    at = put_quoted(out, at + len, word);
    out[at++] = '\n';
    return at;
}

size_t upsd_talk_begin(struct upsd_talk *talk, const char *ups, const char *user, const char *password,
                       char out[UPSD_ASK_MAX])
{
    *talk = (struct upsd_talk){.state = UPSD_IDLE};
    text_format(talk->ups, sizeof talk->ups, "%s", ups);
    if (*user == '\0')
        return 0;
    talk->acknowledgements = 3;
    size_t len = put_command(out, 0, "USERNAME ", user);
    len = put_command(out, len, "PASSWORD ", password);
    return put_command(out, len, "LOGIN ", ups);
}

size_t upsd_talk_ask(struct upsd_talk *talk, char out[UPSD_ASK_MAX])
{
    ASSERT(talk->state == UPSD_IDLE);
    talk->state = UPSD_ASKED;
    talk->status_seen = talk->waiting = false;
    talk->lines = 0;
    talk->reading = (struct power_reading){0, POWER_CHARGE_UNKNOWN, POWER_RUNTIME_UNKNOWN};
    return put_command(out, 0, "LIST VAR ", talk->ups);
}

static enum upsd_event broken(struct upsd_talk *talk, const char *why)
{
    text_format(talk->why, sizeof talk->why, "%s", why);
    return UPSD_BROKEN;
}

/* What stands behind ERR. */
static enum upsd_event refused(struct upsd_talk *talk, const char *word)
{
    static const struct {
        const char *word, *meaning;
    } errors[] = {{"DATA-STALE", "the driver has no fresh data of the UPS"},
                  {"DRIVER-NOT-CONNECTED", "the driver of the UPS does not run"},
                  {"UNKNOWN-UPS", "there is no UPS of that name"},
                  {"ACCESS-DENIED", "user, password or address are not allowed in"},
                  {"USERNAME-REQUIRED", "it wants a user"},
                  {"PASSWORD-REQUIRED", "it wants a password"}};
    const char *meaning = "";
    for (unsigned i = 0; i < ARRAY_LENGTH(errors); i++)
        if (strcmp(word, errors[i].word) == 0)
            meaning = errors[i].meaning;
    text_format(talk->why, sizeof talk->why, "upsd: %.40s%s%s", word, *meaning != '\0' ? ": " : "", meaning);
    talk->state = UPSD_IDLE;
    return talk->acknowledgements > 0 ? UPSD_BROKEN : UPSD_ERROR;
}

static bool line_is(const struct upsd_line *line, const char *first, const char *ups)
{
    return line->count == 4 && strcmp(line->words[0], first) == 0 && strcmp(line->words[1], "LIST") == 0 &&
           strcmp(line->words[2], "VAR") == 0 && strcmp(line->words[3], ups) == 0;
}

static enum upsd_event take_item(struct upsd_talk *talk, const struct upsd_line *line)
{
    if (line_is(line, "END", talk->ups)) {
        talk->state = UPSD_IDLE;
        if (talk->status_seen && !talk->waiting)
            return UPSD_READING;
        text_format(talk->why, sizeof talk->why, "%s",
                    talk->waiting ? "upsd: the driver waits for the UPS" : "upsd: the UPS has no ups.status");
        return UPSD_ERROR;
    }
    if (line->count != 4 || strcmp(line->words[0], "VAR") != 0 || strcmp(line->words[1], talk->ups) != 0)
        return broken(talk, "upsd sent something else than a variable");
    if (++talk->lines > LINES_MAX)
        return broken(talk, "upsd sent too many variables");
    take_variable(talk, line->words[2], line->words[3]);
    return UPSD_MORE;
}

static enum upsd_event take_line(struct upsd_talk *talk, const struct upsd_line *line)
{
    if (talk->state == UPSD_IDLE && talk->acknowledgements == 0)
        return broken(talk, "upsd spoke without having been asked");
    if (line->count >= 2 && strcmp(line->words[0], "ERR") == 0)
        return refused(talk, line->words[1]);
    if (talk->acknowledgements > 0) {
        if (line->count == 0 || strcmp(line->words[0], "OK") != 0)
            return broken(talk, "upsd did not answer the login");
        talk->acknowledgements--;
        return UPSD_MORE;
    }
    if (talk->state == UPSD_LISTING)
        return take_item(talk, line);
    if (!line_is(line, "BEGIN", talk->ups))
        return broken(talk, "upsd sent no list of variables");
    talk->state = UPSD_LISTING;
    return UPSD_MORE;
}

/* A whole line is in talk->line. */
static enum upsd_event end_line(struct upsd_talk *talk)
{
    struct upsd_line line = {.count = 0};
    size_t len = talk->len > 0 && talk->line[talk->len - 1] == '\r' ? talk->len - 1 : talk->len;
    talk->len = 0;
    if (!upsd_line_parse(talk->line, len, &line))
        return broken(talk, "upsd sent a line that cannot be");
    return take_line(talk, &line);
}

enum upsd_event upsd_talk_feed(struct upsd_talk *talk, const char *bytes, size_t len, size_t *used)
{
    for (*used = 0; *used < len;) {
        char c = bytes[(*used)++];
        if (c != '\n' && talk->len == UPSD_LINE_MAX)
            return broken(talk, "upsd sent a line that is too long");
        if (c != '\n') {
            talk->line[talk->len++] = c;
            continue;
        }
        enum upsd_event event = end_line(talk);
        if (event != UPSD_MORE)
            return event;
    }
    return UPSD_MORE;
}
