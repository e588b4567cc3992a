#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/check.h"
#include "daemon/power_upsd.h"

Test(power_upsd, lines_become_words)
{
    static const struct {
        const char *line;
        unsigned count;
        const char *words[4];
    } cases[] = {
        {"VAR ups battery.charge \"87\"", 4, {"VAR", "ups", "battery.charge", "87"}},
        {"VAR ups ups.status \"OL CHRG\"", 4, {"VAR", "ups", "ups.status", "OL CHRG"}},
        {"VAR ups ups.model \"a \\\"big\\\" \\\\ one\"", 4, {"VAR", "ups", "ups.model", "a \"big\" \\ one"}},
        {"  OK   Goodbye ", 2, {"OK", "Goodbye"}},
        {"VAR ups x \"\"", 4, {"VAR", "ups", "x", ""}},
        {"a\"b c\"", 2, {"a\"b", "c\""}},
        {"\"a\"\"b\"", 2, {"a", "b"}},
        {"VAR ups x \"gr\xc3\xbc\xc3\x9f\"", 4, {"VAR", "ups", "x", "gr\xc3\xbc\xc3\x9f"}},
        {"", 0, {NULL}},
    };
    struct upsd_line line;
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        cr_assert(upsd_line_parse(cases[i].line, strlen(cases[i].line), &line), "%s", cases[i].line);
        cr_assert_eq(line.count, cases[i].count, "%s: %u words", cases[i].line, line.count);
        for (unsigned w = 0; w < line.count; w++)
            cr_expect_str_eq(line.words[w], cases[i].words[w]);
    }
}

Test(power_upsd, lines_that_cannot_be_are_refused)
{
    static const char *const bad[] = {
        "VAR ups x \"no end", "VAR ups x \"no end\\\"", "tab\there", "a b c d e f g h i", "bell \a", "\x7f"};
    struct upsd_line line;
    char longest[UPSD_LINE_MAX + 2];
    for (unsigned i = 0; i < ARRAY_LENGTH(bad); i++)
        cr_expect_not(upsd_line_parse(bad[i], strlen(bad[i]), &line), "%s", bad[i]);
    cr_expect_not(upsd_line_parse("a\0b", 3, &line));
    memset(longest, 'x', sizeof longest);
    cr_expect(upsd_line_parse(longest, UPSD_LINE_MAX, &line) && strlen(line.words[0]) == UPSD_LINE_MAX);
    cr_expect_not(upsd_line_parse(longest, UPSD_LINE_MAX + 1, &line));
}

Test(power_upsd, words_of_the_status_are_flags)
{
    static const struct {
        const char *status;
        uint32_t flags;
    } cases[] = {
        {"OL", POWER_FLAG_ONLINE},
        {"OL CHRG", POWER_FLAG_ONLINE},
        {"OL TRIM ECO NEW-WORD", POWER_FLAG_ONLINE},
        {"OB DISCHRG", POWER_FLAG_ON_BATTERY},
        {"OL DISCHRG", POWER_FLAG_ONLINE | POWER_FLAG_DISCHARGING},
        {"OB LB", POWER_FLAG_ON_BATTERY | POWER_FLAG_LOW},
        {"  FSD   OL ", POWER_FLAG_SHUTDOWN | POWER_FLAG_ONLINE},
        {"ALARM OL RB", POWER_FLAG_ALARM | POWER_FLAG_ONLINE | POWER_FLAG_REPLACE},
        {"OL CAL", POWER_FLAG_ONLINE | POWER_FLAG_CALIBRATING},
        {"OL TEST", POWER_FLAG_ONLINE | POWER_FLAG_CALIBRATING},
        {"BYPASS OFF OVER", POWER_FLAG_BYPASS | POWER_FLAG_OFF | POWER_FLAG_OVERLOADED},
        {"WAIT", 0},
        {"ol", 0},
        {"OLD", 0},
        {"", 0},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++)
        cr_expect_eq(upsd_status_parse(cases[i].status), cases[i].flags, "\"%s\": %#x", cases[i].status,
                     upsd_status_parse(cases[i].status));
}

