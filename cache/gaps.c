/*
 * A line of which parts are not here, over a volume with parity: what is missing is read, then all of it goes as full rows.
 *
 *      dirty runs, one by one      each reads and writes data and parity: disks are asked four times, at least
 *      gaps read, then full rows   each disk is asked twice, for its whole part
 *
 * What costs less is done; asking a disk costs as much as so many bytes. So a line leaves at the same price whether few
 * or many of its blocks are dirty, and neighbours that leave one after the other are read and written without a seek:
 * the longer they could wait, the more a write-back cache is worth.
 *
 * G1  The range is held from the beginning: nothing below changes that was read. What is dirty stays dirty, and may be
 *     written into, until the row is sent: it goes as it is then.
 * G2  What was read stays in pages that are no block's, 1/8 of the cache at most, and is put when the row is below.
 * G3  If a block has left meanwhile, or something was written that is not in the log yet, the line is as it was. If it
 *     cannot be read, its runs go one by one from then on: that bytes between them are lost does not concern them.
 */
#include "cache/cache_impl.h"

enum { SHARE = 8, LINES_AT_A_TIME = 8, ASK_ROTATIONAL = 256 * 1024, ASK = 64 * 1024 };

static void gaps_done(struct blk_req *child);

static bool is_cheaper(const struct cache *c, unsigned runs)
{
    uint64_t part = c->below->info.row_part, ask = c->below->info.rotational ? ASK_ROTATIONAL : ASK;
    uint64_t parts = (uint64_t)c->lines.blocks * PAGE_BYTES / part;
    return 4 * runs * ask > (2 * parts + 1) * (ask + part);
}

static bool is_row(const struct cache *c, const struct line *line)
{
    const struct blk_info *info = &c->below->info;
    uint64_t bytes = (uint64_t)c->lines.blocks * PAGE_BYTES;
    return info->row_part != 0 && bytes % info->optimal_io == 0 &&
           (info->max_request == 0 || bytes <= info->max_request) && (line->number + 1) * bytes <= c->dev.info.size;
}

/* Of the blocks at hand, from the first to the last that is not here as a whole; count 0: all are. */
static void gaps_find(const struct cache *c, uint32_t *first, uint32_t *count)
{
    uint32_t end = 0;
    *first = 0;
    for (uint32_t i = 0; i < c->lines.blocks; i++) {
        if (c->row[i] != NULL && c->row[i]->valid == BLOCK_WHOLE)
            continue;
        *first = end == 0 ? i : *first;
        end = i + 1;
    }
    *count = end - *first;
}

static bool pages_take(struct cache *c, struct page **pages, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        pages[i] = blocks_page(&c->blocks, false);
        if (pages[i] != NULL)
            continue;
        page_put_all(pages, i);
        return false;
    }
    return true;
}

enum gaps gaps_read(struct cache *c, struct line *line, unsigned runs)
{
    uint32_t first, count, most = c->blocks.count / SHARE;
    if (line->gappy || !is_row(c, line) || !is_cheaper(c, runs))
        return GAPS_LEFT;
    gaps_find(c, &first, &count);
    if (count == 0) {
        destage_write(c, line, destage_begin(c, line, 0, c->lines.blocks * BLOCK_SECTORS));
        return GAPS_READ;
    }
    if (c->gap_pages + count > most)
        return most >= LINES_AT_A_TIME * c->lines.blocks ? GAPS_LATER : GAPS_LEFT;
    if (!pages_take(c, LIST_FIRST(&c->destages_free)->pages + first, count)) {
        destage_row(c, line); /* some of it may have left for them */
        return GAPS_LEFT;
    }
    struct destage *d = destage_begin(c, line, 0, c->lines.blocks * BLOCK_SECTORS);
    d->gap_first = first;
    d->gap_count = count;
    c->gap_pages += count;
    d->req = (struct blk_req){.op = BLK_READ,
                              .off = d->off + (uint64_t)first * PAGE_BYTES,
                              .len = (uint64_t)count * PAGE_BYTES,
                              .pages = d->pages + first,
                              .done = gaps_done};
    blk_submit(c->below, &d->req);
    return GAPS_READ;
}

/* Of a block that is here in parts, these belong over what was read. False: there is no page to do it in. */
static bool part_merge(struct cache *c, struct page **page, const struct block *b)
{
    if ((*page)->refs > 1) { /* core/blkdev.h, 5: others have it too */
        struct page *own = blocks_page(&c->blocks, false);
        if (own == NULL)
            return false;
        sectors_copy(own, *page, BLOCK_WHOLE);
        page_put(*page);
        *page = own;
    }
    sectors_copy(*page, b->page, b->valid);
    return true;
}

static bool parts_merge(struct cache *c, struct destage *d)
{
    for (uint32_t i = d->gap_first; i < d->gap_first + d->gap_count; i++) {
        const struct block *b = block_find(&c->blocks, d->line * c->lines.blocks + i);
        if (b != NULL && b->valid != 0 && b->valid != BLOCK_WHOLE && !part_merge(c, &d->pages[i], b))
            return false;
    }
    return true;
}

/* Is every block of the line here, or among those that were read? Looked at last: merging may have had blocks leave. */
static bool is_whole(struct cache *c, const struct line *line, const struct destage *d)
{
    uint32_t first, count;
    destage_row(c, line);
    gaps_find(c, &first, &count);
    return is_row(c, line) && (count == 0 || (first >= d->gap_first && first + count <= d->gap_first + d->gap_count));
}

static void gaps_done(struct blk_req *child)
{
    struct destage *d = container_of(child, struct destage, req);
    struct cache *c = d->cache;
    struct line *line = line_find(&c->lines, d->line);
    bool may = child->status == BLK_OK && line->dirty > 0 && commit_lets_leave(c, line);
    if (may && parts_merge(c, d) && is_whole(c, line, d)) {
        destage_write(c, line, d);
        line_settle(&c->lines, line);
        return;
    }
    line->gappy = line->gappy || child->status != BLK_OK;
    line->leaving--;
    line_settle(&c->lines, line);
    page_put_all(d->pages + d->gap_first, d->gap_count);
    destage_end(c, d);
    destage_over(c);
}
