/* Page pool: see core/page.h. Free pages are a stack, so that pages warm in the CPU's cache are used again first. */
#include "core/page.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "core/check.h"

/* Smaller than this part of the pool: small. And what is kept back for the small. */
enum { SMALL_FRACTION = 256, RESERVE_FRACTION = 8 };

TAILQ_HEAD(page_line, page_waiter);

struct page_pool {
    uint32_t count, free_count;
    uint32_t small_count; /* pages handed out to small requests */
    bool retired;
    struct page *free;
    struct page_line lines[PAGE_LINES];
    uint32_t left[PAGE_LINES]; /* how often somebody has left the line, served or not */
    char *memory;
    struct page pages[];
};

struct page_pool *page_pool_create(uint32_t count)
{
    ASSERT(count > 0);
    struct page_pool *pool = calloc(1, sizeof *pool + count * sizeof pool->pages[0]);
    if (pool == NULL)
        return NULL;
    pool->memory = mmap(NULL, (size_t)count * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pool->memory == MAP_FAILED) {
        free(pool);
        return NULL;
    }
    pool->count = pool->free_count = count;
    for (unsigned i = 0; i < PAGE_LINES; i++)
        TAILQ_INIT(&pool->lines[i]);
    for (uint32_t i = count; i-- > 0;) {
        struct page *page = &pool->pages[i];
        *page = (struct page){.data = pool->memory + (size_t)i * PAGE_BYTES, .pool = pool, .next_free = pool->free};
        pool->free = page;
    }
    return pool;
}

void page_pool_destroy(struct page_pool *pool)
{
    ASSERT(pool->free_count == pool->count);
    for (unsigned i = 0; i < PAGE_LINES; i++)
        ASSERT(TAILQ_EMPTY(&pool->lines[i]));
    munmap(pool->memory, (size_t)pool->count * PAGE_BYTES);
    free(pool);
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
    return count <= pool->count / SMALL_FRACTION ? PAGE_LINE_SMALL : PAGE_LINE_LARGE;
}

/*
 * Large ones leave alone what is kept back; while some wait, small ones take nothing else. One that wants more than can
 * be had beside that (or a pool too small for two kinds) knows no such manners.
 */
static bool fits(const struct page_pool *pool, uint32_t count)
{
    const struct page_waiter *large = TAILQ_FIRST(&pool->lines[PAGE_LINE_LARGE]);
    uint32_t reserve = pool->count >= SMALL_FRACTION ? pool->count / RESERVE_FRACTION : 0;
    if (kind_of(pool, count) == PAGE_LINE_SMALL) {
        bool modest = large == NULL || large->count + reserve <= pool->count;
        return count <= pool->free_count && (large == NULL || (modest && pool->small_count + count <= reserve));
    }
    uint32_t kept = reserve - MIN(reserve, pool->small_count);
    return count + (count + reserve <= pool->count ? kept : 0) <= pool->free_count;
}

bool page_pool_take(struct page_pool *pool, struct page **out, uint32_t count)
{
    if (count > pool->free_count)
        return false;
    bool small = kind_of(pool, count) == PAGE_LINE_SMALL;
    for (uint32_t i = 0; i < count; i++) {
        struct page *page = pool->free;
        pool->free = page->next_free;
        page->next_free = NULL;
        page->refs = 1;
        page->small = small;
        out[i] = page;
    }
    pool->free_count -= count;
    pool->small_count += small ? count : 0;
    return true;
}

/* Large ones do not overtake small ones either: there may be none but their pages. */
bool page_pool_get(struct page_pool *pool, struct page **out, uint32_t count)
{
    enum page_line_kind kind = kind_of(pool, count);
    bool first = TAILQ_EMPTY(&pool->lines[PAGE_LINE_SMALL]) &&
                 (kind == PAGE_LINE_SMALL || TAILQ_EMPTY(&pool->lines[PAGE_LINE_LARGE]));
    return first && fits(pool, count) && page_pool_take(pool, out, count);
}

void page_pool_wait(struct page_pool *pool, struct page_waiter *waiter)
{
    ASSERT(!waiter->waiting && waiter->count <= pool->count);
    waiter->waiting = true;
    TAILQ_INSERT_TAIL(&pool->lines[kind_of(pool, waiter->count)], waiter, link);
}

static void leave_line(struct page_pool *pool, struct page_waiter *waiter)
{
    enum page_line_kind kind = kind_of(pool, waiter->count);
    waiter->waiting = false;
    pool->left[kind]++;
    TAILQ_REMOVE(&pool->lines[kind], waiter, link);
}

bool page_pool_stuck(const struct page_pool *pool, struct page_pool_mark *mark)
{
    bool stuck = false;
    for (unsigned i = 0; i < PAGE_LINES; i++) {
        bool waiting = !TAILQ_EMPTY(&pool->lines[i]);
        stuck = stuck || (waiting && mark->waiting[i] && mark->left[i] == pool->left[i]);
        mark->waiting[i] = waiting;
        mark->left[i] = pool->left[i];
    }
    return stuck;
}

bool page_pool_waited_for(const struct page_pool *pool, const struct page_waiter *but)
{
    for (unsigned i = 0; i < PAGE_LINES; i++) {
        const struct page_waiter *first = TAILQ_FIRST(&pool->lines[i]);
        if (first != NULL && (first != but || TAILQ_NEXT(first, link) != NULL))
            return true;
    }
    return false;
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
    page->next_free = page->pool->free;
    page->pool->free = page;
    page->pool->free_count++;
    page->pool->small_count -= page->small;
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
    wake_line(pool, &pool->lines[PAGE_LINE_SMALL]);
    wake_line(pool, &pool->lines[PAGE_LINE_LARGE]);
    wake_line(pool, &pool->lines[PAGE_LINE_SMALL]); /* with no large one waiting they may have more */
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
    page_release(page);
    wake_waiters(page->pool);
}

/* From the last to the first, so that the next page_pool_get() hands them out in memory order again. */
void page_put_all(struct page **pages, uint32_t count)
{
    if (count == 0)
        return;
    struct page_pool *pool = pages[count - 1]->pool;
    for (uint32_t i = count; i-- > 0;) {
        if (pages[i]->pool != pool) { /* some were replaced: core/blkdev.h, 5 */
            wake_waiters(pool);
            pool = pages[i]->pool;
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
