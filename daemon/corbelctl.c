/*
 * corbelctl: the command line. A thin client of corbeld's API; every word of it is a row in the table of commands.
 *
 * Exit status: 0 done; 1 corbeld refused or could not; 2 wrong arguments; 3 a plan waits to be confirmed;
 * 4 corbeld does not answer. `status` ends with 0 healthy, 5 degraded, 6 failed; `power` with 0 healthy,
 * 5 not.
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/check.h"
#include "daemon/ctl_client.h"
#include "daemon/ctl_import.h"
#include "daemon/ctl_print.h"
#include "daemon/ctl_rescue.h"
#include "daemon/units.h"

enum { ANY_OPERANDS = -1 };
enum { EXIT_DONE, EXIT_REFUSED, EXIT_USAGE, EXIT_CONFIRM, EXIT_NO_DAEMON, EXIT_DEGRADED, EXIT_FAILED };

struct arguments {
    const char *socket;
    bool json, dry_run, yes, force, repair;
    const char *priority, *min_rate, *max_rate, *prefer; /* NULL: not given */
    char **words;
    int count; /* of the words behind the command, once it is found */
};

struct command {
    const char *noun, *verb; /* verb NULL: none */
    int operands;
    int (*run)(const struct arguments *);
    const char *usage, *help;
};

/* The answer, or NULL after saying why not. */
static json_t *ask(const struct arguments *a, const char *path, json_t *body, int *code)
{
    char why[256];
    json_t *answer = ctl_request(a->socket, path, body, code, why, sizeof why);
    json_decref(body);
    if (answer == NULL)
        fprintf(stderr, "corbelctl: %s\n", why);
    return answer;
}

/* The same where anything but success means that corbeld cannot answer now. */
static json_t *ask_or_give_up(const struct arguments *a, const char *path, json_t *body)
{
    int code;
    json_t *answer = ask(a, path, body, &code);
    if (answer == NULL || code < 400)
        return answer;
    const char *detail = json_string_value(json_object_get(answer, "detail"));
    fprintf(stderr, "corbelctl: %s\n", detail != NULL ? detail : "corbeld refused to answer");
    json_decref(answer);
    return NULL;
}

static void print_json(const json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2));
    putchar('\n');
}

/* The status as a table for people. */
static int show(const struct arguments *a, void (*print)(const json_t *))
{
    json_t *status = ask_or_give_up(a, "/api/v1/status", NULL);
    if (status == NULL)
        return EXIT_NO_DAEMON;
    print(status);
    json_decref(status);
    return EXIT_DONE;
}

/* A part of the status, flattened: each item with the array's name. */
static int show_list(const struct arguments *a, const char *part, void (*print)(const json_t *))
{
    if (!a->json)
        return show(a, print);
    json_t *status = ask_or_give_up(a, "/api/v1/status", NULL), *list = json_array(), *array, *item;
    size_t i, j;
    if (status == NULL) {
        json_decref(list);
        return EXIT_NO_DAEMON;
    }
    json_array_foreach(json_object_get(status, "arrays"), i, array)
    {
        json_array_foreach(json_object_get(array, part), j, item)
        {
            json_object_set(item, "array", json_object_get(array, "name"));
            json_array_append(list, item);
        }
    }
    print_json(list);
    json_decref(list);
    json_decref(status);
    return EXIT_DONE;
}

static int run_status(const struct arguments *a)
{
    json_t *status = ask_or_give_up(a, "/api/v1/status", NULL);
    if (status == NULL)
        return EXIT_NO_DAEMON;
    if (a->json)
        print_json(status);
    else
        print_status(status);
    const char *health = json_string_value(json_object_get(status, "health"));
    int result = strcmp(health, "ok") == 0 ? EXIT_DONE : strcmp(health, "degraded") == 0 ? EXIT_DEGRADED : EXIT_FAILED;
    json_decref(status);
    return result;
}

static int run_array_list(const struct arguments *a)
{
    if (!a->json)
        return show(a, print_arrays);
    json_t *status = ask_or_give_up(a, "/api/v1/status", NULL);
    if (status == NULL)
        return EXIT_NO_DAEMON;
    print_json(json_object_get(status, "arrays"));
    json_decref(status);
    return EXIT_DONE;
}

