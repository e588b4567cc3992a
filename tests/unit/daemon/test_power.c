#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "core/power_watch.h"
#include "daemon/command.h"
#include "daemon/config_power.h"
#include "daemon/power_command.h"
#include "daemon/power_sysfs.h"
#include "daemon/worker.h"

/* --- what a source may look like --- */

Test(power_source, words_of_the_config_name_one)
{
    static const struct {
        const char *text;
        enum power_kind kind;
        const char *ups, *host, *rest;
        unsigned port;
    } cases[] = {
        {"", POWER_SOURCE_NONE, "", "", "", 0},
        {"nut://ups@127.0.0.1", POWER_SOURCE_NUT, "ups", "127.0.0.1", "", 3493},
        {"nut://my-ups_1.a@localhost:3494", POWER_SOURCE_NUT, "my-ups_1.a", "127.0.0.1", "", 3494},
        {"nut://ups@[::1]", POWER_SOURCE_NUT, "ups", "::1", "", 3493},
        {"nut://ups@[2001:db8::7]:1", POWER_SOURCE_NUT, "ups", "2001:db8::7", "", 1},
        {"sysfs", POWER_SOURCE_SYSFS, "", "", "/sys/class/power_supply", 0},
        {"sysfs:/tmp/x", POWER_SOURCE_SYSFS, "", "", "/tmp/x", 0},
        {"command:/bin/ask 'a b'", POWER_SOURCE_COMMAND, "", "", "/bin/ask 'a b'", 0},
    };
    struct power_source_spec spec;
    char why[200];
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        cr_assert(power_source_parse(cases[i].text, &spec, why, sizeof why), "%s: %s", cases[i].text, why);
        cr_expect_eq(spec.kind, cases[i].kind, "%s", cases[i].text);
        cr_expect_str_eq(spec.ups, cases[i].ups);
        cr_expect_str_eq(spec.host, cases[i].host);
        cr_expect_str_eq(spec.text, cases[i].rest);
        cr_expect_eq(spec.port, cases[i].port, "%s: port %u", cases[i].text, spec.port);
    }
}

Test(power_source, other_words_are_refused)
{
    static const char *const bad[] = {"ups@localhost",
                                      "nut://",
                                      "nut://ups",
                                      "nut://@127.0.0.1",
                                      "nut://a b@::1",
                                      "nut://ups@example.org",
                                      "nut://ups@::1",
                                      "nut://ups@[::1",
                                      "nut://ups@[::1]x",
                                      "nut://ups@127.0.0.1:",
                                      "nut://ups@1.2.3.4:0",
                                      "nut://ups@1.2.3.4:65536",
                                      "nut://ups@1.2.3.4:1x",
                                      "sysfs:",
                                      "sysfs:relative",
                                      "sysfsx",
                                      "command:",
                                      "command:ask",
                                      "command:/bin/ask 'x",
                                      "NUT://ups@::1"};
    struct power_source_spec spec;
    for (unsigned i = 0; i < ARRAY_LENGTH(bad); i++) {
        char why[200] = "";
        cr_expect_not(power_source_parse(bad[i], &spec, why, sizeof why), "%s", bad[i]);
        cr_expect_neq(why[0], '\0', "%s", bad[i]);
    }
}

struct loaded {
    struct config *config;
    struct config_errors errors;
    char path[64];
};

static struct loaded load(const char *text)
{
    struct loaded l = {.path = "/tmp/corbel-config-XXXXXX"};
    int fd = mkstemp(l.path);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    l.config = config_load(l.path, &l.errors);
    unlink(l.path);
    return l;
}

static void unload(struct loaded *l)
{
    config_free(l->config);
    config_errors_free(&l->errors);
}

