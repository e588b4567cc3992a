/*
 * A program that is run and waited for, without blocking: for a bounded time, and with the beginning of what it prints.
 *
 * The line that says which: words parted by blanks, the first an absolute path; blanks belong to a word that stands in
 * 'quotes' or "quotes". There is no shell in between: whoever wants one writes /bin/sh -c '...'.
 *
 * It runs in a process group of its own, without our descriptors but for standard error, and the whole group is killed
 * when its time is over. On the control reactor only: libevent hears of ended children on one base.
 */
#ifndef DAEMON_COMMAND_H
#define DAEMON_COMMAND_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/loop.h"
#include "daemon/reactor.h"

enum { COMMAND_WORDS_MAX = 32, COMMAND_LINE_MAX = 511, COMMAND_OUTPUT_MAX = 255 };

struct command_words {
    unsigned count;
    char *words[COMMAND_WORDS_MAX + 1]; /* in text; ends with NULL */
    char text[COMMAND_LINE_MAX + 1];
};

bool command_split(const char *line, struct command_words *out);
/* Can it be split, and does it begin with an absolute path? */
bool command_valid(const char *line);

enum command_end {
    COMMAND_EXITED, /* number: its exit status */
    COMMAND_KILLED, /* number: the signal, not ours */
    COMMAND_TOO_SLOW,
    COMMAND_NOT_STARTED, /* number: errno */
};

struct command {
    /* Its end, told on the reactor; it may be started again from there. */
    void (*ended)(struct command *command, enum command_end end, int number);
    char output[COMMAND_OUTPUT_MAX + 1]; /* the first bytes of its standard output */
    /* Private. */
    struct reactor *reactor;
    pid_t pid;
    int pipe;
    size_t output_len;
    bool running, too_slow;
    struct event readable, child;
    struct timer clock;
};

/* `ended` is set. Not while it runs. */
void command_start(struct command *command, struct reactor *reactor, const char *line, uint64_t time_ns);
/* Kill it, and forget it: ended() will not be called. */
void command_cancel(struct command *command);
/* Let it run on without us. */
void command_leave(struct command *command);

#endif