static int run_session_list(const struct arguments *a)
{
    json_t *answer = ask_or_give_up(a, "/api/v1/sessions", NULL);
    if (answer == NULL)
        return EXIT_NO_DAEMON;
    if (a->json)
        print_json(json_object_get(answer, "sessions"));
    else
        print_sessions(answer);
    json_decref(answer);
    return EXIT_DONE;
}

/* For scripts: is there a battery to rely on? */
static int run_power(const struct arguments *a)
{
    json_t *power = ask_or_give_up(a, "/api/v1/power", NULL);
    if (power == NULL)
        return EXIT_NO_DAEMON;
    if (a->json)
        print_json(power);
    else
        print_power(power);
    int result = json_is_true(json_object_get(power, "healthy")) ? EXIT_DONE : EXIT_DEGRADED;
    json_decref(power);
    return result;
}

static int run_volume_list(const struct arguments *a)
{
    return show_list(a, "volumes", print_volumes);
}

static int run_disk_list(const struct arguments *a)
{
    return show_list(a, "members", print_disks);
}

/* An action that answers with an object, or a problem with "detail". */
static void print_done(const json_t *answer, const char *done)
{
    const char *erased = json_string_value(json_object_get(answer, "erased"));
    if (erased != NULL)
        printf("%s was on it and is erased\n", erased);
    printf("%s\n", done);
}

static int act(const struct arguments *a, const char *path, json_t *body, const char *done)
{
    int code;
    if (body == NULL) {
        fprintf(stderr, "corbelctl: names are UTF-8, this one is not\n");
        return EXIT_USAGE;
    }
    json_t *answer = ask(a, path, body, &code);
    if (answer == NULL)
        return EXIT_NO_DAEMON;
    if (a->json)
        print_json(answer);
    else if (code >= 400)
        fprintf(stderr, "corbelctl: %s\n", json_string_value(json_object_get(answer, "detail")));
    else
        print_done(answer, done);
    json_decref(answer);
    return code >= 400 ? EXIT_REFUSED : EXIT_DONE;
}

static int run_volume_scrub(const struct arguments *a)
{
    return act(a, "/api/v1/volumes/scrub", json_pack("{s:s, s:b}", "volume", a->words[0], "repair", a->repair),
               "the scrub has begun: see corbelctl status, and corbelctl volume scrub-show for what it finds");
}

static int run_volume_scrub_stop(const struct arguments *a)
{
    return act(a, "/api/v1/volumes/scrub", json_pack("{s:s, s:b}", "volume", a->words[0], "stop", true), "called off");
}

static int run_volume_init(const struct arguments *a)
{
    return act(a, "/api/v1/volumes/init", json_pack("{s:s}", "volume", a->words[0]),
               "zeroes are being written to what was never written, and read back: see corbelctl status");
}

static int run_volume_init_stop(const struct arguments *a)
{
    return act(a, "/api/v1/volumes/init", json_pack("{s:s, s:b}", "volume", a->words[0], "stop", true), "called off");
}

static int run_cache_list(const struct arguments *a)
{
    return show_list(a, "volumes", print_caches);
}

static int run_cache_flush(const struct arguments *a)
{
    return act(a, "/api/v1/caches/flush", json_pack("{s:s}", "volume", a->words[0]),
               "all that was written is on the disks");
}

/* What would be lost is shown; only --yes loses it. */
static int run_cache_discard(const struct arguments *a)
{
    int code;
    json_t *body = json_pack("{s:s, s:b}", "what", a->words[0], "yes", a->yes);
    if (body == NULL) {
        fprintf(stderr, "corbelctl: names are UTF-8, this one is not\n");
        return EXIT_USAGE;
    }
    json_t *answer = ask(a, "/api/v1/caches/discard", body, &code);
    if (answer == NULL)
        return EXIT_NO_DAEMON;
    const char *lost = json_string_value(json_object_get(answer, "lost"));
    if (a->json)
        print_json(answer);
    else if (code >= 400)
        fprintf(stderr, "corbelctl: %s\n", json_string_value(json_object_get(answer, "detail")));
    else
        printf(a->yes ? "given up: %s\n" : "this would be given up: %s\nwith --yes it is\n", lost);
    json_decref(answer);
    return code >= 400 ? EXIT_REFUSED : a->yes ? EXIT_DONE : EXIT_CONFIRM;
}

