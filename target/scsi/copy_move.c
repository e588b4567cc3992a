/* Moving blocks between logical units: see copy_move.h. */
#include "target/scsi/copy_move.h"

#include "core/bytes.h"
#include "core/check.h"
#include "target/scsi/order.h"
#include "target/scsi/sanitize.h"
#include "target/scsi/scratch.h"
#include "target/scsi/task.h"
#include "target/scsi/vpd.h"

/* --- who is meant --- */

struct scsi_lu *scsi_copy_addressed(const struct scsi_task *task, bool *read_only)
{
    struct scsi_lu *lu = scsi_nexus_lu(task->nexus, task->lun);
    *read_only = lu != NULL && (scsi_lu_read_only(lu) || scsi_nexus_read_only(task->nexus, task->lun));
    return lu;
}

static bool is_named(const struct scsi_lu *lu, const uint8_t *naa)
{
    return lu != NULL && memcmp(lu->options.naa, naa, sizeof lu->options.naa) == 0;
}

/* Of several with this name one that can be written to. */
struct scsi_lu *scsi_copy_find(const struct scsi_task *task, const uint8_t *naa, bool *read_only)
{
    struct scsi_lu *found = scsi_copy_addressed(task, read_only);
    if (is_named(found, naa))
        return found;
    found = NULL;
    for (unsigned i = 0; i < SCSI_LUNS_MAX && (found == NULL || *read_only); i++) {
        uint8_t lun[8] = {0, (uint8_t)i};
        struct scsi_lu *lu = scsi_nexus_lu(task->nexus, lun);
        if (!is_named(lu, naa))
            continue;
        found = lu;
        *read_only = scsi_lu_read_only(lu) || scsi_nexus_read_only(task->nexus, lun);
    }
    return found;
}

/* --- may it be --- */

static bool on_medium(const struct scsi_lu *lu, uint64_t off, uint64_t len)
{
    return off <= lu->dev->info.size && len <= lu->dev->info.size - off;
}

/* Two LUNs may show one device. */
static bool overlaps(const struct copy_piece *piece)
{
    return piece->from != NULL && piece->from->dev == piece->to->dev && piece->from_off < piece->to_off + piece->len &&
           piece->to_off < piece->from_off + piece->len;
}

static const struct scsi_sense *check(const struct copy_piece *piece, bool to_read_only)
{
    const struct scsi_lu *from = piece->from;
    if (piece->to->ejected || (from != NULL && from->ejected))
        return &sense_copy_unreachable;
    if (to_read_only)
        return &sense_read_only;
    if (from != NULL && lu_block(from) != lu_block(piece->to))
        return &sense_list_field;
    if (!on_medium(piece->to, piece->to_off, piece->len) ||
        (from != NULL && !on_medium(from, piece->from_off, piece->len)))
        return &sense_copy_range;
    return overlaps(piece) ? &sense_list_field : NULL;
}

static bool allowed(struct scsi_task *task, const struct copy_piece *piece, bool to_read_only)
{
    if (scsi_lu_forbids(piece->to, task->nexus, PERSIST_CHANGES) ||
        (piece->from != NULL && scsi_lu_forbids(piece->from, task->nexus, PERSIST_READS))) {
        scsi_task_end(task, SCSI_RESERVATION_CONFLICT);
        return false;
    }
    struct scsi_sense space;
    const struct scsi_sense *why = scsi_sanitize_forbids(piece->to, task->command, &space);
    if (why == NULL)
        why = check(piece, to_read_only);
    if (why != NULL)
        scsi_task_fail(task, why);
    return why == NULL;
}

/* --- steps --- */

enum { MOVE_LOOK, MOVE_KNOWN, MOVE_ZERO, MOVE_READ, MOVE_WRITE, MOVE_WRITTEN };

/* False: it stands in line. */
static bool enter(struct scsi_task *task, const struct copy_piece *piece)
{
    uint32_t block = lu_block(piece->to);
    task->position = task->until = 0;
    task->move = MOVE_LOOK;
    return scsi_order_move(task, piece->to, piece->to_off / block, piece->len / block);
}

/* At different offsets of a page bytes must be moved, from the first half of the scratch pages to the second. */
static bool is_shifted(const struct copy_piece *piece)
{
    return piece->from_off % PAGE_BYTES != piece->to_off % PAGE_BYTES;
}

enum { HALF = SCSI_SCRATCH_PAGES / 2 };

