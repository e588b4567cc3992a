/*
 * An array: members with one description, and the volumes cut from them.
 *
 * The array owns the description (struct sb_array) and its generations: every change is written to all live members and
 * flushed before it is acted upon. It decides what a member's error means, records losses before writes that missed
 * them are acknowledged, marks the array dirty before the first write and clean when quiet or closed, and runs the jobs
 * (resync of what was being written at a crash, rebuild of a member brought back).
 *
 * Lives on one loop; the disks are lent to it and must be on the same loop. Every asynchronous call ends in its `done`
 * exactly once; errors carry a sentence that names the disk.
 */
#ifndef RAID_ARRAY_H
#define RAID_ARRAY_H

#include "core/blkdev.h"
#include "raid/assembly.h"
#include "raid/superblock.h"
#include "raid/volume.h"

struct array;

struct array_disk {
    struct blkdev *dev;
    char identity[SB_IDENTITY_SIZE]; /* serial number, or the path of a file */
};

struct array_volume_spec {
    char name[SB_NAME_SIZE];
    struct layout_spec layout; /* members 0: all of the array, else the first so many; chunk 0: default 64 KiB (RAID 3: 4 KiB) */
    unsigned slot;             /* jbod */
    uint64_t size;             /* bytes; 0: all that is left */
    bool consistency_given;    /* else the default of its level */
    enum sb_consistency consistency;
    enum sb_init init; /* begins at once; not without redundancy */
};

struct array_spec {
    char name[SB_NAME_SIZE];
    unsigned disks_count;
    struct array_disk disks[RAID_MEMBERS_MAX];
    unsigned journals_count; /* 0: the journal is on the disks */
    struct array_disk journals[SB_JOURNALS_MAX];
    uint64_t journal_bytes; /* on each disk; 0: 1/64 of the smallest, 4 to 64 MiB */
    unsigned volumes_count;
    struct array_volume_spec volumes[SB_VOLUMES_MAX];
};

/* A call to an array that takes time. */
struct array_call {
    void (*done)(struct array_call *);
    int error;           /* 0 or -errno */
    char message[256];   /* with an error: what, which disk, so what */
    struct array *array; /* create, open: the result */
    struct task task;    /* the array's */
};

/* Check a spec against its disks and compute the description that would be written: no I/O. NULL or why not. */
const char *array_describe(struct loop *loop, const struct array_spec *spec, struct sb_array *out, char *why,
                           size_t why_len);

/* Write superblocks to all disks of the spec (whatever is on them: the caller asked libblkid), then open it. */
void array_create(struct loop *loop, const struct array_spec *spec, struct array_call *call);

/* May this disk, whose label says so, take its slot? 0, or -errno and a sentence: it has shrunk, or takes no writes. */
int array_disk_check(const struct sb_array *description, unsigned slot, const struct array_disk *disk, char *why,
                     size_t why_len);

/* Disks of the journal, by their index in the description (journal_label_index()); dev is NULL: not there. */
struct array_journals {
    struct array_disk disks[SB_JOURNALS_MAX];
    bool force; /* start without them, although they are needed */
};

/*
 * Open what assembly_decide() allows to start. disks[slot].dev is NULL where the member is absent; the others have
 * passed array_disk_check(), or the call fails. journals: NULL: none is there.
 */
void array_open(struct loop *loop, const struct assembly *assembly, const struct array_disk *disks,
                const struct array_journals *journals, struct array_call *call);

/*
 * Finish what is in flight, stop jobs, flush, mark clean, free. The volumes' users must be gone, and no other call
 * under way. Then the array is no more; the error says only that it could not be marked clean (it was frozen).
 */
void array_close(struct array *array, struct array_call *call);
/*
 * From now on nothing is written to any disk, as if the process had been killed: the volumes answer BLK_GONE. Only
 * array_close() may follow, when the volumes' users have gone.
 */
void array_abandon(struct array *array);

/* Add a volume in free space. */
void array_add_volume(struct array *array, const struct array_volume_spec *spec, struct array_call *call);

