/*
 * Pages of 4 KiB from a bounded pool: where all data lives between the socket and the disk.
 *
 * Data of a request is an array of page pointers. Byte x of a device stands in a page at offset x % PAGE_BYTES: pages
 * are aligned like the device, so a page can move between layers without a copy, and ragged edges of a request are
 * simply parts of its first and last page.
 *
 * A page is immutable once published (given to a second owner): who wants to change it takes a new one. References are
 * counted; a page goes back to its pool with the last page_put(). A pool belongs to one loop.
 *
 * The pool never grows. page_pool_get() takes all pages asked for or none; who gets none waits in line with
 * page_pool_wait(), holding nothing, and so a target that finds no page stops reading its socket.
 *
 * There are three lines, by what is asked for: up to 1/256 of the pool, up to 1/32, and more. 1/8 of the pool is kept
 * back for the smallest, so a few peers that announce megabytes and then send nothing do not keep the others from
 * reading a block. What comes back goes to the smaller ones first; but while somebody waits in a line of larger ones,
 * each smaller kind has no more than 1/8 of the pool, so that the larger is served in the end. (A pool of less than 256
 * pages has one line, and nothing is kept back.)
 */
#ifndef CORE_PAGE_H
#define CORE_PAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

enum { PAGE_BYTES = 4096 };

struct page_pool;

struct page {
    void *data;
    uint32_t index;     /* in its pool; while it is free there: 1 + the next free one's, or 0 */
    uint32_t refs : 30; /* 0: it is free */
    uint32_t kind : 2;  /* of the request that it was handed out to: enum page_line_kind */
};

/* Somebody waiting for pages. Embedded; on the list until `ready` runs or page_pool_wait_cancel(). */
struct page_waiter {
    TAILQ_ENTRY(page_waiter) link;
    uint32_t count;                      /* pages wanted; at most the pool's size */
    uint64_t ticket;                     /* later ones have higher ones */
    void (*ready)(struct page_waiter *); /* called from page_put(): must only take pages or defer, never free pages */
    bool waiting;
};

/* Memory that is lent to a pool, aligned to a page. */
struct page_memory {
    void *base;
    void (*over)(struct page_memory *); /* the pool is no more */
};

/* NULL if memory is short. One mapping, page-aligned, so that neighbours in the pool are neighbours in memory. */
struct page_pool *page_pool_create(uint32_t count);
/* Page i of it is the i-th of this memory; what stands there is not touched. page_pool_take() begins with the first. */
struct page_pool *page_pool_create_in(struct page_memory *memory, uint32_t count);
/* All pages must be back. */
void page_pool_destroy(struct page_pool *pool);
/* Nobody will ask it for pages any more: it is no more when the last one is back. For pages that a disk which does not
 * answer may still hold (raid/patience.h). */
void page_pool_retire(struct page_pool *pool);

/* Fill out[0..count) with pages of one reference each, or take none and return false. Not while others wait in line. */
bool page_pool_get(struct page_pool *pool, struct page **out, uint32_t count);
/* As page_pool_get, but for a waiter in its ready(). */
bool page_pool_take(struct page_pool *pool, struct page **out, uint32_t count);
void page_pool_wait(struct page_pool *pool, struct page_waiter *waiter);
void page_pool_wait_cancel(struct page_pool *pool, struct page_waiter *waiter);

/* A moment: who waits later is behind it. */
uint64_t page_pool_mark(const struct page_pool *pool);
/* Does anybody but `but` wait who waited at that moment? PAGE_POOL_NOW: who waits at all? */
#define PAGE_POOL_NOW UINT64_MAX
bool page_pool_waited_since(const struct page_pool *pool, uint64_t mark, const struct page_waiter *but);

struct page_pool *page_pool_of(const struct page *page); /* of one that is not free */
uint32_t page_pool_size(const struct page_pool *pool);
uint32_t page_pool_free(const struct page_pool *pool);

static inline void page_ref(struct page *page)
{
    page->refs++;
}
void page_put(struct page *page);
void page_put_all(struct page **pages, uint32_t count);

/* Pages touched by `len` bytes from offset `off` of a device. */
static inline uint32_t page_count_for(uint64_t off, uint64_t len)
{
    return (uint32_t)((off % PAGE_BYTES + len + PAGE_BYTES - 1) / PAGE_BYTES);
}

/*
 * Copies and zeroes within a page array; `page_off` is the offset in pages[0] at which byte 0 stands, and may exceed
 * one page.
 */
void pages_copy_in(struct page **pages, uint64_t page_off, const void *from, uint64_t len);
void pages_copy_out(void *to, struct page *const *pages, uint64_t page_off, uint64_t len);
void pages_zero(struct page **pages, uint64_t page_off, uint64_t len);

struct iovec;
/*
 * The bytes [page_off, page_off + len) of a page array as an iovec list, neighbours merged. Returns how many entries
 * were written; stops early when `max` is reached, *done_len tells how many bytes the entries cover.
 */
int pages_iovec(struct page *const *pages, uint64_t page_off, uint64_t len, struct iovec *out, int max,
                uint64_t *done_len);

#endif