/* Feed a text in pieces of `piece` bytes, and stop at the first event. */
static enum upsd_event feed(struct upsd_talk *talk, const char *text, size_t piece)
{
    size_t len = strlen(text), used = 0;
    enum upsd_event event = UPSD_MORE;
    for (size_t at = 0; at < len && event == UPSD_MORE; at += used) {
        event = upsd_talk_feed(talk, text + at, MIN(piece, len - at), &used);
        cr_assert(used > 0 && used <= MIN(piece, len - at));
    }
    return event;
}

static void begin(struct upsd_talk *talk, const char *user)
{
    char out[UPSD_ASK_MAX];
    upsd_talk_begin(talk, "ups", user, "secret", out);
    upsd_talk_ask(talk, out);
}

Test(power_upsd, asks_for_all_variables_and_takes_three)
{
    static const char answer[] = "BEGIN LIST VAR ups\n"
                                 "VAR ups battery.charge \"87.9\"\n"
                                 "VAR ups battery.runtime \"1234\"\r\n"
                                 "VAR ups ups.model \"A \\\"B\\\"\"\n"
                                 "VAR ups ups.status \"OL CHRG\"\n"
                                 "END LIST VAR ups\n";
    char out[UPSD_ASK_MAX];
    for (size_t piece = 1; piece < sizeof answer; piece += 7) {
        struct upsd_talk talk;
        cr_expect_eq(upsd_talk_begin(&talk, "ups", "", "", out), 0);
        size_t len = upsd_talk_ask(&talk, out);
        cr_expect(len == 15 && memcmp(out, "LIST VAR \"ups\"\n", 15) == 0);
        cr_assert_eq(feed(&talk, answer, piece), UPSD_READING, "%s", talk.why);
        cr_expect(talk.reading.flags == POWER_FLAG_ONLINE && talk.reading.charge == 87 &&
                  talk.reading.runtime_s == 1234);
        upsd_talk_ask(&talk, out);
        cr_assert_eq(feed(&talk, "BEGIN LIST VAR ups\nVAR ups ups.status \"OB\"\nEND LIST VAR ups\n", piece),
                     UPSD_READING);
        cr_expect(talk.reading.flags == POWER_FLAG_ON_BATTERY && talk.reading.charge == POWER_CHARGE_UNKNOWN &&
                      talk.reading.runtime_s == POWER_RUNTIME_UNKNOWN,
                  "nothing is left of the answer before");
    }
}

Test(power_upsd, numbers_that_cannot_be_are_unknown)
{
    static const struct {
        const char *text;
        uint32_t charge;
        uint64_t runtime_s;
    } cases[] = {{"0", 0, 0},
                 {"100.0", 100, 100},
                 {"101", POWER_CHARGE_UNKNOWN, 101},
                 {"-1", POWER_CHARGE_UNKNOWN, POWER_RUNTIME_UNKNOWN},
                 {"", POWER_CHARGE_UNKNOWN, POWER_RUNTIME_UNKNOWN},
                 {"12x", POWER_CHARGE_UNKNOWN, POWER_RUNTIME_UNKNOWN},
                 {"99999999999999999999999", POWER_CHARGE_UNKNOWN, POWER_RUNTIME_UNKNOWN}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct upsd_talk talk;
        char answer[512];
        begin(&talk, "");
        snprintf(answer, sizeof answer,
                 "BEGIN LIST VAR ups\nVAR ups battery.charge \"%s\"\nVAR ups battery.runtime \"%s\"\n"
                 "VAR ups ups.status \"OL\"\nEND LIST VAR ups\n",
                 cases[i].text, cases[i].text);
        cr_assert_eq(feed(&talk, answer, 1000), UPSD_READING);
        cr_expect_eq(talk.reading.charge, cases[i].charge, "\"%s\"", cases[i].text);
        cr_expect_eq(talk.reading.runtime_s, cases[i].runtime_s, "\"%s\"", cases[i].text);
    }
}