Test(power_config, the_group_becomes_limits)
{
    struct loaded l =
        load("power = { source = \"sysfs\"; charge_min = 20; runtime_min = \"90 s\"; settle = \"0 s\"; };");
    cr_assert_not_null(l.config, "%s", l.errors.count > 0 ? l.errors.lines[0] : "");
    struct power_limits limits = config_power_limits(&l.config->power);
    cr_expect(limits.charge_min == 20 && limits.charge_ok == 60 && limits.charge_low == 10);
    cr_expect(limits.runtime_min_s == 90 && limits.runtime_assumed_s == 0);
    cr_expect(limits.silence_max_ns == 30000000000ull && limits.settle_ns == 0);
    cr_expect_eq(l.config->power.poll_ns, 2000000000ull);
    cr_expect_eq(l.config->power.shutdown_time_ns, 60000000000ull);
    cr_expect(l.config->power.source.count == 1 && config_power_needed(&l.config->power) == 1);
    unload(&l);
    l = load("daemon = { };");
    cr_expect(l.config != NULL && config_power_sources(&l.config->power) == 0, "none by default");
    unload(&l);
    l = load("power = { source = \"\"; };");
    cr_expect(l.config != NULL && config_power_sources(&l.config->power) == 0);
    unload(&l);
    l = load("power = { source = [ \"sysfs\", \"nut://u@[::1]\" ]; user = \"u\"; password_file = \"/p\"; };");
    cr_assert_not_null(l.config);
    cr_expect(config_power_sources(&l.config->power) == 2 && config_power_needed(&l.config->power) == 2,
              "all by default");
    cr_expect_str_eq(l.config->power.source.items[1].text, "nut://u@[::1]");
    unload(&l);
    l = load("power = { source = [ \"sysfs\", \"nut://u@[::1]\" ]; needed = 1; };");
    cr_expect(l.config != NULL && config_power_needed(&l.config->power) == 1);
    unload(&l);
}

Test(power_config, mistakes_are_told_with_their_place)
{
    static const struct {
        const char *group, *wanted;
    } cases[] = {
        {"source = \"ups\";", ":1:11: source: \"ups\" must begin with nut://"},
        {"source = \"sysfs\"; user = \"u\"; password_file = \"/p\";", "user: only a source of nut://"},
        {"source = \"nut://u@::1\"; ", "source: \"nut://u@::1\" must have behind the @"},
        {"source = \"nut://u@[::1]\"; user = \"u\";", "user: \"u\" needs a password_file"},
        {"source = \"nut://u@[::1]\"; password_file = \"/p\";", "password_file: needs a user"},
        {"source = \"nut://u@[::1]\"; user = \"u\"; password_file = \"p\";", "must be an absolute path"},
        {"source = \"sysfs\"; charge_min = 70;", "charge_ok: 60 is below charge_min, 70"},
        {"source = \"sysfs\"; silence_max = \"3 s\";", "silence_max: must be twice poll"},
        {"source = \"sysfs\"; on_low = \"poweroff\";", "on_low: \"poweroff\" must begin with an absolute path"},
        {"source = \"sysfs\"; poll = \"0 s\";", "out of range"},
        {"source = \"sysfs\"; charge_min = 101;", "out of range"},
        {"source = [ \"sysfs\", \"ups\" ];", "source: \"ups\" must begin with nut://"},
        {"source = [ \"sysfs\", \"\" ];", "source: \"\" is empty"},
        {"source = ( \"sysfs\", 7 );", "item 2 is not a string"},
        {"source = 7;", "must be a list of strings"},
        {"source = [ \"sysfs\", \"sysfs\" ];", "source: \"sysfs\" is there twice"},
        {"source = [ \"sysfs\", \"sysfs:/a\" ]; needed = 3;", "needed: 3 of 2 sources"},
        {"source = [ \"sysfs\", \"nut://u@[::1]\" ]; user = \"u\";", "user: \"u\" needs a password_file"},
        {"source = [ \"sysfs:/1\", \"sysfs:/2\", \"sysfs:/3\", \"sysfs:/4\", \"sysfs:/5\", \"sysfs:/6\", "
         "\"sysfs:/7\", \"sysfs:/8\", \"sysfs:/9\" ];",
         "there are more than 8"},
        {"source = \"sysfs\"; shutdown_time = \"2 h\";", "out of range"},
        {"sauce = \"sysfs\";", "did you mean \"source\"?"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        char text[256];
        snprintf(text, sizeof text, "power = { %s };", cases[i].group);
        struct loaded l = load(text);
        cr_assert_null(l.config, "%s", cases[i].group);
        cr_expect_eq(l.errors.count, 1, "%s: %u", cases[i].group, l.errors.count);
        cr_expect_not_null(strstr(l.errors.lines[0], cases[i].wanted), "%s", l.errors.lines[0]);
        unload(&l);
    }
}

/* --- commands --- */

Test(command, lines_become_words)
{
    static const struct {
        const char *line;
        unsigned count;
        const char *words[4];
    } cases[] = {
        {"/bin/x", 1, {"/bin/x"}},
        {"  /bin/x  a   b ", 3, {"/bin/x", "a", "b"}},
        {"/bin/sh -c 'echo \"a\" >x; y'", 3, {"/bin/sh", "-c", "echo \"a\" >x; y"}},
        {"/x \"it's\" a'b c'd ''", 4, {"/x", "it's", "ab cd", ""}},
    };
    struct command_words words;
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        cr_assert(command_split(cases[i].line, &words), "%s", cases[i].line);
        cr_assert_eq(words.count, cases[i].count, "%s: %u", cases[i].line, words.count);
        for (unsigned w = 0; w < words.count; w++)
            cr_expect_str_eq(words.words[w], cases[i].words[w]);
        cr_expect_null(words.words[words.count]);
        cr_expect(command_valid(cases[i].line));
    }
    cr_expect(!command_split("", &words) && !command_split("   ", &words) && !command_split("/x 'a", &words));
    cr_expect(!command_split("/x a b c d e f g h i j k l m n o p q r s t u v w x y z 1 2 3 4 5 6", &words));
    cr_expect(!command_valid("x") && !command_valid("'' /x"));
}

