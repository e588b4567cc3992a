#include "daemon/ctl_import.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/md_disks.h"
#include "daemon/units.h"

static const char *standing_of(const struct md_disks *md, unsigned i)
{
    return md->of[i] >= 0 ? md_standing_name(md->set.standing[md->of[i]]) : md->error[i];
}

/* "-": it has none. */
static void slot_text(const struct md_disks *md, unsigned i, char *out, size_t out_len)
{
    unsigned role = md->of[i] >= 0 ? md_role(md->set.sb, md->supers[md->of[i]].number) : MD_ROLE_SPARE;
    if (md->of[i] >= 0 && role < md->set.sb->disks)
        text_format(out, out_len, "%u", role);
    else
        text_format(out, out_len, "-");
}

static void print_people(const struct md_disks *md, const char *const *disks)
{
    char slot[16], size[32], uuid[UUID_TEXT_SIZE];
    printf("%-40s %-5s %s\n", "DISK", "SLOT", "STATE");
    for (unsigned i = 0; i < md->given; i++) {
        slot_text(md, i, slot, sizeof slot);
        printf("%-40s %-5s %s\n", disks[i], slot, standing_of(md, i));
    }
    if (md->set.sb != NULL) {
        uuid_format(&md->set.sb->set, uuid);
        printf("\nmd array \"%s\", %s\n", md->set.sb->name, uuid);
    }
    if (!md->set.usable) {
        printf("cannot be imported: %s\n", md->set.reason);
        return;
    }
    size_format(md->set.size, size, sizeof size);
    printf("can be imported: %s, %s\n", md->set.reason, size);
}

static void print_machine(const struct md_disks *md, const char *const *disks)
{
    json_t *list = json_array();
    char slot[16], uuid[UUID_TEXT_SIZE] = "";
    for (unsigned i = 0; i < md->given; i++) {
        slot_text(md, i, slot, sizeof slot);
        json_array_append_new(list, json_pack("{s:s?, s:s, s:s, s:b}", "path", disks[i], "slot", slot, "state",
                                              standing_of(md, i), "current",
                                              md->of[i] >= 0 && md->set.standing[md->of[i]] == MD_CURRENT));
    }
    if (md->set.sb != NULL)
        uuid_format(&md->set.sb->set, uuid);
    json_t *out = json_pack("{s:b, s:s, s:s, s:s, s:I, s:o}", "usable", md->set.usable, "reason", md->set.reason,
                            "name", md->set.sb != NULL ? md->set.sb->name : "", "uuid", uuid, "size_bytes",
                            (json_int_t)md->set.size, "disks", list);
    json_dumpf(out, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(out);
}

bool import_check(const char *const *disks, unsigned count, bool json)
{
    if (count > MD_DISKS_MAX) {
        fprintf(stderr, "corbelctl: at most %d disks\n", MD_DISKS_MAX);
        return false;
    }
    struct md_disks *md = md_disks_read(disks, count);
    if (json)
        print_machine(md, disks);
    else
        print_people(md, disks);
    bool usable = md->set.usable;
    free(md);
    return usable;
}
