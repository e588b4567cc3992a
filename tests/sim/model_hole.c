/*
 * The write hole, as far as the consistency policy "resync" leaves it open: all that the model forgives stands here.
 *
 * A crash between the writes of one row of a parity level leaves parity that is not that of the data, until the resync
 * has been there. Should a member be lost before that, its chunk of such a row is computed from what is there, and may
 * come out as bytes that were never written: not only the blocks that were under way, but all of the lost chunk. Other
 * rows, other chunks of the row, and levels of copies have no part in this.
 *
 * A row is in the hole (HOLE_OPEN) from a crash at which a change to it was under way, or had not been flushed when the
 * power went. Starting degraded then is refused (ASSEMBLY_DIRTY_DEGRADED), so what is forgiven are losses after the
 * start, and starts by force.
 */
#include "core/check.h"
#include "tests/sim/model.h"
#include "tests/sim/simdisk.h"

static void rows_mark(struct model *m, uint64_t off, uint64_t len, uint8_t mark)
{
    for (uint64_t row = off / m->layout.row_data; row <= (off + len - 1) / m->layout.row_data; row++)
        m->hole[row] |= mark;
}

void model_hole_crash(struct model *m, bool power)
{
    for (uint32_t i = 1; i < m->ops_count; i++) {
        struct model_op *op = &m->ops[i];
        if (op->answer != UINT64_MAX && (!power || op->settled))
            continue;
        rows_mark(m, op->off, op->len, HOLE_OPEN);
        op->settled = true;
    }
    for (uint64_t row = 0; row < m->rows && power; row++)
        if (m->hole[row] & HOLE_SOFT)
            m->hole[row] |= HOLE_OPEN;
}

void model_row_synced(struct model *m, uint64_t row, bool saved)
{
    if (m->hole[row] & HOLE_OPEN)
        m->hole[row] = (uint8_t)((m->hole[row] & ~HOLE_OPEN) | HOLE_SOFT);
    if (saved)
        m->hole[row] &= (uint8_t)~HOLE_SOFT;
}

void model_row_broken(struct model *m, uint64_t off, uint64_t len, bool goes_on)
{
    rows_mark(m, off, len, goes_on ? HOLE_BROKEN : HOLE_OPEN);
}

bool model_row_is_whole(const struct model *m, uint64_t row, bool synced)
{
    return synced && !(m->hole[row] & HOLE_BROKEN);
}

static void chunk_forget(struct model *m, uint64_t row, unsigned slot)
{
    for (unsigned role = 0; role < m->layout.data; role++) {
        struct layout_place place;
        layout_place(&m->layout, row, role, &place);
        uint64_t off = row * m->layout.row_data + (uint64_t)role * m->layout.spec.chunk;
        if (place.slot == slot && off < m->size)
            model_forget(m, off, MIN((uint64_t)m->layout.spec.chunk, m->size - off));
    }
}

void model_chunk_lost(struct model *m, unsigned slot, uint64_t row, bool synced)
{
    if (!m->layout.parity || slot < m->first_slot || slot - m->first_slot >= m->layout.spec.members)
        return;
    if ((m->hole[row] & HOLE_BROKEN) || ((m->hole[row] & HOLE_OPEN) && !synced))
        chunk_forget(m, row, slot - m->first_slot);
}
