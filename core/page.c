/* Page pool: see core/page.h. Free pages are a stack, so that pages warm in the CPU's cache are used again first. */
#include "core/page.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "core/check.h"

enum page_line_kind { LINE_SMALL, LINE_MIDDLE, LINE_LARGE, PAGE_LINES };

/* Parts of the pool: up to these a request is small, and middling; what is kept back, and what smaller ones are left
 * with. */
enum { SMALL_FRACTION = 256, MIDDLE_FRACTION = 32, SHARE_FRACTION = 8 };

/* So large a pool is touched at random, as a cache is: large pages of the processor's save it many look-ups. */
enum { LARGE_POOL = 16 << 20 };

TAILQ_HEAD(page_line, page_waiter);

struct page_pool {
    uint32_t count, free_count;
    uint32_t held[PAGE_LINES]; /* pages handed out to each kind */
    bool retired;
    uint32_t free; /* 1 + the first one's index; 0: none */
    struct page_line lines[PAGE_LINES];
    uint32_t waiting; /* in all lines: mostly nobody, and pages that come back are nobody's business */
    uint64_t tickets; /* how many have waited so far */
    char *memory;
    struct page_memory *lent; /* NULL: it is the pool's own */
    struct page pages[];
};

/* Its memory is given later. */
static struct page_pool *pool_create(uint32_t count)
{
    ASSERT(count > 0 && count < UINT32_MAX);
    struct page_pool *pool = calloc(1, sizeof *pool + count * sizeof pool->pages[0]);
    if (pool == NULL)
        return NULL;
    pool->count = pool->free_count = count;
    for (unsigned i = 0; i < PAGE_LINES; i++)
        TAILQ_INIT(&pool->lines[i]);
    return pool;
}

static void pool_fill(struct page_pool *pool, char *memory)
{
    pool->memory = memory;
    for (uint32_t i = pool->count; i-- > 0;) {
        struct page *page = &pool->pages[i];
        *page = (struct page){.data = memory + (size_t)i * PAGE_BYTES, .index = pool->free};
        pool->free = i + 1;
    }
}

struct page_pool *page_pool_create(uint32_t count)
{
    struct page_pool *pool = pool_create(count);
    if (pool == NULL)
        return NULL;
    void *memory = mmap(NULL, (size_t)count * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        free(pool);
        return NULL;
    }
    if ((size_t)count * PAGE_BYTES >= LARGE_POOL)
        madvise(memory, (size_t)count * PAGE_BYTES, MADV_HUGEPAGE); /* no harm if the kernel has none */
    pool_fill(pool, memory);
    return pool;
}

struct page_pool *page_pool_create_in(struct page_memory *memory, uint32_t count)
{
    struct page_pool *pool = pool_create(count);
    ASSERT((uintptr_t)memory->base % PAGE_BYTES == 0);
    if (pool == NULL)
        return NULL;
    pool->lent = memory;
    pool_fill(pool, memory->base);
    return pool;
}

void page_pool_destroy(struct page_pool *pool)
{
    ASSERT(pool->free_count == pool->count);
    for (unsigned i = 0; i < PAGE_LINES; i++)
        ASSERT(TAILQ_EMPTY(&pool->lines[i]));
    struct page_memory *lent = pool->lent;
    if (lent == NULL)
        munmap(pool->memory, (size_t)pool->count * PAGE_BYTES);
    free(pool);
    if (lent != NULL)
        lent->over(lent);
}

void page_pool_retire(struct page_pool *pool)
{
    for (unsigned i = 0; i < PAGE_LINES; i++)
        ASSERT(TAILQ_EMPTY(&pool->lines[i]));
    pool->retired = true;
    if (pool->free_count == pool->count)
        page_pool_destroy(pool);
}

static enum page_line_kind kind_of(const struct page_pool *pool, uint32_t count)
{
    if (count > pool->count / MIDDLE_FRACTION || pool->count < SMALL_FRACTION)
        return LINE_LARGE;
    return count > pool->count / SMALL_FRACTION ? LINE_MIDDLE : LINE_SMALL;
}