/*
 * Another size for a volume (by index in the description), in bytes: longer where the free space behind it on the disks
 * allows, or, with `shrink`, shorter: what is beyond the new end is lost from the moment this is called. When the call
 * is over it is on all live members. Refused while there is background work on the volume.
 */
void array_resize_volume(struct array *array, unsigned volume, uint64_t size, bool shrink, struct array_call *call);
/* Would the description allow it? NULL, with *size as it would be; or why not. */
const char *array_resize_check(const struct sb_array *description, unsigned volume, uint64_t *size, bool shrink,
                               char *why, size_t why_len);

/*
 * Take a member out of service by hand; refused if a volume would fail. Its disk stays lent until another takes the
 * slot, it is taken back, or the array is closed.
 */
void array_fail_member(struct array *array, unsigned slot, struct array_call *call);
/*
 * Take back the disk of a slot that is out of service, so that it can be closed. NULL: it is no longer lent; else why
 * not: the slot is in service, or the disk has not answered all its requests yet.
 */
const char *array_take_back_disk(struct array *array, unsigned slot, char *why, size_t why_len);
/* Put a disk (the failed one, or a blank one) into a slot that is failed or absent, and rebuild it. */
void array_online_member(struct array *array, unsigned slot, const struct array_disk *disk, struct array_call *call);

/*
 * Put another, blank disk in the place of one that is in service and goes on serving while it is copied. The call is over
 * when that has begun, or was refused; array_replacement() tells the rest.
 */
void array_replace_member(struct array *array, unsigned slot, const struct array_disk *disk, struct array_call *call);
struct array_replacement {
    bool running;
    unsigned slot;
    /* When it is over: */
    int error; /* 0, or -errno and a sentence */
    char message[256];
    struct blkdev *left; /* the disk that is lent no more: the old one, or with an error the new one */
};
/* The one that runs, or ran last; all zero: none. */
void array_replacement(const struct array *array, struct array_replacement *out);
/* Call it off: the old disk stays, the new one is left. Refused when none runs, or it is decided already. */
void array_replace_cancel(struct array *array, struct array_call *call);

/*
 * Begin a scrub of a volume by hand (CHECK, REPAIR), in place of a patrol that is under way; or call off what is under
 * way (NONE). The call is over when it is begun: it goes on for hours, also after a restart.
 */
void array_scrub(struct array *array, const char *volume, enum sb_scrub_mode mode, struct array_call *call);
/* From now on a patrol begins by itself when the volume's last scrub is older than this; 0: never. */
void array_scrub_interval(struct array *array, unsigned volume, uint64_t seconds);

/*
 * Begin to write zeroes to all rows of a volume that were never written, and to read them back; or call it off, also what
 * was asked for when the volume was created. The call is over when it is begun: it goes on also after a restart. A
 * volume whose description says SB_INIT_FOREGROUND is not to be served until it says so no more.
 */
void array_init_volume(struct array *array, const char *volume, bool begin, struct array_call *call);

enum { SCRUB_FINDINGS = 32 };
struct array_scrub_info {
    struct sb_scrub scrub;
    uint64_t interval_s;
    uint64_t rows, corrected;  /* of the scrub that runs, or ran last, since the array was opened */
    uint64_t findings_dropped; /* there were more than are kept */
    unsigned findings_count;
    struct row_finding findings[SCRUB_FINDINGS];
};
/* By index in the description. */
void array_scrub_info(const struct array *array, unsigned volume, struct array_scrub_info *info);

/* What a disk must be like to take a slot whose loss is on disk. False: the slot is in service, or merely absent. */
struct array_slot_need {
    uint64_t bytes;
    uint32_t logical_block;
    bool rotational;
    unsigned tolerance; /* further losses that the weakest volume with redundancy bears */
};
bool array_slot_need(const struct array *array, unsigned slot, struct array_slot_need *need);
/*
 * A slot's disk will not come back: its identity is forgotten, and the disk is refused as a stranger if it does. Refused
 * while the slot is in service, or when a volume has no redundancy and needs that very disk.
 */