/* At the end of a step the destination is at the edge of a page, or all is done. */
static uint64_t step_bytes(const struct scsi_task *task, const struct copy_piece *piece)
{
    uint64_t from = (piece->from_off + task->position) % PAGE_BYTES, to = (piece->to_off + task->position) % PAGE_BYTES;
    uint64_t most = (is_shifted(piece) ? HALF : SCSI_SCRATCH_PAGES) * PAGE_BYTES - MAX(from, to);
    const uint64_t limits[] = {piece->from->dev->info.max_request, piece->to->dev->info.max_request};
    for (unsigned i = 0; i < ARRAY_LENGTH(limits); i++)
        if (limits[i] != 0)
            most = MIN(most, limits[i]);
    uint64_t left = task->until - task->position;
    return left <= most ? left : round_down(to + most, PAGE_BYTES) - to;
}

static void shift_bytes(struct page **pages, uint64_t from, uint64_t to, uint64_t len)
{
    to += HALF * PAGE_BYTES;
    for (uint64_t span; len > 0; len -= span, from += span, to += span) {
        span = MIN(len, MIN(PAGE_BYTES - from % PAGE_BYTES, PAGE_BYTES - to % PAGE_BYTES));
        memcpy((uint8_t *)pages[to / PAGE_BYTES]->data + to % PAGE_BYTES,
               (const uint8_t *)pages[from / PAGE_BYTES]->data + from % PAGE_BYTES, span);
    }
}

static void look(struct scsi_task *task, const struct copy_piece *piece)
{
    uint64_t left = piece->len - task->position;
    if (piece->from == NULL) {
        task->move = MOVE_ZERO;
        scsi_task_submit_to(task, piece->to, BLK_WRITE_ZEROES, 0, piece->to_off + task->position,
                            MIN(left, SCSI_WRITE_SAME_MAX), NULL);
        return;
    }
    task->move = MOVE_KNOWN;
    scsi_task_submit_to(task, piece->from, BLK_STATUS, 0, piece->from_off + task->position, left, NULL);
}

static void read_step(struct scsi_task *task, const struct copy_piece *piece)
{
    task->move = MOVE_READ;
    if (!scsi_scratch_get(task))
        return;
    task->move = MOVE_WRITE;
    scsi_task_submit_to(task, piece->from, BLK_READ, 0, piece->from_off + task->position, step_bytes(task, piece),
                        scsi_scratch_pages(task));
}

static void write_step(struct scsi_task *task, const struct copy_piece *piece)
{
    struct page **pages = scsi_scratch_pages(task);
    uint64_t from = piece->from_off + task->position, to = piece->to_off + task->position;
    if (is_shifted(piece)) {
        shift_bytes(pages, from % PAGE_BYTES, to % PAGE_BYTES, task->step);
        pages += HALF;
    }
    task->move = MOVE_WRITTEN;
    scsi_task_submit_to(task, piece->to, BLK_WRITE, 0, to, task->step, pages);
}

/* It is known how far what is true of the next byte goes. */
static void extent_known(struct scsi_task *task, const struct copy_piece *piece)
{
    task->until = task->position + task->req.extent;
    if (task->req.written) {
        read_step(task, piece);
        return;
    }
    task->move = MOVE_ZERO;
    scsi_task_submit_to(task, piece->to, BLK_WRITE_ZEROES, 0, piece->to_off + task->position,
                        MIN(task->req.extent, SCSI_WRITE_SAME_MAX), NULL);
}

static void step_over(struct scsi_task *task)
{
    scsi_scratch_put(task); /* who stands in line has its turn */
    task->position += task->step;
    task->moved += task->step;
    task->move = task->move == MOVE_WRITTEN && task->position < task->until ? MOVE_READ : MOVE_LOOK;
}

/* False: all of it is done. */
static bool step(struct scsi_task *task, const struct copy_piece *piece)
{
    if (task->move == MOVE_ZERO || task->move == MOVE_WRITTEN)
        step_over(task);
    if (task->position == piece->len)
        return false;
    struct scsi_sense space;
    const struct scsi_sense *forbidden =
        piece->from != NULL ? scsi_sanitize_forbids(piece->from, task->command, &space) : NULL;
    if (forbidden != NULL) {
        scsi_task_fail(task, forbidden);
        return true;
    }
    if (task->move == MOVE_LOOK)
        look(task, piece);
    else if (task->move == MOVE_KNOWN)
        extent_known(task, piece);
    else if (task->move == MOVE_READ)
        read_step(task, piece);
    else
        write_step(task, piece);
    return true;
}

bool scsi_copy_piece(struct scsi_task *task, const struct copy_piece *piece, bool to_read_only)
{
    if (task->phase == COPY_PIECE) {
        if (!allowed(task, piece, to_read_only))
            return true;
        task->phase = COPY_MOVE;
        if (!enter(task, piece))
            return true;
    }
    if (step(task, piece))
        return true;
    task->position = 0;
    task->phase = COPY_PIECE;
    task->count++;
    return false;
}
