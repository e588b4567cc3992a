/*
 * corbelctl apply: the difference between the config and what is, as a list of steps; then the steps.
 *
 * Analyse, decide, act: the plan is made from a scan and the arrays' descriptions without changing anything; one
 * refused step means that nothing at all is done. Whatever would overwrite something is looked at with libblkid first
 * and needs --force.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/appliance_internal.h"
#include "daemon/foreign.h"
#include "daemon/units.h"

struct plan {
    struct appliance *a;
    const struct config *config;
    const struct apply_options *options;
    struct scan scan;
    json_t *steps; /* shown */
    bool refused;
    uint64_t create; /* bit: array of the config */
    bool start;      /* some array may start now */
    json_t *errors;
};

static void add_step(struct plan *p, const char *action, const char *object, const char *refused, const char *format,
                     ...) __attribute__((format(printf, 5, 6)));
static void add_step(struct plan *p, const char *action, const char *object, const char *refused, const char *format,
                     ...)
{
    va_list args;
    va_start(args, format);
    json_t *step =
        json_pack("{s:s, s:s, s:o}", "action", action, "object", object, "text", json_vsprintf(format, args));
    va_end(args);
    if (refused != NULL) {
        json_object_set_new(step, "refused", sentence_json(refused));
        p->refused = true;
    }
    json_array_append_new(p->steps, step);
}

/* --- a new array --- */

static const struct scan_disk *scanned(const struct plan *p, const char *path)
{
    for (unsigned i = 0; i < p->scan.count; i++)
        if (strcmp(p->scan.disks[i].path, path) == 0)
            return &p->scan.disks[i];
    return NULL;
}

/* NULL if the disk may become a member; else why not. */
static const char *disk_objection(struct plan *p, const struct config_text *path, char *why, size_t why_len)
{
    const struct scan_disk *disk = scanned(p, path->text);
    char what[256];
    if (disk == NULL)
        text_format(why, why_len, "%s:%u: disk %s is the same device as another disk of the config", p->config->path,
                    path->line, path->text);
    else if (disk->error[0] != '\0')
        text_format(why, why_len, "%s:%u: %s", p->config->path, path->line, disk->error);
    else if (disk->read_only)
        text_format(why, why_len, "%s:%u: disk %s is read-only", p->config->path, path->line, path->text);
    else if (disk->label != NULL)
        text_format(why, why_len,
                    "%s:%u: disk %s belongs to array %s: erase its first and last MiB if nothing on it is needed",
                    p->config->path, path->line, path->text, disk->label->array.name);
    else if ((disk->verdict == SB_DAMAGED || disk->verdict == SB_UNSUPPORTED) && !p->options->force)
        text_format(why, why_len, "%s:%u: disk %s: %s; --force overwrites it", p->config->path, path->line, path->text,
                    disk->why);
    else if (!p->options->force && foreign_probe(path->text, what, sizeof what))
        text_format(why, why_len, "%s:%u: disk %s holds %s; --force overwrites it", p->config->path, path->line,
                    path->text, what);
    else
        return NULL;
    return why;
}

struct shape_call {
    struct sync_call call;
    struct array_spec spec;
    struct sb_array description;
    struct blkdev devices[RAID_MEMBERS_MAX + SB_JOURNALS_MAX];
    const char *wrong;
    char *why;
    size_t why_len;
};

static void run_describe_shape(struct sync_call *call)
{
    struct shape_call *c = container_of(call, struct shape_call, call);
    c->wrong = array_describe(call->loop, &c->spec, &c->description, c->why, c->why_len);
    sync_finish(call);
}

static void stand_in(const struct plan *p, const char *path, struct blkdev *dev, struct array_disk *out)
{
    const struct scan_disk *disk = scanned(p, path);
    ASSERT(disk != NULL); /* disk_objection() has seen it */
    text_format(dev->name, sizeof dev->name, "%s", disk->path);
    dev->info = (struct blk_info){
        .size = disk->size, .logical_block = disk->logical_block, .physical_block = disk->logical_block};
    out->dev = dev;
    text_format(out->identity, sizeof out->identity, "%s", disk->identity);
}

