/*
 * What became of copies: results that initiators ask for by the list identifier they chose (SPC-4 5.17.4).
 *
 * A bounded table of a target. An identifier is a nexus's own; its result is there from the start of the copy, and goes
 * when the nexus goes, when the identifier is used again, or when the table is full and it is the oldest one that is
 * over.
 */
#ifndef TARGET_SCSI_COPY_RESULT_H
#define TARGET_SCSI_COPY_RESULT_H

#include "target/scsi/scsi.h"
#include "target/scsi/sense.h"

enum { COPY_RESULTS_MAX = 32 };

struct copy_result {
    const struct scsi_nexus *nexus; /* NULL: the place is free */
    const struct scsi_task *task;   /* NULL: it is over */
    uint32_t id;
    bool discard; /* once it is over, if it went well */
    uint8_t action;
    uint64_t started; /* a count, to tell which is the oldest */
    uint32_t block;   /* bytes, of the LU it was sent to */
    /* When it is over. */
    uint64_t moved; /* bytes */
    uint16_t segments;
    bool partial; /* less than was asked for, and no error */
    enum scsi_status status;
    uint8_t sense[SCSI_SENSE_MAX], sense_len;
    uint64_t token; /* the one that was made; 0: none */
};

struct copy_results {
    uint64_t started;
    struct copy_result of[COPY_RESULTS_MAX];
};

/* NULL: none by this name. */
struct copy_result *copy_result_find(struct copy_results *results, const struct scsi_nexus *nexus, uint32_t id);
/* The task, which runs, has a result from now on; NULL, or why it cannot. */
const struct scsi_sense *copy_result_begin(struct copy_results *results, struct scsi_task *task, uint32_t id,
                                           bool discard);
/* The task is over. No effect if it has no result. */
void copy_result_end(struct scsi_task *task);
void copy_results_forget(struct copy_results *results, const struct scsi_nexus *nexus);

/* RECEIVE COPY STATUS(LID4) as bytes, at most COPY_STATUS4_MAX of them (command_copy_result.c). */
enum { COPY_STATUS4_BYTES = 32, COPY_STATUS4_MAX = COPY_STATUS4_BYTES + SCSI_SENSE_MAX };
uint32_t scsi_copy_status4_build(uint8_t out[COPY_STATUS4_MAX], const struct copy_result *result);

/* So far, or in all. */
uint64_t copy_result_moved(const struct copy_result *result);
uint16_t copy_result_segments(const struct copy_result *result);

#endif