static int run_job_cancel(const struct arguments *a)
{
    return act(a, "/api/v1/jobs/cancel", json_pack("{s:s}", "of", a->words[0]), "called off");
}

static int run_volume_pause(const struct arguments *a)
{
    return act(a, "/api/v1/volumes/jobs", json_pack("{s:s, s:b}", "volume", a->words[0], "paused", true),
               "paused, also after a restart, until corbelctl volume resume");
}

static int run_array_pause(const struct arguments *a)
{
    return act(a, "/api/v1/arrays/jobs", json_pack("{s:s, s:b}", "array", a->words[0], "paused", true),
               "all of its volumes are paused, also after a restart, until corbelctl array resume");
}

static int run_array_resume(const struct arguments *a)
{
    return act(a, "/api/v1/arrays/jobs", json_pack("{s:s, s:b}", "array", a->words[0], "paused", false), "resumed");
}

static int run_volume_resume(const struct arguments *a)
{
    return act(a, "/api/v1/volumes/jobs", json_pack("{s:s, s:b}", "volume", a->words[0], "paused", false), "resumed");
}

/* "0" is no limit. */
static bool add_rate(json_t *body, const char *key, const char *text)
{
    uint64_t bytes = 0;
    if (text == NULL)
        return true;
    const char *wrong = strcmp(text, "0") == 0 ? NULL : size_parse(text, &bytes);
    if (wrong != NULL)
        fprintf(stderr, "corbelctl: %s: %s\n", text, wrong);
    json_object_set_new(body, key, json_integer((json_int_t)bytes));
    return wrong == NULL;
}

static int set_rate(const struct arguments *a, const char *path, const char *key)
{
    json_t *body = json_pack("{s:s}", key, a->words[0]);
    char *end = NULL;
    long priority = a->priority != NULL ? strtol(a->priority, &end, 10) : 0;
    bool given = a->priority != NULL || a->min_rate != NULL || a->max_rate != NULL;
    if (!given)
        fprintf(stderr, "corbelctl: give --priority, --min or --max\n");
    bool good = given && add_rate(body, "min_rate", a->min_rate) && add_rate(body, "max_rate", a->max_rate);
    if (a->priority != NULL && (*end != '\0' || priority < 1 || priority > 100)) {
        fprintf(stderr, "corbelctl: %s: a priority is a percentage from 1 to 100\n", a->priority);
        good = false;
    }
    if (good && a->priority != NULL)
        json_object_set_new(body, "priority", json_integer(priority));
    if (good)
        return act(a, path, body, "done");
    json_decref(body);
    return EXIT_USAGE;
}

static int run_volume_rate(const struct arguments *a)
{
    return set_rate(a, "/api/v1/volumes/jobs", "volume");
}

static int run_array_rate(const struct arguments *a)
{
    return set_rate(a, "/api/v1/arrays/jobs", "array");
}

/* The volume of that name ("array/volume") in a status, or NULL. */
static json_t *find_volume(const json_t *status, const char *name)
{
    size_t i, j;
    json_t *array, *volume;
    json_array_foreach(json_object_get(status, "arrays"), i, array)
    {
        const char *prefix = json_string_value(json_object_get(array, "name"));
        size_t len = strlen(prefix);
        json_array_foreach(json_object_get(array, "volumes"), j,
                           volume) if (strncmp(name, prefix, len) == 0 && name[len] == '/' &&
                                       strcmp(name + len + 1, json_string_value(json_object_get(volume, "name"))) ==
                                           0) return volume;
    }
    return NULL;
}