/* The first of the largest that wait behind this kind. */
static const struct page_waiter *larger_than(const struct page_pool *pool, enum page_line_kind kind)
{
    for (unsigned i = LINE_LARGE; i > kind; i--)
        if (!TAILQ_EMPTY(&pool->lines[i]))
            return TAILQ_FIRST(&pool->lines[i]);
    return NULL;
}

/*
 * What the others leave alone is kept for the small ones, and while larger ones wait the smaller ones have their share
 * and no more. One that wants more than can be had beside that (or a pool too small for kinds) knows no such manners.
 */
static bool fits(const struct page_pool *pool, uint32_t count)
{
    enum page_line_kind kind = kind_of(pool, count);
    uint32_t share = pool->count >= SMALL_FRACTION ? pool->count / SHARE_FRACTION : 0;
    const struct page_waiter *larger = pool->waiting > 0 ? larger_than(pool, kind) : NULL;
    if (larger != NULL) {
        bool modest = larger->count + LINE_LARGE * share <= pool->count;
        if (!modest || pool->held[kind] + count > share)
            return false;
    }
    uint32_t kept = kind != LINE_SMALL ? share - MIN(share, pool->held[LINE_SMALL]) : 0;
    return count + (count + share <= pool->count ? kept : 0) <= pool->free_count;
}

bool page_pool_take(struct page_pool *pool, struct page **out, uint32_t count)
{
    if (count > pool->free_count)
        return false;
    enum page_line_kind kind = kind_of(pool, count);
    for (uint32_t i = 0; i < count; i++) {
        struct page *page = &pool->pages[pool->free - 1];
        uint32_t next = page->index;
        page->index = pool->free - 1;
        page->refs = 1;
        page->kind = kind & 3;
        pool->free = next;
        out[i] = page;
    }
    pool->free_count -= count;
    pool->held[kind] += count;
    return true;
}

/* Larger ones do not overtake smaller ones either: there may be none but their pages. */
bool page_pool_get(struct page_pool *pool, struct page **out, uint32_t count)
{
    for (unsigned i = 0; pool->waiting > 0 && i <= (unsigned)kind_of(pool, count); i++)
        if (!TAILQ_EMPTY(&pool->lines[i]))
            return false;
    return fits(pool, count) && page_pool_take(pool, out, count);
}

void page_pool_wait(struct page_pool *pool, struct page_waiter *waiter)
{
    ASSERT(!waiter->waiting && waiter->count <= pool->count);
    waiter->waiting = true;
    pool->waiting++;
    waiter->ticket = pool->tickets++;
    TAILQ_INSERT_TAIL(&pool->lines[kind_of(pool, waiter->count)], waiter, link);
}

static void leave_line(struct page_pool *pool, struct page_waiter *waiter)
{
    waiter->waiting = false;
    pool->waiting--;
    TAILQ_REMOVE(&pool->lines[kind_of(pool, waiter->count)], waiter, link);
}

uint64_t page_pool_mark(const struct page_pool *pool)
{
    return pool->tickets;
}

bool page_pool_waited_since(const struct page_pool *pool, uint64_t mark, const struct page_waiter *but)
{
    for (unsigned i = 0; i < PAGE_LINES; i++) {
        const struct page_waiter *first = TAILQ_FIRST(&pool->lines[i]);
        if (first != NULL && first == but)
            first = TAILQ_NEXT(first, link);
        if (first != NULL && first->ticket < mark)
            return true;
    }
    return false;
}

struct page_pool *page_pool_of(const struct page *page)
{
    const struct page *first = page - page->index;
    return (struct page_pool *)(void *)((char *)(uintptr_t)first - offsetof(struct page_pool, pages));
}

uint32_t page_pool_size(const struct page_pool *pool)
{
    return pool->count;
}

uint32_t page_pool_free(const struct page_pool *pool)
{
    return pool->free_count;
}