struct run {
    struct command command;
    struct reactor *reactor;
    enum command_end end;
    int number;
    unsigned ends;
};

static void on_ended(struct command *command, enum command_end end, int number)
{
    struct run *r = container_of(command, struct run, command);
    r->end = end;
    r->number = number;
    r->ends++;
    reactor_stop(r->reactor);
}

static struct run run_command(struct reactor *reactor, const char *line, uint64_t time_ns)
{
    struct run r = {.command.ended = on_ended, .reactor = reactor};
    command_start(&r.command, reactor, line, time_ns);
    reactor_run(reactor);
    cr_expect_eq(r.ends, 1, "%s", line);
    return r;
}

static struct reactor *make_reactor(void)
{
    struct reactor_options options = {.name = "test", .no_uring = true};
    char why[200];
    struct reactor *reactor = reactor_create(&options, why, sizeof why);
    cr_assert_not_null(reactor, "%s", why);
    return reactor;
}

Test(command, its_end_and_its_first_bytes_are_told)
{
    enum { SHORT_MS = 200 };
    struct reactor *reactor = make_reactor();
    struct run r = run_command(reactor, "/bin/echo 'a  b'", 10000000000ull);
    cr_expect(r.end == COMMAND_EXITED && r.number == 0);
    cr_expect_str_eq(r.command.output, "a  b\n");
    r = run_command(reactor, "/bin/sh -c 'exit 7'", 10000000000ull);
    cr_expect(r.end == COMMAND_EXITED && r.number == 7 && r.command.output[0] == '\0');
    r = run_command(reactor, "/bin/sh -c 'kill -TERM $$'", 10000000000ull);
    cr_expect(r.end == COMMAND_KILLED && r.number == SIGTERM);
    r = run_command(reactor, "/bin/sh -c 'head -c 200000 /dev/zero | tr \"\\0\" x'", 10000000000ull);
    cr_expect(r.end == COMMAND_EXITED && r.number == 0, "what does not fit is taken and thrown away");
    cr_expect_eq(strlen(r.command.output), COMMAND_OUTPUT_MAX);
    r = run_command(reactor, "/nowhere/at/all", 10000000000ull);
    cr_expect(r.end == COMMAND_NOT_STARTED && r.number == ENOENT);
    r = run_command(reactor, "/bin/sh -c 'sleep 100 & sleep 100'", SHORT_MS * 1000000ull);
    cr_expect(r.end == COMMAND_TOO_SLOW, "it and what it started is killed");
    r = run_command(reactor, "/bin/ls /proc/self/fd", 10000000000ull);
    cr_expect_str_eq(r.command.output, "0\n1\n2\n3\n", "the last one is the folder itself");
    reactor_destroy(reactor);
}