static int run_volume_scrub_show(const struct arguments *a)
{
    json_t *status = ask_or_give_up(a, "/api/v1/status", NULL);
    if (status == NULL)
        return EXIT_NO_DAEMON;
    const json_t *volume = find_volume(status, a->words[0]), *scrub = json_object_get(volume, "scrub");
    if (volume == NULL)
        fprintf(stderr, "corbelctl: %s is no volume of a running array; give ARRAY/VOLUME\n", a->words[0]);
    else if (a->json)
        print_json(scrub);
    else
        print_scrub(scrub);
    int result = volume != NULL ? EXIT_DONE : EXIT_REFUSED;
    json_decref(status);
    return result;
}

static int run_disk_fail(const struct arguments *a)
{
    return act(a, "/api/v1/disks/fail", json_pack("{s:s}", "disk", a->words[0]),
               "out of service: a spare takes its place, if there is one; else corbelctl disk online brings it back");
}

static int run_disk_online(const struct arguments *a)
{
    return act(a, "/api/v1/disks/online", json_pack("{s:s, s:b}", "disk", a->words[0], "force", a->force),
               "in service; what it missed is being rebuilt: see corbelctl status");
}

static int run_disk_remove(const struct arguments *a)
{
    return act(a, "/api/v1/disks/remove", json_pack("{s:s}", "disk", a->words[0]), "it can be unplugged");
}

static int run_disk_forget(const struct arguments *a)
{
    return act(a, "/api/v1/disks/forget", json_pack("{s:s}", "disk", a->words[0]),
               "forgotten: the disk that was there will not be taken back");
}

static int run_disk_replace(const struct arguments *a)
{
    return act(a, "/api/v1/disks/replace",
               json_pack("{s:s, s:s, s:b}", "disk", a->words[0], "by", a->words[1], "force", a->force),
               "its place is being taken by the new one: see corbelctl status");
}

static int run_disk_add_spare(const struct arguments *a)
{
    return act(
        a, "/api/v1/disks/add-spare",
        json_pack("{s:s, s:s, s:b}", "disk", a->words[0], "array", a->count > 1 ? a->words[1] : "", "force", a->force),
        "a spare: it takes the place of the next disk that is lost");
}

static int run_session_drop(const struct arguments *a)
{
    return act(a, "/api/v1/sessions/drop", json_pack("{s:s}", "session", a->words[0]),
               "asked to end, and cut if it has not when the time of daemon.drain is over; nothing keeps its client "
               "from coming back");
}

static int run_array_assemble(const struct arguments *a)
{
    json_t *body = json_pack("{s:s, s:b}", "array", a->words[0], "force", a->force);
    if (a->prefer != NULL && json_object_set_new(body, "prefer", json_string(a->prefer)) != 0) {
        json_decref(body);
        body = NULL;
    }
    return act(a, "/api/v1/arrays/assemble", body, "started: see corbelctl status");
}

static int run_reload(const struct arguments *a)
{
    json_t *answer = ask_or_give_up(a, "/api/v1/reload", json_object());
    if (answer == NULL)
        return EXIT_NO_DAEMON;
    if (a->json)
        print_json(answer);
    else
        print_reload(answer);
    bool good = json_array_size(json_object_get(answer, "errors")) == 0;
    json_decref(answer);
    return good ? EXIT_DONE : EXIT_REFUSED;
}

static bool confirmed(void)
{
    char line[16];
    printf("Carry this out? [y/N] ");
    fflush(stdout);
    return fgets(line, sizeof line, stdin) != NULL && (line[0] == 'y' || line[0] == 'Y');
}

static json_t *ask_apply(const struct arguments *a, bool dry_run)
{
    return ask_or_give_up(a, "/api/v1/apply", json_pack("{s:b, s:b}", "dry_run", dry_run, "force", a->force));
}

/* What an apply result means for the exit status, before anything was confirmed. */
static int judge_plan(const json_t *result)
{
    if (json_array_size(json_object_get(result, "errors")) > 0 || json_is_true(json_object_get(result, "refused")))
        return EXIT_REFUSED;
    return EXIT_DONE;
}