Test(power_upsd, a_login_goes_before)
{
    struct upsd_talk talk;
    char out[UPSD_ASK_MAX];
    size_t len = upsd_talk_begin(&talk, "ups", "corbel", "a \"b\\c", out);
    static const char wanted[] = "USERNAME \"corbel\"\nPASSWORD \"a \\\"b\\\\c\"\nLOGIN \"ups\"\n";
    cr_expect(len == sizeof wanted - 1 && memcmp(out, wanted, len) == 0, "%.*s", (int)len, out);
    upsd_talk_ask(&talk, out);
    cr_expect_eq(feed(&talk, "OK\nOK\nOK\nBEGIN LIST VAR ups\nVAR ups ups.status \"OL\"\nEND LIST VAR ups\n", 9),
                 UPSD_READING);
    begin(&talk, "corbel");
    cr_expect_eq(feed(&talk, "OK\nOK\nERR ACCESS-DENIED\n", 9), UPSD_BROKEN);
    cr_expect_str_eq(talk.why, "upsd: ACCESS-DENIED: user, password or address are not allowed in");
    begin(&talk, "corbel");
    cr_expect_eq(feed(&talk, "OK\nOK\nBEGIN LIST VAR ups\n", 9), UPSD_BROKEN);
}

Test(power_upsd, errors_are_told_and_the_conversation_goes_on)
{
    static const char *const errors[] = {"DATA-STALE", "DRIVER-NOT-CONNECTED", "UNKNOWN-UPS", "NEW-ERROR more words"};
    struct upsd_talk talk;
    char out[UPSD_ASK_MAX], answer[64];
    begin(&talk, "");
    for (unsigned i = 0; i < ARRAY_LENGTH(errors); i++) {
        snprintf(answer, sizeof answer, "ERR %s\n", errors[i]);
        cr_expect_eq(feed(&talk, answer, 100), UPSD_ERROR);
        cr_expect_not_null(strstr(talk.why, i < 3 ? errors[i] : "NEW-ERROR"), "%s", talk.why);
        upsd_talk_ask(&talk, out);
    }
    cr_expect_eq(feed(&talk, "BEGIN LIST VAR ups\nVAR ups battery.charge \"5\"\nEND LIST VAR ups\n", 100), UPSD_ERROR,
                 "a list without a status");
    upsd_talk_ask(&talk, out);
    cr_expect_eq(feed(&talk, "BEGIN LIST VAR ups\nVAR ups ups.status \"WAIT\"\nEND LIST VAR ups\n", 100), UPSD_ERROR,
                 "a driver that has only just started");
}

Test(power_upsd, what_makes_no_sense_ends_the_conversation)
{
    static const char *const bad[] = {
        "HTTP/1.1 400 Bad Request\r\n",
        "OK\n",
        "\n",
        "BEGIN LIST VAR other\n",
        "BEGIN LIST CMD ups\n",
        "BEGIN LIST VAR ups\nVAR other ups.status \"OL\"\n",
        "BEGIN LIST VAR ups\nVAR ups ups.status\n",
        "BEGIN LIST VAR ups\nVAR ups ups.status \"OL\n",
        "BEGIN LIST VAR ups\nEND LIST VAR other\n",
    };
    struct upsd_talk talk;
    char longest[UPSD_LINE_MAX + 2];
    for (unsigned i = 0; i < ARRAY_LENGTH(bad); i++) {
        begin(&talk, "");
        cr_expect_eq(feed(&talk, bad[i], 100), UPSD_BROKEN, "%s", bad[i]);
        cr_expect_neq(talk.why[0], '\0');
    }
    begin(&talk, "");
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    cr_expect_eq(feed(&talk, longest, 100), UPSD_BROKEN, "a line without an end");
    begin(&talk, "");
    enum upsd_event event = feed(&talk, "BEGIN LIST VAR ups\n", 100);
    for (unsigned i = 0; i < 2001 && event == UPSD_MORE; i++)
        event = feed(&talk, "VAR ups x \"y\"\n", 100);
    cr_expect_eq(event, UPSD_BROKEN, "a list without an end");
    begin(&talk, "");
    feed(&talk, "BEGIN LIST VAR ups\nVAR ups ups.status \"OL\"\nEND LIST VAR ups\n", 100);
    cr_expect_eq(feed(&talk, "VAR ups ups.status \"OB\"\n", 100), UPSD_BROKEN, "unasked");
}