Test(command, one_that_is_cancelled_is_gone)
{
    struct reactor *reactor = make_reactor();
    struct run r = {.command.ended = on_ended, .reactor = reactor};
    command_start(&r.command, reactor, "/bin/sleep 100", 10000000000ull);
    pid_t pid = r.command.pid;
    cr_assert(pid > 0 && kill(pid, 0) == 0);
    command_cancel(&r.command);
    cr_expect(kill(pid, 0) == -1 && errno == ESRCH && r.ends == 0);
    command_cancel(&r.command);
    command_leave(&r.command);
    reactor_destroy(reactor);
}

Test(power_command, exit_status_and_first_line_are_a_reading)
{
    static const struct {
        int status;
        const char *output;
        uint32_t flags, charge;
        uint64_t runtime_s;
    } cases[] = {
        {0, "", POWER_FLAG_ONLINE, POWER_CHARGE_UNKNOWN, POWER_RUNTIME_UNKNOWN},
        {0, "charge=77 runtime=600\n", POWER_FLAG_ONLINE, 77, 600},
        {1, "all fine runtime=0 charge=100", POWER_FLAG_ON_BATTERY, 100, 0},
        {2, "charge=5\nruntime=600\n", POWER_FLAG_ON_BATTERY | POWER_FLAG_LOW, 5, POWER_RUNTIME_UNKNOWN},
        {0, "charge=101 runtime=x", POWER_FLAG_ONLINE, POWER_CHARGE_UNKNOWN, POWER_RUNTIME_UNKNOWN},
        {0, "charge=-1 runtime=99999999999999999999", POWER_FLAG_ONLINE, POWER_CHARGE_UNKNOWN, POWER_RUNTIME_UNKNOWN},
        {0, "recharge=7 charge=8x", POWER_FLAG_ONLINE, POWER_CHARGE_UNKNOWN, POWER_RUNTIME_UNKNOWN},
        {0, "recharge=7 charge=8", POWER_FLAG_ONLINE, 8, POWER_RUNTIME_UNKNOWN},
    };
    struct power_reading reading;
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        cr_assert(power_command_judge(cases[i].status, cases[i].output, &reading));
        cr_expect(reading.flags == cases[i].flags && reading.charge == cases[i].charge &&
                      reading.runtime_s == cases[i].runtime_s,
                  "case %u: %#x, %u, %llu", i, reading.flags, reading.charge, (unsigned long long)reading.runtime_s);
    }
    cr_expect(!power_command_judge(3, "charge=100", &reading) && !power_command_judge(-1, "", &reading) &&
              !power_command_judge(127, "", &reading));
}

/* --- from thread to thread --- */

struct threads {
    struct sync_call call;
    struct power_board board; /* on the one */
    struct power_watch watch; /* on the other */
    uint32_t tell, heard, seen;
    uint64_t answered;
    unsigned calls;
    struct task gone;
};

