/*
 * What is said to NUT's upsd and what it answers (RFC 9271, the text protocol of TCP port 3493), without a socket.
 *
 * A conversation asks for all variables of one UPS, again and again, at first behind a login if one is wanted:
 *
 *     USERNAME u        OK
 *     PASSWORD p        OK
 *     LOGIN ups         OK
 *     LIST VAR ups      BEGIN LIST VAR ups, VAR ups NAME "VALUE" ..., END LIST VAR ups; or ERR WORD
 *
 * Bytes go in; what comes out is a reading, or why there is none. Lines and lists are bounded; a line that cannot be
 * ends the conversation: whoever speaks so is not believed.
 */
#ifndef DAEMON_POWER_UPSD_H
#define DAEMON_POWER_UPSD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/power.h"

enum { UPSD_PORT = 3493, UPSD_LINE_MAX = 1023, UPSD_WORDS_MAX = 8, UPSD_NAME_MAX = 127, UPSD_ASK_MAX = 2048 };

/* A line, cut into words: by blanks, but for those in "quotes", where \ keeps the meaning from the next character. */
struct upsd_line {
    unsigned count;
    const char *words[UPSD_WORDS_MAX]; /* in text */
    char text[UPSD_LINE_MAX + 1];
};

/* Without its end. False: it is too long, has too many words, a quote without an end, or control characters. */
bool upsd_line_parse(const char *bytes, size_t len, struct upsd_line *out);

/* The words of ups.status as enum power_flag. Those that nobody knows mean nothing. */
uint32_t upsd_status_parse(const char *status);

enum upsd_event {
    UPSD_MORE,    /* more bytes are needed */
    UPSD_READING, /* the answer is complete: talk->reading */
    UPSD_ERROR,   /* upsd does not know: talk->why */
    UPSD_BROKEN,  /* it makes no sense, or the login was refused: talk->why; the conversation is over */
};

struct upsd_talk {
    char ups[UPSD_NAME_MAX + 1];
    unsigned acknowledgements; /* of the login, still to come */
    enum { UPSD_IDLE, UPSD_ASKED, UPSD_LISTING } state;
    bool status_seen, waiting; /* the driver has no data of the UPS yet */
    unsigned lines;            /* of this list */
    struct power_reading reading;
    char why[160];
    size_t len; /* of what is there of a line */
    char line[UPSD_LINE_MAX + 1];
};

/* The text that opens a conversation: the login, or nothing for user "". Its length; the talk is ready to be asked. */
size_t upsd_talk_begin(struct upsd_talk *talk, const char *ups, const char *user, const char *password,
                       char out[UPSD_ASK_MAX]);
/* The text that asks once. The last answer is complete. */
size_t upsd_talk_ask(struct upsd_talk *talk, char out[UPSD_ASK_MAX]);
/* Bytes of upsd. Takes them up to the first event, and tells in *used how many that were. */
enum upsd_event upsd_talk_feed(struct upsd_talk *talk, const char *bytes, size_t len, size_t *used);

#endif
