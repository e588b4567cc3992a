/*
 * POPULATE TOKEN, WRITE USING TOKEN, RECEIVE ROD TOKEN INFORMATION: copies as Windows makes them (ODX), where the one
 * who names the source and the one who names the destination may be two.
 *
 * A copy is done when it is answered: IMMED is not taken up. Both units are of this target; a token of any other is
 * unknown. Of a token that stands for less than the ranges take, what there is is copied, and that is told (03h).
 */
#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/command_table.h"
#include "target/scsi/copy_move.h"
#include "target/scsi/copy_result.h"
#include "target/scsi/task.h"
#include "target/scsi/token_list.h"

bool scsi_token_parse(struct scsi_task *task)
{
    if (!scsi_parse_list(task))
        return false;
    return task->data_len <= TOKEN_LIST_MAX || scsi_task_refuse(task, &sense_list_length);
}

static bool result_begin(struct scsi_task *task)
{
    const struct scsi_sense *why = copy_result_begin(task->lu->target->copies, task, get_be32(task->cdb + 6), false);
    if (why != NULL)
        scsi_task_fail(task, why);
    return why == NULL;
}

/* --- POPULATE TOKEN, SBC-3 5.7 --- */

void scsi_populate_token_run(struct scsi_task *task)
{
    uint8_t bytes[TOKEN_LIST_MAX];
    struct token_list list;
    struct scsi_lu *lu = task->lu;
    uint32_t len = scsi_task_list(task, bytes, sizeof bytes);
    const struct scsi_sense *why = token_list_populate(bytes, len, lu_blocks(lu), ROD_BYTES_MAX / lu_block(lu), &list);
    if (len == 0) {
        scsi_task_end(task, SCSI_GOOD);
        return;
    }
    if (why != NULL) {
        scsi_task_fail(task, why);
        return;
    }
    if (!result_begin(task))
        return;
    struct rod_token *token = rod_token_make(lu->target->tokens, lu, list.range, list.count, list.patience_s);
    if (token == NULL) {
        scsi_task_fail(task, &sense_token_resources);
        return;
    }
    task->copy->token = token->id;
    task->moved = list.blocks * lu_block(lu);
    scsi_task_end(task, SCSI_GOOD);
}

/* --- WRITE USING TOKEN, SBC-3 5.46 --- */

/* Where the block stands that is so many from the first of the ranges, and how many follow it there. */
static uint64_t place(const struct rod_range *range, unsigned count, uint64_t block, uint64_t *follow)
{
    unsigned i = 0;
    while (i < count && block >= range[i].blocks)
        block -= range[i++].blocks;
    ASSERT(i < count);
    *follow = range[i].blocks - block;
    return range[i].lba + block;
}

/* Blocks that are copied. */
static uint64_t total_of(const struct token_list *list, const struct rod_token *token)
{
    return token != NULL ? MIN(list->blocks, token->blocks - list->offset) : list->blocks;
}

/* From the block `at` of the copy on, as much as lies together at both ends. */
static struct copy_piece piece_at(const struct token_list *list, const struct rod_token *token, struct scsi_lu *to,
                                  uint64_t at)
{
    uint64_t block = lu_block(to), here, there, left = total_of(list, token) - at;
    struct copy_piece piece = {.from = token != NULL ? token->lu : NULL, .to = to};
    piece.to_off = place(list->range, list->count, at, &here) * block;
    left = MIN(left, here);
    if (token != NULL) {
        piece.from_off = place(token->range, token->count, list->offset + at, &there) * lu_block(token->lu);
        left = MIN(left, there);
    }
    piece.len = left * block;
    return piece;
}

static void copy_over(struct scsi_task *task, const struct token_list *list, struct rod_token *token)
{
    if (list->delete &&token != NULL)
        rod_token_delete(task->lu->target->tokens, token);
    task->copy->partial = total_of(list, token) < list->blocks;
    scsi_task_end(task, SCSI_GOOD);
}

/* Piece by piece, until one has to wait for something. */
static void go_on(struct scsi_task *task, const struct token_list *list, struct rod_token *token)
{
    bool read_only;
    struct scsi_lu *to = scsi_copy_addressed(task, &read_only);
    if (to == NULL) { /* its view was changed */
        scsi_task_fail(task, &sense_copy_unreachable);
        return;
    }
    for (;;) {
        uint64_t at = (task->moved - task->position) / lu_block(to);
        if (at >= total_of(list, token)) {
            copy_over(task, list, token);
            return;
        }
        struct copy_piece piece = piece_at(list, token, to, at);
        if (scsi_copy_piece(task, &piece, read_only))
            return;
    }
}

static const struct scsi_sense *read_use(const struct scsi_task *task, const uint8_t *bytes, uint32_t len,
                                         struct token_list *list, struct rod_token **token)
{
    const struct scsi_lu *lu = task->lu;
    const struct scsi_sense *why = token_list_use(bytes, len, lu_blocks(lu), ROD_BYTES_MAX / lu_block(lu), list);
    if (why == NULL)
        *token = rod_token_read(lu->target->tokens, list->token, &why);
    if (why == NULL && *token != NULL && list->offset >= (*token)->blocks)
        why = &sense_list_field;
    return why;
}

/* The list is read and the token looked up anew at each step: it may have been revoked. */
void scsi_use_token_run(struct scsi_task *task)
{
    uint8_t bytes[TOKEN_LIST_MAX];
    struct token_list list;
    struct rod_token *token = NULL;
    uint32_t len = scsi_task_list(task, bytes, sizeof bytes);
    if (len == 0) {
        scsi_task_end(task, SCSI_GOOD);
        return;
    }
    const struct scsi_sense *why = read_use(task, bytes, len, &list, &token);
    if (why != NULL) {
        scsi_task_fail(task, why);
        return;
    }
    if (task->phase == COPY_START) {
        if (!result_begin(task))
            return;
        task->phase = COPY_PIECE;
    }
    go_on(task, &list, token);
}

/* --- RECEIVE ROD TOKEN INFORMATION, SPC-4 6.25: as RECEIVE COPY STATUS(LID4), and the token that was made --- */

void scsi_token_information_run(struct scsi_task *task)
{
    enum { LENGTH = 4, ID = 2 };
    uint8_t data[COPY_STATUS4_MAX + LENGTH + ID + ROD_TOKEN_BYTES];
    const struct copy_result *result = copy_result_find(task->lu->target->copies, task->nexus, get_be32(task->cdb + 2));
    if (result == NULL) {
        scsi_task_fail(task, &sense_cdb_field);
        return;
    }
    uint32_t len = scsi_copy_status4_build(data, result);
    const struct rod_token *token = rod_token_by_id(task->lu->target->tokens, result->token);
    put_be32(data + len, token != NULL ? ID + ROD_TOKEN_BYTES : 0);
    len += LENGTH;
    if (token != NULL) {
        put_be16(data + len, 0); /* ID FOR CREATING ROD CSCD DESCRIPTOR: of no meaning here */
        rod_token_write(token, data + len + ID);
        len += ID + ROD_TOKEN_BYTES;
    }
    put_be32(data, len - 4);
    scsi_task_reply(task, data, len);
}
