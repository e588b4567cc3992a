/*
 * Scenes: which disks of a rig are found at a start, in which order and under which names. What is decided about them
 * is decided for every order in which they may arrive (all orders of up to four, many of more), and must be the same.
 */
#ifndef TESTS_UNIT_RAID_SCENES_H
#define TESTS_UNIT_RAID_SCENES_H

#include "tests/unit/raid/arrays.h"

struct scene {
    struct rig *rig;
    unsigned count;
    struct scene_disk {
        unsigned disk;
        char identity[SB_IDENTITY_SIZE];
    } disks[RIG_DISKS];
    struct assembly_options options;
    bool labelled[RIG_DISKS]; /* by position: has it a label to be believed? Written by scene_decide() */
    struct sb_label labels[RIG_DISKS];
};

/* A scene is large. scene_destroy() frees it, and the rig with it. */
struct scene *scene_create(unsigned disks, uint64_t bytes);
void scene_destroy(struct scene *scene);
/* With an array at rest, whose volume "v" is filled from seed 1. */
struct scene *scene_written(unsigned disks, enum raid_level level, uint64_t size);

/* Exactly these disks are found, without options. */
void scene_show(struct scene *scene, unsigned mask);
/* One more, under another identity than its own; NULL: its own. */
void scene_show_as(struct scene *scene, unsigned disk, const char *identity);

/* Read the labels and decide, in all orders: the answer is rig->assembly. False: no label is there at all. */
bool scene_decide(struct scene *scene);
/* Open what was decided, if that may be. */
bool scene_open(struct scene *scene);
/* Show these, decide, open. */
bool scene_start(struct scene *scene, unsigned mask);

/* Is the disk in its slot, by what was decided? */
bool scene_takes(const struct scene *scene, unsigned slot, unsigned disk);

/*
 * What stands on the disks that are online, looked at without the codec and without a request: are copies alike, and
 * parities those of the data, in every row that was ever written? The array is at rest. False, and a sentence.
 */
bool scene_redundant(const struct rig *rig, char *why, size_t why_len);
/* When all work is done: optimal, filled from the seed, redundant. */
void scene_expect_whole(struct scene *scene, uint64_t seed, const char *what);

#endif