static void on_news(struct power_watch *watch, const struct power_news *news, struct power_load *load)
{
    struct threads *t = container_of(watch, struct threads, watch);
    t->heard = news->health.charge;
    load->dirty_bytes = t->heard;
    t->calls++;
}

static void run_board(struct sync_call *call)
{
    power_board_init(&container_of(call, struct threads, call)->board, call->loop);
    sync_finish(call);
}

static void run_start(struct sync_call *call)
{
    struct threads *t = container_of(call, struct threads, call);
    t->watch.changed = on_news;
    power_watch_start(&t->watch, &t->board, call->loop);
    sync_finish(call);
}

static void run_tell(struct sync_call *call)
{
    struct threads *t = container_of(call, struct threads, call);
    struct power_news news = {.health = power_no_source()};
    news.health.charge = t->tell;
    power_board_set(&t->board, &news);
    sync_finish(call);
}

static void run_answer(struct sync_call *call)
{
    struct threads *t = container_of(call, struct threads, call);
    t->answered = power_board_load(&t->board).dirty_bytes;
    sync_finish(call);
}

static void run_look(struct sync_call *call)
{
    struct threads *t = container_of(call, struct threads, call);
    t->seen = t->heard;
    sync_finish(call);
}

static void on_gone(struct task *task)
{
    sync_finish(&container_of(task, struct threads, gone)->call);
}

static void run_stop(struct sync_call *call)
{
    struct threads *t = container_of(call, struct threads, call);
    t->gone.run = on_gone;
    power_watch_stop(&t->watch, &t->gone);
}

Test(power_watch, hears_the_last_word_on_another_thread)
{
    enum { WORDS = 2000, LOOKS = 100000 };
    struct reactor *one = make_reactor(), *other = make_reactor();
    struct threads t = {.tell = 0};
    cr_assert(reactor_start(one) == 0 && reactor_start(other) == 0);
    sync_call(&t.call, reactor_loop(one), run_board);
    sync_call(&t.call, reactor_loop(other), run_start);
    for (t.tell = 1; t.tell <= WORDS; t.tell++)
        sync_call(&t.call, reactor_loop(one), run_tell);
    for (unsigned i = 0; i < LOOKS && t.seen != WORDS; i++)
        sync_call(&t.call, reactor_loop(other), run_look);
    cr_expect_eq(t.seen, WORDS);
    for (unsigned i = 0; i < LOOKS && t.answered != WORDS; i++)
        sync_call(&t.call, reactor_loop(one), run_answer);
    cr_expect_eq(t.answered, WORDS, "and what it says to that comes back");
    cr_expect(t.calls > 0 && t.calls <= WORDS + 1);
    sync_call(&t.call, reactor_loop(other), run_stop);
    sync_call(&t.call, reactor_loop(one), run_tell);
    cr_expect_eq(t.heard, WORDS, "not any more");
    reactor_stop(one);
    reactor_stop(other);
    reactor_join(one);
    reactor_join(other);
    reactor_destroy(one);
    reactor_destroy(other);
}

/* --- the kernel's folder --- */

static char tree[64];

static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", tree, name);
    *strrchr(path, '/') = '\0';
    mkdir(path, 0700);
    path[strlen(path)] = '/';
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fprintf(file, "%s\n", text);
    fclose(file);
}

static void make_tree(void)
{
    strcpy(tree, "/tmp/corbel-power-XXXXXX");
    cr_assert_not_null(mkdtemp(tree));
    put("AC/type", "Mains");
    put("AC/online", "1");
    put("BAT0/type", "Battery");
    put("BAT0/status", "Full");
    put("BAT0/present", "1");
    put("BAT0/capacity", "98");
}

static void remove_tree(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", tree);
    cr_assert_eq(system(command), 0);
}

static struct power_reading look(void)
{
    struct power_reading reading;
    char why[160] = "";
    cr_assert(power_sysfs_read(tree, &reading, why, sizeof why), "%s", why);
    return reading;
}

