/*
 * Disks that hold the journal of an array: `journal` in the config names them; what stands on them says which they are.
 *
 * They are opened with their array and closed with it. A disk named there that carries another label, or none, is left
 * alone; one that the array has lost is not used again. Whether the array can start without one is its own decision
 * (raid/journal_device.h).
 */
#include <string.h>

#include "core/log.h"
#include "daemon/appliance_internal.h"
#include "daemon/foreign.h"

/* Which of the array's devices is it, and is it in use? -1: none, and that was said. */
static int index_of(const struct sb_array *description, const char *path)
{
    struct journal_label label;
    if (!journal_label_of(path, &label)) {
        log_warn("array %s: disk %s carries no journal: left alone", description->name, path);
        return -1;
    }
    int index = journal_label_index(description, &label);
    if (index < 0)
        log_warn("array %s: disk %s carries a journal of array %s, which is none of its own: left alone",
                 description->name, path, label.name);
    else if (description->journals[index].state != SB_JOURNAL_ACTIVE)
        log_warn("array %s: disk %s carried its journal and was lost: it is not used", description->name, path);
    else
        return index;
    return -1;
}

void live_journals_open(struct appliance *a, struct live_array *live, const struct config_array *config,
                        const struct sb_array *description, struct array_journals *out)
{
    char why[512];
    for (unsigned i = 0; i < config->journal.count && i < SB_JOURNALS_MAX; i++) {
        const char *path = config->journal.items[i].text;
        int index = index_of(description, path);
        if (index < 0 || live->journals[index].disk.dev != NULL)
            continue;
        if (!live_disk_open(a, live, &live->journals[index], path, why, sizeof why))
            log_error("array %s: a journal device is left out: %s", live->name, why);
        out->disks[index] = live->journals[index].disk;
    }
}

bool live_journals_create(struct appliance *a, struct live_array *live, const struct config_array *config,
                          struct array_spec *spec, char *why, size_t why_len)
{
    bool good = true;
    for (unsigned i = 0; i < config->journal.count && good; i++) {
        good = live_disk_open(a, live, &live->journals[i], config->journal.items[i].text, why, why_len);
        spec->journals[i] = live->journals[i].disk;
    }
    return good;
}

/* One sentence: where it is. */
static const char *journal_text(const struct array_info *info)
{
    unsigned active = 0;
    for (unsigned i = 0; i < info->journals_count; i++)
        active += strcmp(info->journals[i].state, "active") == 0;
    if (info->journals_count == 0)
        return "on the members";
    if (active == 0)
        return "journal device lost: on the members now";
    return active < info->journals_count ? "one journal device lost: the other goes on alone" : "on its own devices";
}

json_t *live_journals_json(const struct live_array *live, const struct array_info *info)
{
    json_t *devices = json_array();
    for (unsigned i = 0; i < info->journals_count; i++)
        json_array_append_new(devices, json_pack("{s:s, s:s, s:s, s:I}", "state", info->journals[i].state, "path",
                                                 live->journals[i].path, "identity", info->journals[i].identity,
                                                 "bytes", (json_int_t)info->journals[i].bytes));
    return json_pack("{s:s, s:o}", "where", journal_text(info), "devices", devices);
}