/* Ask raid/ whether the shape fits these disks: stand-in devices with their sizes, no I/O. */
static const char *shape_objection(struct plan *p, const struct config_array *array, char *why, size_t why_len)
{
    struct shape_call *c = calloc(1, sizeof *c);
    ASSERT(c != NULL);
    c->why = why;
    c->why_len = why_len;
    array_spec_from_config(array, &c->spec);
    for (unsigned i = 0; i < array->disks.count; i++)
        stand_in(p, array->disks.items[i].text, &c->devices[i], &c->spec.disks[i]);
    for (unsigned i = 0; i < array->journal.count; i++)
        stand_in(p, array->journal.items[i].text, &c->devices[array->disks.count + i], &c->spec.journals[i]);
    sync_call(&c->call, reactor_loop(p->a->reactors[0]), run_describe_shape);
    const char *wrong = c->wrong;
    free(c);
    return wrong;
}

static void describe_volumes(const struct config_array *array, char *out, size_t out_len)
{
    size_t used = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < array->volumes.count && used < out_len; i++) {
        const struct config_volume *volume = config_item(&array->volumes, struct config_volume, i);
        char size[32] = "the rest";
        if (volume->size != 0)
            size_format(volume->size, size, sizeof size);
        text_format(out + used, out_len - used, "%s%s (%s, %s)", i > 0 ? ", " : "", volume->name.text,
                    raid_level_name(volume->level), size);
        used = strlen(out);
    }
}

static void plan_create(struct plan *p, const struct config_array *array, unsigned index)
{
    char why[512], volumes[1024];
    const char *objection = NULL;
    for (unsigned i = 0; i < array->disks.count && objection == NULL; i++)
        objection = disk_objection(p, &array->disks.items[i], why, sizeof why);
    for (unsigned i = 0; i < array->journal.count && objection == NULL; i++)
        objection = disk_objection(p, &array->journal.items[i], why, sizeof why);
    if (objection == NULL)
        objection = shape_objection(p, array, why, sizeof why);
    describe_volumes(array, volumes, sizeof volumes);
    add_step(p, "create-array", array->name.text, objection,
             "create array %s on %u disks, with volumes %s; what is on the disks is lost", array->name.text,
             array->disks.count, volumes);
    p->create |= 1ull << index;
}

/* --- an array that is there --- */

static const struct sb_volume *volume_there(const struct sb_array *array, const char *name)
{
    for (unsigned i = 0; i < array->volumes_count; i++)
        if (strcmp(array->volumes[i].name, name) == 0)
            return &array->volumes[i];
    return NULL;
}

/* What a shorter volume loses stands in the plan that is confirmed; and it takes force besides. */
static void plan_size(struct plan *p, const char *reference, const struct config_volume *volume,
                      const struct sb_array *there, unsigned index)
{
    char why[400], from[32], to[32];
    uint64_t size = volume->size, now = there->volumes[index].size;
    const char *wrong = array_resize_check(there, index, &size, p->options->force, why, sizeof why);
    if (size == now)
        return;
    size_format(now, from, sizeof from);
    size_format(size, to, sizeof to);
    if (size > now)
        add_step(p, "grow-volume", reference, wrong,
                 "make volume %s longer, from %s to %s, in the free space behind it", reference, from, to);
    else
        add_step(p, "shrink-volume", reference, wrong,
                 "make volume %s shorter, from %s to %s; what is in its last %" PRIu64 " bytes is lost", reference,
                 from, to, now - size);
}

static void plan_volume(struct plan *p, const struct config_array *array, const struct config_volume *volume,
                        const struct sb_array *there)
{
    char reference[2 * SB_NAME_SIZE + 2], size[32] = "all that is left";
    text_format(reference, sizeof reference, "%s/%s", array->name.text, volume->name.text);
    const struct sb_volume *now = volume_there(there, volume->name.text);
    if (volume->size != 0)
        size_format(volume->size, size, sizeof size);
    if (now == NULL) {
        add_step(p, "create-volume", reference, NULL, "create volume %s (%s, %s)", reference,
                 raid_level_name(volume->level), size);
        return;
    }
    struct layout_spec want = config_volume_layout(array, volume);
    if (want.level != now->spec.level || want.chunk != now->spec.chunk || want.spans != now->spec.spans ||
        want.copies != now->spec.copies || want.rotation != now->spec.rotation)
        add_step(p, "change-volume", reference, "changing the shape of a volume is not possible in this version",
                 "change volume %s from %s to %s", reference, raid_level_name(now->spec.level),
                 raid_level_name(want.level));
    else if (volume->consistency >= 0 && volume->consistency != (int)now->consistency)
        add_step(p, "change-volume", reference,
                 "changing the consistency policy of a volume is not possible in this version",
                 "change volume %s from policy %s to %s", reference, sb_consistency_name(now->consistency),
                 sb_consistency_name((enum sb_consistency)volume->consistency));
    else if (volume->size != 0)
        plan_size(p, reference, volume, there, (unsigned)(now - there->volumes));
}