Test(power_sysfs, a_folder_is_a_reading, .init = make_tree, .fini = remove_tree)
{
    struct power_reading r = look();
    cr_expect(r.flags == POWER_FLAG_ONLINE && r.charge == 98 && r.runtime_s == POWER_RUNTIME_UNKNOWN);
    put("BAT0/time_to_empty_now", "0");
    cr_expect_eq(look().runtime_s, POWER_RUNTIME_UNKNOWN, "nothing while it is filled");
    put("AC/online", "0");
    put("BAT0/status", "Discharging");
    put("BAT0/time_to_empty_now", "3600");
    r = look();
    cr_expect(r.flags == POWER_FLAG_ON_BATTERY && r.runtime_s == 3600);
    put("BAT0/capacity_level", "Critical");
    cr_expect_eq(look().flags, POWER_FLAG_ON_BATTERY | POWER_FLAG_LOW);
    put("BAT0/capacity_level", "Normal");
    put("AC/online", "1");
    cr_expect_eq(look().flags, POWER_FLAG_ONLINE | POWER_FLAG_DISCHARGING);
    put("USB/type", "USB_C");
    put("USB/online", "1");
    put("AC/online", "0");
    put("BAT0/status", "Charging");
    cr_expect_eq(look().flags, POWER_FLAG_ONLINE, "one that is on is enough");
}

Test(power_sysfs, what_is_wrong_with_a_battery, .init = make_tree, .fini = remove_tree)
{
    static const struct {
        const char *health;
        uint32_t flag;
    } cases[] = {{"Good", 0},
                 {"Unknown", 0},
                 {"Dead", POWER_FLAG_REPLACE},
                 {"Unspecified failure", POWER_FLAG_REPLACE},
                 {"Overheat", POWER_FLAG_ALARM},
                 {"Cold", POWER_FLAG_ALARM}};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        put("BAT0/health", cases[i].health);
        cr_expect_eq(look().flags, POWER_FLAG_ONLINE | cases[i].flag, "%s", cases[i].health);
    }
    put("BAT0/capacity", "many");
    cr_expect_eq(look().charge, POWER_CHARGE_UNKNOWN);
}

Test(power_sysfs, the_weakest_counts_and_a_mouse_does_not, .init = make_tree, .fini = remove_tree)
{
    put("mouse/type", "Battery");
    put("mouse/scope", "Device");
    put("mouse/status", "Discharging");
    put("mouse/capacity", "3");
    cr_expect(look().charge == 98 && look().flags == POWER_FLAG_ONLINE);
    put("BAT1/type", "Battery");
    put("BAT1/status", "Charging");
    put("BAT1/capacity", "40");
    cr_expect_eq(look().charge, 40);
    put("BAT1/capacity", "");
    cr_expect_eq(look().charge, POWER_CHARGE_UNKNOWN, "unknown of one");
    put("BAT1/present", "0");
    cr_expect_eq(look().charge, 98);
}

Test(power_sysfs, without_mains_the_batteries_say_it, .init = make_tree, .fini = remove_tree)
{
    put("AC/type", "Wireless");
    cr_expect_eq(look().flags, POWER_FLAG_ONLINE, "it is full");
    put("BAT0/status", "Discharging");
    cr_expect_eq(look().flags, POWER_FLAG_ON_BATTERY);
    put("BAT0/status", "Unknown");
    cr_expect_eq(look().flags, 0, "neither");
}

Test(power_sysfs, no_battery_is_an_error, .init = make_tree, .fini = remove_tree)
{
    struct power_reading reading;
    char why[160] = "";
    put("BAT0/present", "0");
    cr_expect_not(power_sysfs_read(tree, &reading, why, sizeof why));
    cr_expect_not_null(strstr(why, "has no battery"), "%s", why);
    cr_expect_not(power_sysfs_read("/nowhere/at/all", &reading, why, sizeof why));
    cr_expect_not_null(strstr(why, "No such file"), "%s", why);
}
