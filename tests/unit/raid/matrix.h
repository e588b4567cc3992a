/*
 * The matrix of states and commands (test_state_matrix.c): what a cell is made of, and how an array is brought into
 * each state (matrix_states.c).
 */
#ifndef TESTS_UNIT_RAID_MATRIX_H
#define TESTS_UNIT_RAID_MATRIX_H

#include "tests/unit/raid/scenes.h"

enum {
    MATRIX_DISK = 40 * 1024 * 1024,
    MATRIX_SIZE = 1024 * 1024,
    MATRIX_BLOCK = 4096,
    MATRIX_BLOCKS = MATRIX_SIZE / MATRIX_BLOCK,
    MATRIX_LOAD = 4,
    MATRIX_LOAD_BLOCK = MATRIX_BLOCKS / 2, /* commands work below it, the load above */
    MATRIX_GONE = 1,                       /* the slot that states do without */
    MATRIX_OTHER = 0,                      /* the one that commands take out */
};

enum matrix_state {
    IDLE,
    FRESH,
    INITIALISING,
    RESYNC,
    SCRUB,
    REBUILD,
    DEGRADED,
    TWICE,
    LOSING,
    FROZEN,
    CLOSING,
    REPLACING,
    CATCHING_UP,
    PAUSED_REBUILD,
    PAUSED_RESYNC,
    BAD_BLOCKS,
    LOST_BLOCKS,
    MATRIX_STATES
};

enum matrix_command {
    READ,
    WRITE,
    WRITE_ROWS,
    WRITE_FUA,
    FLUSH,
    DISCARD,
    ZEROES,
    TAKE_OUT,
    TAKE_OUT_SAME,
    BRING_IN,
    BRING_BLANK,
    TAKE_BACK,
    FORGET,
    REPLACE,
    ADD,
    SCRUB_BEGIN,
    SCRUB_END,
    PAUSE,
    RESUME,
    INFO,
    STOP,
    KILL,
    MATRIX_COMMANDS
};

struct matrix_shape {
    enum raid_level level;
    unsigned disks, bears;
};

struct matrix_cell {
    struct scene *scene;
    struct rig *rig;
    const struct matrix_shape *shape;
    enum matrix_state state;
    enum matrix_command command;
    bool loaded;
    char what[128];
    char answer;
    uint8_t *model;     /* bytes that must be there */
    uint8_t *in_flight; /* or these, in blocks whose write was not answered with success */
    bool doubtful[MATRIX_BLOCKS], cut;
    bool lost[MATRIX_BLOCKS]; /* neither: media errors, until they are written */
    struct rig_write load[MATRIX_LOAD];
    struct array_call closing;
    bool closed;
};

/* Make the array and bring it into the state of the cell. */
void matrix_enter(struct matrix_cell *c);
const char *matrix_state_name(enum matrix_state state);
/* How many further losses the state leaves room for. */
unsigned matrix_spare_redundancy(const struct matrix_cell *c);
bool matrix_is_paused(enum matrix_state state);

struct blkdev *matrix_volume(const struct matrix_cell *c);
void matrix_latency(struct matrix_cell *c, uint64_t ns);
/* Not blank: garbage where superblocks, maps and the volume will be. */
void matrix_garbage(struct matrix_cell *c, unsigned disk);

#endif