void array_forget_member(struct array *array, unsigned slot, struct array_call *call);

/*
 * Background work on a volume (by index in the description), whatever kind it is. All of it outlives a restart; refused
 * for volumes without redundancy, which have none.
 */
struct array_rate {
    unsigned priority;           /* percent, 1 to 100: how much of it initiators may feel; see raid/job_pace.h */
    uint64_t min_rate, max_rate; /* bytes a second of all members together; 0: none */
};
void array_set_rate(struct array *array, unsigned volume, const struct array_rate *rate, struct array_call *call);
struct array_rate array_rate(const struct array *array, unsigned volume);
void array_pause_volume(struct array *array, unsigned volume, bool paused, struct array_call *call);
/*
 * None runs from now on, on no volume; NULL: as before. What is under way is left when its rows in flight are over.
 * Beside pauses, and unlike them forgotten with this struct. `why` is what the jobs wait for, in two words or three; it
 * is lent.
 */
void array_hold_jobs(struct array *array, const char *why);

/*
 * Keep something for whoever uses a volume (by index in the description): JSON, by name; NULL: forget it. When the call
 * is over it is on all live members. -ENOSPC: all that is kept in the array would be too long together.
 */
void array_volume_keep(struct array *array, unsigned volume, const char *name, const char *json,
                       struct array_call *call);

struct blkdev *array_volume(struct array *array, const char *name); /* NULL: no such volume */
/* Of a volume's bytes, those that were ever written, and those whose redundancy a crash now would leave in doubt. */
struct array_usage {
    uint64_t written_bytes, dirty_bytes; /* in whole rows; without redundancy all is written, and nothing dirty */
};
struct array_usage array_usage(const struct array *array, unsigned volume); /* by index in the description */
/* Bytes of a volume that are lost: they answer media errors until they are overwritten. The first ranges, and the sum. */
struct array_lost {
    uint64_t bytes;
    unsigned count;
    struct array_lost_range {
        uint64_t off, len;
    } ranges[32];
};
void array_lost(struct array *array, unsigned volume, struct array_lost *out);
const struct sb_array *array_description(const struct array *array);
/* The history that it runs under, as all live members have it: the description may be ahead of them. */
const struct uuid *array_history(const struct array *array);

struct array_job_info {
    char kind[16]; /* "init", "resync", "rebuild" */
    char volume[SB_NAME_SIZE];
    uint64_t done_bytes, total_bytes;        /* of the members */
    uint64_t bytes_per_second, seconds_left; /* 0: not known, or it waits for its turn */
    uint64_t position, rows;                 /* the row that is next, and how many the volume has */
    char waits_for[32];                      /* "": it runs; "paused", "its turn", "missing disks", ... */
    bool paused;
    struct array_rate rate;
};

struct array_member_info {
    char state[16];
    char identity[SB_IDENTITY_SIZE];
    uint64_t read_errors, corrected, write_errors;
    uint64_t recent_errors;         /* media errors, halved every hour: more than 20 and the disk fails */
    uint64_t late, timed_out;       /* reads had elsewhere because they took long; requests without an answer in time */
    uint64_t bad_ranges, bad_bytes; /* raid/bad_blocks.h */
    bool present;
    bool slow; /* by comparison with its peers */
};

struct array_journal_info {
    char state[16]; /* "active", "failing" (is being given up), "lost", "doubtful" */
    char identity[SB_IDENTITY_SIZE];
    uint64_t bytes;
};

/* A snapshot for status, jobs and members included. */
struct array_info {
    char name[SB_NAME_SIZE];
    char state[16]; /* "optimal", "degraded", "failed" (some volume is), "frozen" (start it again) */
    bool clean;
    uint64_t generation, free_bytes;                    /* free bytes of extent per member */
    unsigned members_count, jobs_count, journals_count; /* journals: 0: on the members from the beginning */
    struct array_journal_info journals[SB_JOURNALS_MAX];
    struct array_member_info members[RAID_MEMBERS_MAX];
    struct array_job_info jobs[8];
};
void array_info(struct array *array, struct array_info *info);

#endif