static void page_release(struct page *page)
{
    ASSERT(page->refs > 0);
    if (--page->refs > 0)
        return;
    struct page_pool *pool = page_pool_of(page);
    uint32_t index = page->index;
    page->index = pool->free;
    pool->free = index + 1;
    pool->free_count++;
    pool->held[page->kind]--;
}

/* Within a line first come, first served; nobody overtakes a waiter of his line that wants more than there is. */
static void wake_line(struct page_pool *pool, struct page_line *line)
{
    struct page_waiter *waiter;
    while ((waiter = TAILQ_FIRST(line)) != NULL && fits(pool, waiter->count)) {
        uint32_t before = pool->free_count;
        leave_line(pool, waiter);
        waiter->ready(waiter);
        ASSERT(pool->free_count <= before);
    }
}

/* After pages came back: it may be the last thing that happens to the pool. */
static void wake_waiters(struct page_pool *pool)
{
    if (pool->retired) {
        if (pool->free_count == pool->count)
            page_pool_destroy(pool);
        return;
    }
    if (pool->waiting == 0)
        return;
    for (unsigned i = 0; i < PAGE_LINES; i++)
        wake_line(pool, &pool->lines[i]);
    for (unsigned i = 0; i < LINE_LARGE; i++) /* with no larger one waiting they may have more */
        wake_line(pool, &pool->lines[i]);
}

/* Whoever stood behind it may be content with less. */
void page_pool_wait_cancel(struct page_pool *pool, struct page_waiter *waiter)
{
    if (!waiter->waiting)
        return;
    leave_line(pool, waiter);
    wake_waiters(pool);
}

void page_put(struct page *page)
{
    struct page_pool *pool = page_pool_of(page);
    page_release(page);
    wake_waiters(pool);
}

/* From the last to the first, so that the next page_pool_get() hands them out in memory order again. */
void page_put_all(struct page **pages, uint32_t count)
{
    if (count == 0)
        return;
    struct page_pool *pool = page_pool_of(pages[count - 1]);
    for (uint32_t i = count; i-- > 0;) {
        if (page_pool_of(pages[i]) != pool) { /* some were replaced: core/blkdev.h, 5 */
            wake_waiters(pool);
            pool = page_pool_of(pages[i]);
        }
        page_release(pages[i]);
        pages[i] = NULL;
    }
    wake_waiters(pool);
}

/* One step of a walk over a page array: where the next bytes stand, and how many lie together. */
static char *span_at(struct page *const *pages, uint64_t page_off, uint64_t len, uint64_t *span)
{
    uint64_t within = page_off % PAGE_BYTES;
    *span = MIN(len, PAGE_BYTES - within);
    return (char *)pages[page_off / PAGE_BYTES]->data + within;
}

void pages_copy_in(struct page **pages, uint64_t page_off, const void *from, uint64_t len)
{
    for (uint64_t done = 0, span; done < len; done += span) {
        char *at = span_at(pages, page_off + done, len - done, &span);
        memcpy(at, (const char *)from + done, span);
    }
}

void pages_copy_out(void *to, struct page *const *pages, uint64_t page_off, uint64_t len)
{
    for (uint64_t done = 0, span; done < len; done += span) {
        const char *at = span_at(pages, page_off + done, len - done, &span);
        memcpy((char *)to + done, at, span);
    }
}

void pages_zero(struct page **pages, uint64_t page_off, uint64_t len)
{
    for (uint64_t done = 0, span; done < len; done += span) {
        char *at = span_at(pages, page_off + done, len - done, &span);
        memset(at, 0, span);
    }
}

int pages_iovec(struct page *const *pages, uint64_t page_off, uint64_t len, struct iovec *out, int max,
                uint64_t *done_len)
{
    int n = 0;
    uint64_t done = 0;
    for (uint64_t span; done < len; done += span) {
        char *at = span_at(pages, page_off + done, len - done, &span);
        if (n > 0 && (char *)out[n - 1].iov_base + out[n - 1].iov_len == at) {
            out[n - 1].iov_len += span;
            continue;
        }
        if (n == max)
            break;
        out[n++] = (struct iovec){at, span};
    }
    *done_len = done;
    return n;
}
