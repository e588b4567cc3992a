/*
 * The write hole, as far as a volume's consistency policy leaves it open: all that the model forgives stands here.
 *
 * Policies resync and bitmap. A crash between the writes of one row of a parity level leaves parity that is not that of the data, until the resync
 * has been there. Should a member be lost before that, its chunk of such a row is computed from what is there, and may
 * come out as bytes that were never written: not only the blocks that were under way, but all of the lost chunk. Other
 * rows, other chunks of the row, and levels of copies have no part in this.
 *
 * A row is in the hole (HOLE_OPEN) from a crash at which a change to it was under way, or had not been flushed when the
 * power went. Starting degraded then is refused (ASSEMBLY_DIRTY_DEGRADED), so what is forgiven are losses after the
 * start, and starts by force. And a write after the crash computes the redundancy of its columns anew, from all of the
 * row's data: there nothing is forgiven until the next crash, even if the resync has not been there.
 * A resync that a member did not take has been there when that member's loss is on disk, and no sooner: the next start
 * may take the member back with the redundancy it had, and what was in doubt is so again (world.c).
 *
 * Policy ppl. Starting degraded is not refused, and nothing is forgiven but blocks of the lost chunk that were being
 * written at the crash themselves, by a change of several chunks of their row.
 *
 * Policy journal. Nothing is forgiven.
 */
#include <string.h>

#include "core/check.h"
#include "raid/journal.h"
#include "tests/sim/model.h"
#include "tests/sim/simdisk.h"

static void rows_mark(struct model *m, uint64_t off, uint64_t len, uint8_t mark)
{
    for (uint64_t row = off / m->layout.row_data; row <= (off + len - 1) / m->layout.row_data; row++)
        m->hole[row] |= mark;
}

/* Does the change touch several chunks of a row? Then remember its sectors there. */
static void sectors_tear(struct model *m, uint64_t off, uint64_t len)
{
    uint64_t chunk = m->layout.spec.chunk, end = off + len;
    for (uint64_t at = off, next; at < end; at = next) {
        next = MIN(end, (at / m->layout.row_data + 1) * m->layout.row_data);
        if (at / chunk != (next - 1) / chunk)
            memset(m->torn + at / SIM_SECTOR, 1, (next - at) / SIM_SECTOR);
    }
}

void model_hole_crash(struct model *m, bool power)
{
    for (uint32_t i = 1; i < m->ops_count; i++) {
        struct model_op *op = &m->ops[i];
        if (op->side == MODEL_ABOVE || (op->answer != UINT64_MAX && (!power || op->settled)))
            continue;
        rows_mark(m, op->off, op->len, HOLE_OPEN);
        sectors_tear(m, op->off, op->len);
        op->settled = true;
    }
    memset(m->mended, 0, m->rows * (m->layout.spec.chunk / SIM_SECTOR));
    for (uint64_t row = 0; row < m->rows && power; row++)
        if (m->hole[row] & HOLE_SOFT)
            m->hole[row] |= HOLE_OPEN;
}

static uint8_t *row_mended(struct model *m, uint64_t row)
{
    return m->mended + row * (m->layout.spec.chunk / SIM_SECTOR);
}

void model_rows_mended(struct model *m, uint64_t off, uint64_t len)
{
    uint64_t chunk = m->layout.spec.chunk;
    for (uint64_t end = off + len; off < end; off += SIM_SECTOR)
        row_mended(m, off / m->layout.row_data)[off % chunk / SIM_SECTOR] = 1;
}

bool model_hole_is_mended(const struct model *m)
{
    uint64_t columns = m->layout.spec.chunk / SIM_SECTOR;
    for (uint64_t row = 0; row < m->rows; row++)
        if ((m->hole[row] & HOLE_OPEN) && memchr(m->mended + row * columns, 1, columns) != NULL)
            return true;
    return false;
}

static void row_untear(struct model *m, uint64_t row)
{
    uint64_t off = row * m->layout.row_data;
    memset(m->torn + off / SIM_SECTOR, 0, MIN(m->layout.row_data, m->size - off) / SIM_SECTOR);
}

void model_row_synced(struct model *m, uint64_t row, bool saved)
{
    if (m->hole[row] == 0)
        return;
    if (m->hole[row] & HOLE_OPEN)
        m->hole[row] = (uint8_t)((m->hole[row] & ~HOLE_OPEN) | HOLE_SOFT);
    if (saved)
        m->hole[row] &= (uint8_t)~HOLE_SOFT;
    if (m->hole[row] == 0)
        row_untear(m, row);
}

void model_row_broken(struct model *m, uint64_t off, uint64_t len, bool goes_on)
{
    rows_mark(m, off, len, goes_on ? HOLE_BROKEN : HOLE_OPEN);
    if (goes_on)
        return;
    sectors_tear(m, off, len);
    memset(m->mended, 0, m->rows * (m->layout.spec.chunk / SIM_SECTOR));
}

bool model_row_is_whole(const struct model *m, uint64_t row, bool synced)
{
    return synced && !(m->hole[row] & HOLE_BROKEN) && !m->unsure[row];
}

/* Of these bytes those whose redundancy nobody has computed since. */
static void hole_forget(struct model *m, uint64_t off, uint64_t len)
{
    const uint8_t *mended = row_mended(m, off / m->layout.row_data);
    for (uint64_t end = off + len; off < end; off += SIM_SECTOR)
        if (!mended[off % m->layout.spec.chunk / SIM_SECTOR])
            model_forget(m, off, SIM_SECTOR);
}

/* Of these bytes those that were being written. */
static void torn_forget(struct model *m, uint64_t off, uint64_t len)
{
    for (uint64_t end = off + len; off < end; off += SIM_SECTOR)
        if (m->torn[off / SIM_SECTOR])
            model_forget(m, off, SIM_SECTOR);
}

static void chunk_forget(struct model *m, uint64_t row, unsigned slot,
                         void (*forget)(struct model *, uint64_t, uint64_t))
{
    for (unsigned role = 0; role < m->layout.data; role++) {
        struct layout_place place;
        layout_place(&m->layout, row, role, &place);
        uint64_t off = row * m->layout.row_data + (uint64_t)role * m->layout.spec.chunk;
        if (place.slot == slot && off < m->size)
            forget(m, off, MIN((uint64_t)m->layout.spec.chunk, m->size - off));
    }
}

void model_chunk_lost(struct model *m, unsigned slot, uint64_t row, bool synced)
{
    if (!m->layout.parity || slot < m->first_slot || slot - m->first_slot >= m->layout.spec.members)
        return;
    bool open = (m->hole[row] & HOLE_OPEN) && !synced;
    if (m->hole[row] & HOLE_BROKEN)
        chunk_forget(m, row, slot - m->first_slot, model_forget);
    else if (open && !consistency_is_closed(m->consistency))
        chunk_forget(m, row, slot - m->first_slot, hole_forget);
    else if (open && m->consistency == SB_PPL)
        chunk_forget(m, row, slot - m->first_slot, torn_forget);
}
