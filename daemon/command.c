/* posix_spawn, a pipe and SIGCHLD: see daemon/command.h. */
#include "daemon/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"

extern char **environ;

enum { REAP_TRIES = 200 };

/* --- words --- */

/* One word from *at on. NULL: a quote has no end. */
static char *take_word(const char **at, char *to)
{
    char quote = '\0';
    for (; **at != '\0' && (quote != '\0' || **at != ' '); (*at)++) {
        if (quote == '\0' && (**at == '"' || **at == '\''))
            quote = **at;
        else if (quote != '\0' && **at == quote)
            quote = '\0';
        else
            *to++ = **at;
    }
    *to++ = '\0';
    return quote == '\0' ? to : NULL;
}

bool command_split(const char *line, struct command_words *out)
{
    char *to = out->text;
    out->count = 0;
    if (strlen(line) > COMMAND_LINE_MAX)
        return false;
    for (line += strspn(line, " "); *line != '\0'; line += strspn(line, " ")) {
        if (out->count == COMMAND_WORDS_MAX)
            return false;
        out->words[out->count++] = to;
        to = take_word(&line, to);
        if (to == NULL)
            return false;
    }
    out->words[out->count] = NULL;
    return out->count > 0;
}

bool command_valid(const char *line)
{
    struct command_words words = {.count = 0};
    return command_split(line, &words) && words.words[0][0] == '/';
}

/* --- the child --- */

/* Nothing of ours but standard error, no signal blocked or ignored, a group of its own. 0 or an errno. */
static int spawn(pid_t *pid, char **words, int out)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    int error = posix_spawn(pid, words[0], &files, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

/* What there is to read now; what does not fit is thrown away, so that the child does not wait for us. False: the
 * end. */
static bool drain(struct command *c)
{
    char bytes[1024];
    ssize_t n;
    while ((n = read(c->pipe, bytes, sizeof bytes)) > 0) {
        size_t taken = MIN((size_t)n, COMMAND_OUTPUT_MAX - c->output_len);
        memcpy(c->output + c->output_len, bytes, taken);
        c->output_len += taken;
    }
    c->output[c->output_len] = '\0';
    return n < 0 && errno == EAGAIN;
}

static void on_readable(evutil_socket_t fd, short events, void *data)
{
    (void)fd, (void)events;
    struct command *c = data;
    reactor_woken(c->reactor);
    if (!drain(c))
        event_del(&c->readable);
}

static void let_go(struct command *c)
{
    event_del(&c->readable);
    event_del(&c->child);
    timer_stop(reactor_loop(c->reactor), &c->clock);
    close(c->pipe);
    c->running = false;
}

/* A child ended: ours? Its group may go on, and hold the pipe; what it printed so far is what counts. */
static void on_child(evutil_socket_t number, short events, void *data)
{
    (void)number, (void)events;
    struct command *c = data;
    int status;
    reactor_woken(c->reactor);
    if (waitpid(c->pid, &status, WNOHANG) != c->pid)
        return;
    drain(c);
    let_go(c);
    if (c->too_slow)
        c->ended(c, COMMAND_TOO_SLOW, 0);
    else if (WIFEXITED(status))
        c->ended(c, COMMAND_EXITED, WEXITSTATUS(status));
    else
        c->ended(c, COMMAND_KILLED, WTERMSIG(status));
}

static void on_time_over(struct timer *timer)
{
    struct command *c = container_of(timer, struct command, clock);
    c->too_slow = true;
    kill(-c->pid, SIGKILL);
}

/* 0, and c->pipe to read from; or an errno. */
static int start_child(struct command *c, const char *line)
{
    struct command_words words = {.count = 0};
    int pipe_fds[2];
    if (!command_split(line, &words))
        return EINVAL;
    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return errno;
    int error = spawn(&c->pid, words.words, pipe_fds[1]);
    close(pipe_fds[1]);
    if (error != 0)
        close(pipe_fds[0]);
    c->pipe = pipe_fds[0];
    return error;
}

/* Whoever hears of children must listen before there is one. */
void command_start(struct command *c, struct reactor *reactor, const char *line, uint64_t time_ns)
{
    ASSERT(!c->running);
    *c = (struct command){.ended = c->ended, .reactor = reactor, .clock.fire = on_time_over};
    event_assign(&c->child, reactor_base(reactor), SIGCHLD, EV_SIGNAL | EV_PERSIST, on_child, c);
    event_add(&c->child, NULL);
    int error = start_child(c, line);
    if (error != 0) {
        event_del(&c->child);
        c->ended(c, COMMAND_NOT_STARTED, error);
        return;
    }
    c->running = true;
    fcntl(c->pipe, F_SETFL, O_NONBLOCK);
    event_assign(&c->readable, reactor_base(reactor), c->pipe, EV_READ | EV_PERSIST, on_readable, c);
    event_add(&c->readable, NULL);
    timer_start(reactor_loop(reactor), &c->clock, time_ns);
}

void command_leave(struct command *c)
{
    if (c->running)
        let_go(c);
}

/* What was killed is gone in a moment; one that hangs in the kernel is left to whoever inherits it. */
void command_cancel(struct command *c)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    if (!c->running)
        return;
    let_go(c);
    kill(-c->pid, SIGKILL);
    for (unsigned i = 0; i < REAP_TRIES && waitpid(c->pid, NULL, WNOHANG) == 0; i++)
        nanosleep(&moment, NULL);
}