static bool has_work(const json_t *result)
{
    size_t i;
    json_t *step;
    json_array_foreach(json_object_get(result, "plan"), i,
                       step) if (strcmp(json_string_value(json_object_get(step, "action")), "note") != 0) return true;
    return false;
}

static int finish_apply(const struct arguments *a, json_t *result)
{
    if (result == NULL)
        return EXIT_NO_DAEMON;
    int status = judge_plan(result);
    if (a->json)
        print_json(result);
    else if (json_is_true(json_object_get(result, "applied")))
        printf("done\n");
    else
        print_plan(result);
    json_decref(result);
    return status;
}

static int run_apply(const struct arguments *a)
{
    if (a->yes && a->json)
        return finish_apply(a, ask_apply(a, false));
    json_t *plan = ask_apply(a, true);
    if (plan == NULL || a->json)
        return finish_apply(a, plan);
    print_plan(plan);
    int status = judge_plan(plan);
    bool work = has_work(plan);
    json_decref(plan);
    if (status != EXIT_DONE) {
        fprintf(stderr, "corbelctl: nothing was done\n");
        return status;
    }
    if (!work) {
        printf("everything is as the config says\n");
        return EXIT_DONE;
    }
    if (a->dry_run)
        return EXIT_DONE;
    if (!a->yes && !(isatty(STDIN_FILENO) && confirmed())) {
        fprintf(stderr, "corbelctl: not confirmed, nothing was done; --yes carries it out\n");
        return EXIT_CONFIRM;
    }
    return finish_apply(a, ask_apply(a, false));
}

/* The disks of the arrays that corbeld runs: where each is, it knows best. */
static bool rescue_running(const struct arguments *a, const json_t *status)
{
    const char *disks[RAID_MEMBERS_MAX * 4];
    unsigned count = 0;
    bool good = true;
    size_t i, j;
    json_t *array, *member;
    json_array_foreach(json_object_get(status, "arrays"), i, array)
    {
        if (json_array_size(json_object_get(array, "members")) == 0) {
            fprintf(stderr, "corbelctl: array %s is not started; name its disks: corbelctl rescue DISK...\n",
                    json_string_value(json_object_get(array, "name")));
            good = false;
        }
        json_array_foreach(json_object_get(array, "members"), j, member)
        {
            const char *path = json_string_value(json_object_get(member, "path"));
            if (path != NULL && path[0] != '\0' && count < ARRAY_LENGTH(disks))
                disks[count++] = path;
        }
    }
    return rescue_print(disks, count, a->force, stdout) && good;
}

static int run_rescue(const struct arguments *a)
{
    if (a->count > 0) {
        bool good = rescue_print((const char *const *)a->words, (unsigned)a->count, a->force, stdout);
        return good ? EXIT_DONE : EXIT_REFUSED;
    }
    int code;
    json_t *status = ask(a, "/api/v1/status", NULL, &code);
    if (status == NULL) {
        fprintf(stderr, "corbelctl: without corbeld name the disks: corbelctl rescue DISK...\n");
        return EXIT_NO_DAEMON;
    }
    bool good = rescue_running(a, status);
    json_decref(status);
    return good ? EXIT_DONE : EXIT_REFUSED;
}

static int run_import_list(const struct arguments *a)
{
    if (!a->json)
        return show(a, print_imports);
    json_t *status = ask_or_give_up(a, "/api/v1/status", NULL);
    if (status == NULL)
        return EXIT_NO_DAEMON;
    print_json(json_object_get(status, "imports"));
    json_decref(status);
    return EXIT_DONE;
}

static int run_import_check(const struct arguments *a)
{
    if (a->count == 0) {
        fprintf(stderr, "corbelctl: name the disks: corbelctl import check DISK...\n");
        return EXIT_USAGE;
    }
    bool usable = import_check((const char *const *)a->words, (unsigned)a->count, a->json);
    return usable ? EXIT_DONE : EXIT_REFUSED;
}

