/*
 * Disks as they were found, one scene at a time: labels are made, a decision is asked for, and it must be the same in
 * whatever order the disks come.
 */
#ifndef TESTS_UNIT_RAID_ASSEMBLY_SCENE_H
#define TESTS_UNIT_RAID_ASSEMBLY_SCENE_H

#include "raid/assembly.h"
#include "raid/assembly_history.h"
#include "tests/unit/raid/labels.h"

enum { DISKS = 6 };

extern struct scene {
    unsigned count;
    struct sb_label labels[DISKS];
    struct assembly_disk disks[DISKS];
    struct assembly_options options;
} scene;
extern struct assembly result; /* of the last expect() */

void scene_clear(void);
/* A disk called `name` with the label of a slot, seen under `identity` (NULL: the recorded one). */
void add_disk(const struct sb_array *array, unsigned slot, const char *name, const char *identity);
/* Decide, and find the same whatever the order. `slots` names the disks in slots 0, 1, ...: "a b -". */
void expect(enum assembly_verdict verdict, bool startable, const char *slots);
void expect_reason(const char *reason);
/* Of a slot, by a decision; "-": none. */
const char *name_in_slot(const struct assembly *a, const struct assembly_disk *disks, unsigned slot);

/* An array of `members` with one volume. */
struct sb_array simple(unsigned members, enum raid_level level);
/* The array goes on as a running one does: without what is lost, under a new fork, one generation further. */
struct sb_array run_without(const struct sb_array *before, unsigned slot, enum sb_member_state state, unsigned fork);
struct sb_array later(const struct sb_array *before, unsigned generations);

#endif