static unsigned journals_in_use(const struct sb_array *array)
{
    unsigned count = 0;
    for (unsigned i = 0; i < array->journals_count; i++)
        count += array->journals[i].state == SB_JOURNAL_ACTIVE;
    return count;
}

static void plan_present(struct plan *p, const struct config_array *array, struct live_array *live)
{
    struct sb_array *there = live_array_describe(live);
    if (array->journal.count > there->journals_count || array->journal.count < journals_in_use(there))
        add_step(p, "change-journal", array->name.text,
                 "an array is given its journal devices when it is created, not later, in this version",
                 "change array %s from %u to %u journal devices", array->name.text, there->journals_count,
                 array->journal.count);
    if (there->members_count != array->disks.count)
        add_step(p, "change-disks", array->name.text, "adding and removing disks is not possible in this version",
                 "change array %s from %u to %u disks", array->name.text, there->members_count, array->disks.count);
    for (unsigned i = 0; i < array->volumes.count; i++)
        plan_volume(p, array, config_item(&array->volumes, struct config_volume, i), there);
    for (unsigned i = 0; i < there->volumes_count; i++) {
        bool named = false;
        for (unsigned j = 0; j < array->volumes.count; j++)
            named = named || strcmp(config_item(&array->volumes, struct config_volume, j)->name.text,
                                    there->volumes[i].name) == 0;
        if (!named)
            add_step(p, "note", there->volumes[i].name, NULL, "volume %s/%s is not in the config: left alone",
                     array->name.text, there->volumes[i].name);
    }
    free(there);
}

/* --- an array whose members are there, but which is not started --- */

static bool labels_found(const struct plan *p, const char *name)
{
    for (unsigned i = 0; i < p->scan.count; i++)
        if (p->scan.disks[i].label != NULL && strcmp(p->scan.disks[i].label->array.name, name) == 0)
            return true;
    return false;
}

static void plan_start(struct plan *p, const struct config_array *array)
{
    struct assembly_disk disks[RAID_MEMBERS_MAX * 4];
    struct assembly *found = calloc(CONFIG_ARRAYS_MAX, sizeof *found);
    ASSERT(found != NULL);
    unsigned count = 0;
    for (unsigned i = 0; i < p->scan.count && count < ARRAY_LENGTH(disks); i++) {
        const struct scan_disk *disk = &p->scan.disks[i];
        if (disk->label != NULL)
            disks[count++] =
                (struct assembly_disk){.label = disk->label, .identity = disk->identity, .name = disk->path};
    }
    struct assembly_options options = {.force = p->options->force};
    unsigned arrays = assembly_decide(disks, count, &options, found, CONFIG_ARRAYS_MAX);
    arrays = MIN(arrays, (unsigned)CONFIG_ARRAYS_MAX);
    for (unsigned i = 0; i < arrays; i++) {
        if (strcmp(found[i].array.name, array->name.text) != 0)
            continue;
        add_step(p, "start-array", array->name.text, found[i].startable ? NULL : found[i].reason,
                 "start array %s, %s%s", array->name.text, assembly_verdict_name(found[i].verdict),
                 p->options->force ? ", by force" : "");
        p->start = true;
    }
    free(found);
}

/* --- all of it --- */

static void plan_services(struct plan *p)
{
    for (unsigned i = 0; i < p->config->nbd.exports.count; i++) {
        const struct config_export *export = config_item(&p->config->nbd.exports, struct config_export, i);
        if (live_export_find(p->a, export->name.text) == NULL)
            add_step(p, "serve-export", export->name.text, NULL, "serve volume %s as NBD export \"%s\"",
                     export->volume.text, export->name.text);
    }
    for (unsigned i = 0; i < p->config->iscsi.targets.count; i++) {
        const struct config_target *target = config_item(&p->config->iscsi.targets, struct config_target, i);
        if (live_target_find(p->a, target->name.text) == NULL)
            add_step(p, "serve-target", target->name.text, NULL, "serve iSCSI target %s with %u LUN%s",
                     target->name.text, target->luns.count, target->luns.count == 1 ? "" : "s");
    }
}

static void plan_imports(struct plan *p)
{
    for (unsigned i = 0; i < p->config->imports.count; i++) {
        const struct config_import *import = config_item(&p->config->imports, struct config_import, i);
        char text[512];
        bool usable;
        if (live_import_plan(p->a, import, &usable, text, sizeof text))
            add_step(p, "start-import", import->name.text, usable ? NULL : text, "read md array %s where it is%s%s",
                     import->name.text, usable ? ": " : "", usable ? text : "");
    }
}