static const struct command commands[] = {
    {"status", NULL, 0, run_status, "status", "everything at a glance"},
    {"apply", NULL, 0, run_apply, "apply [--dry-run] [--yes] [--force]",
     "make it as the config says, after showing the plan"},
    {"reload", NULL, 0, run_reload, "reload", "take over what is safe from the config"},
    {"array", "list", 0, run_array_list, "array list", "arrays and their states"},
    {"array", "assemble", 1, run_array_assemble, "array assemble ARRAY [--force]",
     "start an array that waits; --prefer DISK decides a split brain"},
    {"array", "pause", 1, run_array_pause, "array pause ARRAY", "hold back work in the background on all its volumes"},
    {"array", "resume", 1, run_array_resume, "array resume ARRAY", "let it go on"},
    {"array", "rate", 1, run_array_rate, "array rate ARRAY [--priority P] ...", "how fast, for all its volumes"},
    {"volume", "list", 0, run_volume_list, "volume list", "volumes, levels, sizes"},
    {"volume", "scrub", 1, run_volume_scrub, "volume scrub VOLUME [--repair]",
     "compare all that is stored with its redundancy"},
    {"volume", "pause", 1, run_volume_pause, "volume pause VOLUME", "hold back all work on it in the background"},
    {"volume", "resume", 1, run_volume_resume, "volume resume VOLUME", "let it go on"},
    {"volume", "rate", 1, run_volume_rate, "volume rate VOLUME [--priority P] ...", "how fast: --min SIZE, --max SIZE"},
    {"volume", "init", 1, run_volume_init, "volume init VOLUME", "write zeroes where nothing is stored, and verify"},
    {"volume", "init-stop", 1, run_volume_init_stop, "volume init-stop VOLUME", "call it off"},
    {"volume", "scrub-stop", 1, run_volume_scrub_stop, "volume scrub-stop VOLUME", "call it off"},
    {"volume", "scrub-show", 1, run_volume_scrub_show, "volume scrub-show VOLUME", "what it found, and where"},
    {"cache", "list", 0, run_cache_list, "cache list", "caches: what is dirty, and what a completed write means"},
    {"cache", "flush", 1, run_cache_flush, "cache flush VOLUME", "write all that is dirty to the disks now"},
    {"cache", "discard", 1, run_cache_discard, "cache discard VOLUME|ARENA [--yes]",
     "give up writes that a held volume, or nobody, waits for"},
    {"disk", "list", 0, run_disk_list, "disk list", "disks by slot, with errors"},
    {"disk", "fail", 1, run_disk_fail, "disk fail DISK", "take a disk out of service"},
    {"disk", "online", 1, run_disk_online, "disk online DISK [--force]",
     "put it, or a blank one in its place, into service"},
    {"disk", "add-spare", 1, run_disk_add_spare, "disk add-spare DISK [ARRAY] [--force]",
     "let it take the place of a disk that is lost"},
    {"disk", "add-spare", 2, run_disk_add_spare, NULL, NULL},
    {"disk", "replace", 2, run_disk_replace, "disk replace DISK NEWDISK [--force]",
     "put another disk in the place of one, which serves until then"},
    {"disk", "remove", 1, run_disk_remove, "disk remove DISK", "let go of a failed disk or a spare, to unplug it"},
    {"disk", "forget", 1, run_disk_forget, "disk forget ARRAY/SLOT", "never take back the disk that was there"},
    {"job", "cancel", 1, run_job_cancel, "job cancel VOLUME|DISK",
     "call off its init or scrub, or its replacement by another disk"},
    {"import", "list", 0, run_import_list, "import list", "arrays of Linux md that are served where they are"},
    {"import", "check", ANY_OPERANDS, run_import_check, "import check DISK...",
     "what md array these disks are, and whether it could be imported"},
    {"session", "list", 0, run_session_list, "session list", "who is connected by iSCSI or NBD, and what each did"},
    {"session", "drop", 1, run_session_drop, "session drop SESSION", "ask one to end; it is cut if it does not"},
    {"power", NULL, 0, run_power, "power", "the power source: does a battery stand behind this machine?"},
    {"rescue", NULL, ANY_OPERANDS, run_rescue, "rescue [--force] [DISK...]",
     "commands that read the volumes without Corbel"},
};

static void print_usage(FILE *out)
{
    fprintf(out, "usage: corbelctl [--socket PATH] [--json] COMMAND\n\n");
    for (unsigned i = 0; i < ARRAY_LENGTH(commands); i++)
        if (commands[i].usage != NULL)
            fprintf(out, "  %-40s %s\n", commands[i].usage, commands[i].help);
    fprintf(out,
            "\nDISK is a path as in the config, or ARRAY/SLOT; VOLUME is ARRAY/VOLUME.\n"
            "Exit status: 0 done, 1 refused, 2 wrong arguments, 3 not confirmed, 4 no daemon, 5 degraded, 6 failed.\n");
}

static bool parse_options(int argc, char **argv, struct arguments *a)
{
    static const struct option options[] = {
        {"socket", required_argument, NULL, 's'},
        {"json", no_argument, NULL, 'j'},
        {"dry-run", no_argument, NULL, 'n'},
        {"yes", no_argument, NULL, 'y'},
        {"force", no_argument, NULL, 'f'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {"repair", no_argument, NULL, 'r'},
        {"priority", required_argument, NULL, 'p'},
        {"min", required_argument, NULL, 'm'},
        {"max", required_argument, NULL, 'M'},
        {"prefer", required_argument, NULL, 'P'},
        {NULL, 0, NULL, 0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "s:jnyh", options, NULL)) != -1) {
        if (option == 's')
            a->socket = optarg;
        else if (option == 'j')
            a->json = true;
        else if (option == 'n')
            a->dry_run = true;
        else if (option == 'y')
            a->yes = true;
        else if (option == 'f')
            a->force = true;
        else if (option == 'r')
            a->repair = true;
        else if (option == 'p')
            a->priority = optarg;
        else if (option == 'm')
            a->min_rate = optarg;
        else if (option == 'M')
            a->max_rate = optarg;
        else if (option == 'P')
            a->prefer = optarg;
        else if (option == 'v')
            exit(printf("corbelctl %s\n", CORBEL_VERSION) > 0 ? EXIT_DONE : EXIT_REFUSED);
        else if (option == 'h')
            print_usage(stdout), exit(EXIT_DONE);
        else
            return false;
    }
    a->words = argv + optind;
    a->count = argc - optind;
    return true;
}

static const struct command *find_command(struct arguments *a)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(commands); i++) {
        const struct command *command = &commands[i];
        int words = command->verb != NULL ? 2 : 1;
        bool fits = command->operands == ANY_OPERANDS ? a->count >= words : a->count == words + command->operands;
        if (!fits || strcmp(a->words[0], command->noun) != 0 ||
            (command->verb != NULL && strcmp(a->words[1], command->verb) != 0))
            continue;
        a->words += words;
        a->count -= words;
        return command;
    }
    return NULL;
}

/* The usage of the commands meant, by their first word; all of them if it is no command's. NULL: an option was
 * wrong. */
static int tell_wrong_arguments(const struct arguments *a)
{
    bool meant = false;
    for (unsigned i = 0; a != NULL && a->count > 0 && i < ARRAY_LENGTH(commands); i++) {
        if (strcmp(a->words[0], commands[i].noun) != 0 || commands[i].usage == NULL)
            continue;
        fprintf(stderr, "%s  %-40s %s\n", meant ? "" : "corbelctl: wrong arguments; the usage is\n", commands[i].usage,
                commands[i].help);
        meant = true;
    }
    if (!meant)
        print_usage(stderr);
    if (!meant && a != NULL && a->count > 0)
        fprintf(stderr, "corbelctl: there is no command %s\n", a->words[0]);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    const char *socket = getenv("CORBEL_SOCKET");
    struct arguments arguments = {.socket = socket != NULL ? socket : "/run/corbel/control.sock"};
    if (!parse_options(argc, argv, &arguments))
        return tell_wrong_arguments(NULL);
    const struct command *command = find_command(&arguments);
    if (command == NULL)
        return tell_wrong_arguments(&arguments);
    return command->run(&arguments);
}