static void make_plan(struct plan *p)
{
    scan_config(&p->scan, p->a->reactors[0], p->config);
    for (unsigned i = 0; i < p->config->arrays.count; i++) {
        const struct config_array *array = config_item(&p->config->arrays, struct config_array, i);
        struct live_array *live = live_array_find(p->a, array->name.text);
        if (live != NULL && live->array != NULL)
            plan_present(p, array, live);
        else if (labels_found(p, array->name.text))
            plan_start(p, array);
        else
            plan_create(p, array, i);
    }
    plan_imports(p);
    plan_services(p);
}

static void fail_step(struct plan *p, const char *why)
{
    log_error("apply: %s", why);
    json_array_append_new(p->errors, sentence_json(why));
}

/* What stood in the plan as started, and is not. */
static void check_started(struct plan *p, const struct config_array *array)
{
    char why[640];
    const struct live_array *live = live_array_find(p->a, array->name.text);
    if (live != NULL && live->array != NULL)
        return;
    text_format(why, sizeof why, "array %s is not started: %s", array->name.text, live != NULL ? live->reason : "");
    fail_step(p, why);
}

static void resize_volumes(struct plan *p, const struct config_array *array, struct live_array *live)
{
    struct sb_array *there = live_array_describe(live);
    for (unsigned i = 0; i < array->volumes.count; i++) {
        const struct config_volume *volume = config_item(&array->volumes, struct config_volume, i);
        const struct sb_volume *now = volume_there(there, volume->name.text);
        char why[512];
        if (now != NULL && volume->size != 0 && round_up(volume->size, 4 * KIB) != now->size &&
            !live_array_resize_volume(live, (unsigned)(now - there->volumes), volume->size, p->options->force, why,
                                      sizeof why))
            fail_step(p, why);
    }
    free(there);
}

static void add_missing_volumes(struct plan *p, const struct config_array *array)
{
    struct live_array *live = live_array_find(p->a, array->name.text);
    if (live == NULL || live->array == NULL)
        return;
    resize_volumes(p, array, live); /* before others take the free space, or when they may have what is given up */
    struct array_spec *spec = calloc(1, sizeof *spec);
    struct sb_array *there = live_array_describe(live);
    ASSERT(spec != NULL);
    array_spec_from_config(array, spec);
    for (unsigned i = 0; i < spec->volumes_count; i++) {
        char why[512];
        if (volume_there(there, spec->volumes[i].name) == NULL &&
            !live_array_add_volume(live, &spec->volumes[i], why, sizeof why))
            fail_step(p, why);
    }
    free(there);
    free(spec);
}

static void carry_out(struct plan *p)
{
    char why[512];
    if (p->start) {
        struct assembly_options options = {.force = p->options->force};
        live_arrays_start(p->a, p->config, &options, NULL);
    }
    for (unsigned i = 0; i < p->config->arrays.count; i++) {
        const struct config_array *array = config_item(&p->config->arrays, struct config_array, i);
        if (p->create & 1ull << i) {
            if (!live_array_create(p->a, array, i, why, sizeof why))
                fail_step(p, why);
        } else {
            check_started(p, array);
            add_missing_volumes(p, array);
        }
    }
    live_imports_start(p->a, p->config);
    live_patrols(p->a, p->config);
    live_rates(p->a, p->config);
    live_spares_config(p->a, p->config);
    live_access(p->a, p->config, NULL, NULL);
    live_serve(p->a, p->config, NULL, NULL);
}

json_t *appliance_apply(struct appliance *a, const struct apply_options *options)
{
    struct config_errors mistakes = {0};
    struct config *config = config_load(a->config->path, &mistakes);
    struct plan p = {.a = a, .config = config, .options = options, .steps = json_array(), .errors = json_array()};
    bool applied = false;
    for (unsigned i = 0; i < mistakes.count; i++)
        json_array_append_new(p.errors, sentence_json(mistakes.lines[i]));
    config_errors_free(&mistakes);
    if (config != NULL) {
        make_plan(&p);
        if (!options->dry_run && !p.refused) {
            carry_out(&p);
            applied = json_array_size(p.errors) == 0;
            config_free(a->config);
            a->config = config;
        } else {
            config_free(config);
        }
        scan_free(&p.scan);
    }
    return json_pack("{s:o, s:b, s:b, s:o}", "plan", p.steps, "applied", applied, "refused", p.refused, "errors",
                     p.errors);
}
