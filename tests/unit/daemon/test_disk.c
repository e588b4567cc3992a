/* Real files under $TMPDIR, served by each engine; the same table of cases for all. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/disk.h"
#include "daemon/disk_internal.h"
#include "daemon/reactor.h"
#include "tests/unit/lib/testloop.h"

static const char *const engines[] = {"uring", "threads", "inline"};

enum { FILE_BYTES = 48 << 20, REQUEST_PAGES = 10241 };

struct place {
    char directory[128], path[160];
};

static void place_init(struct place *p, off_t size)
{
    const char *base = getenv("TMPDIR");
    text_format(p->directory, sizeof p->directory, "%s/corbel-disk-XXXXXX", base != NULL ? base : "/tmp");
    cr_assert_not_null(mkdtemp(p->directory));
    text_format(p->path, sizeof p->path, "%s/disk", p->directory);
    int fd = open(p->path, O_RDWR | O_CREAT | O_EXCL, 0600);
    cr_assert(fd >= 0 && ftruncate(fd, size) == 0);
    close(fd);
}

static void place_fini(struct place *p)
{
    unlink(p->path);
    rmdir(p->directory);
}

static struct reactor *new_reactor(uint32_t pages)
{
    char why[200] = "";
    struct reactor_options options = {.name = "test", .pages = pages};
    struct reactor *r = reactor_create(&options, why, sizeof why);
    cr_assert_not_null(r, "%s", why);
    return r;
}

/* A kernel without io_uring leaves two engines to test. */
static bool can_have(struct reactor *r, const char *engine)
{
    return strcmp(engine, "uring") != 0 || reactor_has_uring(r);
}

static struct blkdev *open_with(struct reactor *r, const char *path, const char *engine)
{
    char why[300] = "";
    struct disk_options options = {.engine = engine};
    struct blkdev *dev = disk_open(r, path, &options, why, sizeof why);
    cr_assert_not_null(dev, "%s", why);
    cr_expect_str_eq(disk_engine(dev), engine);
    return dev;
}

/* --- one request, and the wait for it --- */

struct call {
    struct blk_req req;
    struct reactor *reactor;
    struct task closed;
    struct page *pages[REQUEST_PAGES];
    unsigned *left; /* of several: the last one stops the reactor */
};

static void call_done(struct blk_req *req)
{
    struct call *c = container_of(req, struct call, req);
    if (--*c->left == 0)
        reactor_stop(c->reactor);
}

static void call_closed(struct task *task)
{
    reactor_stop(container_of(task, struct call, closed)->reactor);
}

static void close_disk(struct blkdev *dev)
{
    struct call c = {.reactor = reactor_of(dev->loop), .closed.run = call_closed};
    blk_close(dev, &c.closed);
    reactor_run(c.reactor);
}

static struct blk_req io(struct blkdev *dev, enum blk_op op, unsigned flags, uint64_t off, void *buffer, uint64_t len)
{
    struct call *c = calloc(1, sizeof *c);
    unsigned left = 1;
    uint32_t count = blk_op_has_data(op) ? page_count_for(off, len) : 0;
    cr_assert(c != NULL && count <= REQUEST_PAGES && page_pool_get(dev->loop->pages, c->pages, count));
    c->reactor = reactor_of(dev->loop);
    c->left = &left;
    c->req = (struct blk_req){.op = op, .flags = flags, .off = off, .len = len, .pages = c->pages, .done = call_done};
    if (op == BLK_WRITE)
        pages_copy_in(c->pages, off % PAGE_BYTES, buffer, len);
    blk_submit(dev, &c->req);
    reactor_run(c->reactor);
    if (op == BLK_READ && c->req.status == BLK_OK)
        pages_copy_out(buffer, c->pages, off % PAGE_BYTES, len);
    page_put_all(c->pages, count);
    struct blk_req result = c->req;
    free(c);
    return result;
}

static bool all_are(const uint8_t *bytes, uint64_t len, uint8_t value)
{
    for (uint64_t i = 0; i < len; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

static void read_file(const char *path, uint64_t off, uint8_t *out, uint64_t len)
{
    int fd = open(path, O_RDONLY);
    cr_assert(fd >= 0 && pread(fd, out, len, (off_t)off) == (ssize_t)len);
    close(fd);
}

/* --- the cases --- */

static const struct {
    const char *what;
    uint64_t off, len; /* in blocks of the disk, so that 4 KiB disks pass too */
    unsigned flags;
} transfers[] = {
    {"one block", 0, 1, 0},
    {"a block in the middle of a page", 3, 1, 0},
    {"ragged over three pages", 5, 15, 0},
    {"durable", 9, 8, BLK_FUA},
    {"ragged and durable", 11, 33, BLK_FUA},
    {"one megabyte, off by one block", 1, 2048, 0},
    {"the last block", FILE_BYTES / 512 - 1, 1, 0},
};

static void check_transfer(struct blkdev *dev, const char *path, unsigned i)
{
    uint64_t unit = dev->info.logical_block, last = dev->info.size / unit - 1;
    uint64_t off = MIN(transfers[i].off, last) * unit, len = transfers[i].len * unit;
    uint8_t *sent = malloc(len), *got = calloc(1, len);
    const char *engine = disk_engine(dev), *what = transfers[i].what;
    test_fill(sent, len, i + 1);
    cr_expect_eq(io(dev, BLK_WRITE, transfers[i].flags, off, sent, len).status, BLK_OK, "%s: write %s", engine, what);
    cr_expect_eq(io(dev, BLK_READ, 0, off, got, len).status, BLK_OK, "%s: read %s", engine, what);
    cr_expect_eq(memcmp(sent, got, len), 0, "%s: bytes of %s", engine, what);
    memset(got, 0, len);
    read_file(path, off, got, len);
    cr_expect_eq(memcmp(sent, got, len), 0, "%s: the file after %s", engine, what);
    free(sent);
    free(got);
}

Test(disk, every_engine_moves_the_bytes_of_every_shape, .timeout = 60)
{
    struct reactor *r = new_reactor(REQUEST_PAGES);
    for (unsigned e = 0; e < ARRAY_LENGTH(engines); e++) {
        struct place place;
        if (!can_have(r, engines[e]))
            continue;
        place_init(&place, FILE_BYTES);
        struct blkdev *dev = open_with(r, place.path, engines[e]);
        cr_expect_eq(dev->info.size, FILE_BYTES);
        for (unsigned i = 0; i < ARRAY_LENGTH(transfers); i++)
            check_transfer(dev, place.path, i);
        cr_expect_eq(io(dev, BLK_FLUSH, 0, 0, NULL, 0).status, BLK_OK, "%s: flush", engines[e]);
        close_disk(dev);
        place_fini(&place);
    }
    reactor_destroy(r);
}

/* Pages that do not lie together in memory: more pieces than one system call takes. */
static void scatter(struct page **pages, uint32_t count)
{
    for (uint32_t i = 0; i + 1 < count / 2; i += 2) {
        struct page *swap = pages[i];
        pages[i] = pages[count - 1 - i];
        pages[count - 1 - i] = swap;
    }
}

static enum blk_status io_scattered(struct blkdev *dev, enum blk_op op, uint64_t off, uint8_t *bytes, uint64_t len)
{
    struct call *c = calloc(1, sizeof *c);
    unsigned left = 1;
    uint32_t count = page_count_for(off, len);
    cr_assert(c != NULL && page_pool_get(dev->loop->pages, c->pages, count));
    scatter(c->pages, count);
    c->reactor = reactor_of(dev->loop);
    c->left = &left;
    c->req = (struct blk_req){.op = op, .off = off, .len = len, .pages = c->pages, .done = call_done};
    if (op == BLK_WRITE)
        pages_copy_in(c->pages, off % PAGE_BYTES, bytes, len);
    blk_submit(dev, &c->req);
    reactor_run(c->reactor);
    pages_copy_out(bytes, c->pages, off % PAGE_BYTES, len);
    page_put_all(c->pages, count);
    enum blk_status status = c->req.status;
    free(c);
    return status;
}

Test(disk, forty_megabytes_with_ragged_edges_are_one_request, .timeout = 60)
{
    const uint64_t len = 40 * MIB;
    struct reactor *r = new_reactor(REQUEST_PAGES);
    uint8_t *sent = malloc(len), *got = malloc(len);
    test_fill(sent, len, 5);
    for (unsigned e = 0; e < ARRAY_LENGTH(engines); e++) {
        struct place place;
        if (!can_have(r, engines[e]))
            continue;
        place_init(&place, FILE_BYTES);
        struct blkdev *dev = open_with(r, place.path, engines[e]);
        uint64_t off = 3 * dev->info.logical_block;
        cr_expect_eq(io_scattered(dev, BLK_WRITE, off, sent, len), BLK_OK, "%s", engines[e]);
        memset(got, 0, len);
        cr_expect_eq(io_scattered(dev, BLK_READ, off, got, len), BLK_OK, "%s", engines[e]);
        cr_expect_eq(memcmp(sent, got, len), 0, "%s", engines[e]);
        close_disk(dev);
        place_fini(&place);
    }
    free(sent);
    free(got);
    reactor_destroy(r);
}

static const struct {
    enum blk_op op;
    unsigned flags;
    bool frees; /* the file has fewer blocks afterwards */
} wipes[] = {{BLK_DISCARD, 0, true},
             {BLK_WRITE_ZEROES, 0, true},
             {BLK_WRITE_ZEROES, BLK_NO_UNMAP, false},
             {BLK_WRITE_ZEROES, BLK_NO_UNMAP | BLK_FUA, false}};

static blkcnt_t blocks_of(const char *path)
{
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    return st.st_blocks;
}

static void check_wipe(struct blkdev *dev, const char *path, unsigned i)
{
    const uint64_t len = 256 * KIB, from = 4096 + 512 * 8, wiped = 128 * KIB;
    uint8_t *bytes = malloc(len);
    memset(bytes, 0x77, len);
    cr_assert_eq(io(dev, BLK_WRITE, BLK_FUA, 0, bytes, len).status, BLK_OK);
    blkcnt_t before = blocks_of(path);
    cr_expect_eq(io(dev, wipes[i].op, wipes[i].flags, from, NULL, wiped).status, BLK_OK, "%s, wipe %u",
                 disk_engine(dev), i);
    cr_expect_eq(blocks_of(path) < before, wipes[i].frees, "%s: space after wipe %u", disk_engine(dev), i);
    cr_assert_eq(io(dev, BLK_READ, 0, 0, bytes, len).status, BLK_OK);
    cr_expect(all_are(bytes, from, 0x77) && all_are(bytes + from, wiped, 0) &&
                  all_are(bytes + from + wiped, len - from - wiped, 0x77),
              "%s: bytes after wipe %u", disk_engine(dev), i);
    free(bytes);
}

Test(disk, discarded_and_zeroed_ranges_read_as_zeroes_and_their_neighbours_stay, .timeout = 60)
{
    struct reactor *r = new_reactor(256);
    for (unsigned e = 0; e < ARRAY_LENGTH(engines); e++) {
        struct place place;
        if (!can_have(r, engines[e]))
            continue;
        place_init(&place, MIB);
        struct blkdev *dev = open_with(r, place.path, engines[e]);
        cr_expect(dev->info.discards && dev->info.discard_zeroes);
        for (unsigned i = 0; i < ARRAY_LENGTH(wipes); i++)
            check_wipe(dev, place.path, i);
        cr_expect_eq(blocks_of(place.path) * 512 <= (blkcnt_t)MIB, true);
        close_disk(dev);
        place_fini(&place);
    }
    reactor_destroy(r);
}

Test(disk, a_file_cut_short_reads_as_a_media_error_from_there_on, .timeout = 60)
{
    struct reactor *r = new_reactor(256);
    uint8_t *bytes = malloc(MIB);
    struct stat st;
    for (unsigned e = 0; e < ARRAY_LENGTH(engines); e++) {
        struct place place;
        if (!can_have(r, engines[e]))
            continue;
        place_init(&place, MIB);
        struct blkdev *dev = open_with(r, place.path, engines[e]);
        cr_assert_eq(truncate(place.path, 70000), 0); /* in the middle of a block */
        uint64_t edge = round_down(70000, dev->info.logical_block);
        struct blk_req req = io(dev, BLK_READ, 0, 0, bytes, MIB);
        cr_expect_eq(req.status, BLK_MEDIA, "%s: %s", engines[e], blk_status_name(req.status));
        cr_expect_eq(req.bad_off, edge, "%s: %lu", engines[e], req.bad_off);
        req = io(dev, BLK_READ, 0, 512 * KIB, bytes, 8192);
        cr_expect(req.status == BLK_MEDIA && req.bad_off == 512 * KIB, "%s: behind it", engines[e]);
        cr_expect_eq(io(dev, BLK_READ, 0, 0, bytes, 65536).status, BLK_OK, "%s: before it", engines[e]);
        req = io(dev, BLK_WRITE, 0, 512 * KIB, bytes, 8192);
        cr_expect(req.status == BLK_MEDIA && req.bad_off == 512 * KIB, "%s: a write behind it", engines[e]);
        cr_expect_eq(io(dev, BLK_WRITE, 0, 4096, bytes, 4096).status, BLK_OK, "%s: a write before it", engines[e]);
        cr_expect(stat(place.path, &st) == 0 && st.st_size == 70000, "%s: it was made longer", engines[e]);
        close_disk(dev);
        place_fini(&place);
    }
    free(bytes);
    reactor_destroy(r);
}

Test(disk, more_requests_than_slots_and_ring_entries_are_all_served, .timeout = 60)
{
    enum { N = 1000 };
    char why[200];
    struct reactor_options options = {.name = "test", .pages = N, .ring_entries = 16};
    struct reactor *r = reactor_create(&options, why, sizeof why);
    struct {
        struct call call;
    } *slots = calloc(N, sizeof *slots);
    cr_assert(r != NULL && slots != NULL);
    for (unsigned e = 0; e < ARRAY_LENGTH(engines); e++) {
        struct place place;
        if (!can_have(r, engines[e]))
            continue;
        place_init(&place, N * PAGE_BYTES);
        struct blkdev *dev = open_with(r, place.path, engines[e]);
        unsigned left = N;
        for (unsigned i = 0; i < N; i++) {
            struct call *c = &slots[i].call;
            cr_assert(page_pool_get(dev->loop->pages, c->pages, 1));
            memset(c->pages[0]->data, (int)i, PAGE_BYTES);
            c->reactor = r;
            c->left = &left;
            c->req = (struct blk_req){
                .op = BLK_WRITE, .off = i * PAGE_BYTES, .len = PAGE_BYTES, .pages = c->pages, .done = call_done};
            blk_submit(dev, &c->req);
        }
        reactor_run(r);
        uint8_t bytes[PAGE_BYTES];
        for (unsigned i = 0; i < N; i++) {
            cr_expect_eq(slots[i].call.req.status, BLK_OK, "%s: request %u", engines[e], i);
            page_put(slots[i].call.pages[0]);
            read_file(place.path, i * PAGE_BYTES, bytes, sizeof bytes);
            cr_expect(all_are(bytes, sizeof bytes, (uint8_t)i), "%s: block %u", engines[e], i);
        }
        close_disk(dev);
        place_fini(&place);
    }
    free(slots);
    reactor_destroy(r);
}

/* --- opening --- */

Test(disk, refuses_what_it_cannot_use_and_says_why, .timeout = 60)
{
    struct place place;
    char why[300], directory[200], empty[200];
    struct reactor *r = new_reactor(1);
    place_init(&place, MIB);
    text_format(directory, sizeof directory, "%s/.", place.directory);
    text_format(empty, sizeof empty, "%s/empty", place.directory);
    close(open(empty, O_RDWR | O_CREAT, 0600));
    const struct {
        const char *path, *engine, *reason;
    } cases[] = {
        {"/nonexistent/disk", NULL, "No such file"},
        {directory, NULL, "neither a regular file"},
        {"/dev/null", NULL, "neither a regular file"},
        {empty, NULL, "empty"},
        {place.path, "steam", "no engine"},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct disk_options options = {.engine = cases[i].engine};
        cr_expect_null(disk_open(r, cases[i].path, &options, why, sizeof why), "case %u", i);
        cr_expect(strstr(why, cases[i].path) != NULL && strstr(why, cases[i].reason) != NULL, "case %u: %s", i, why);
    }
    unlink(empty);
    place_fini(&place);
    reactor_destroy(r);
}

Test(disk, exclusive_means_that_a_second_one_is_refused, .timeout = 60)
{
    struct place place;
    char why[300];
    struct reactor *r = new_reactor(1);
    struct disk_options options = {.exclusive = true};
    place_init(&place, MIB);
    struct blkdev *dev = disk_open(r, place.path, &options, why, sizeof why);
    cr_assert_not_null(dev, "%s", why);
    cr_expect_null(disk_open(r, place.path, &options, why, sizeof why));
    cr_expect(strstr(why, "in use") != NULL, "%s", why);
    close_disk(dev);
    dev = disk_open(r, place.path, &options, why, sizeof why);
    cr_assert_not_null(dev, "free again: %s", why);
    close_disk(dev);
    place_fini(&place);
    reactor_destroy(r);
}

static void *let_go_later(void *fd)
{
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    nanosleep(&pause, NULL);
    close(*(int *)fd);
    return NULL;
}

Test(disk, a_lock_that_is_let_go_of_soon_is_waited_for, .timeout = 60)
{
    struct place place;
    char why[300];
    pthread_t thread;
    struct reactor *r = new_reactor(1);
    struct disk_options options = {.exclusive = true, .patience_ms = 20000};
    place_init(&place, MIB);
    int fd = open(place.path, O_RDONLY | O_CLOEXEC);
    cr_assert_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
    cr_assert_eq(pthread_create(&thread, NULL, let_go_later, &fd), 0);
    struct blkdev *dev = disk_open(r, place.path, &options, why, sizeof why);
    cr_expect_not_null(dev, "%s", why);
    pthread_join(thread, NULL);
    if (dev != NULL)
        close_disk(dev);
    place_fini(&place);
    reactor_destroy(r);
}

Test(disk, read_only_refuses_writes_and_sizes_are_rounded_down, .timeout = 60)
{
    struct place place;
    char why[300], identity[200];
    uint8_t bytes[4096] = {0};
    struct reactor *r = new_reactor(4);
    struct disk_options options = {.read_only = true};
    place_init(&place, MIB + 100);
    struct blkdev *dev = disk_open(r, place.path, &options, why, sizeof why);
    cr_assert_not_null(dev, "%s", why);
    cr_expect_eq(dev->info.size, MIB);
    cr_expect(dev->info.read_only && !dev->info.discards && dev->info.volatile_cache);
    cr_expect_eq(io(dev, BLK_WRITE, 0, 0, bytes, 4096).status, BLK_READONLY);
    cr_expect_eq(io(dev, BLK_READ, 0, 4096, bytes, 4096).status, BLK_OK);
    cr_expect(disk_fd(dev) >= 0);
    disk_identity(dev, identity, sizeof identity);
    char *real = realpath(place.path, NULL);
    cr_expect_str_eq(identity, real);
    free(real);
    close_disk(dev);
    place_fini(&place);
    reactor_destroy(r);
}

Test(disk, the_best_engine_is_chosen, .timeout = 60)
{
    struct place place;
    char why[300];
    struct reactor *r = new_reactor(1);
    struct disk_options no_uring = {.no_uring = true}, uring = {.no_uring = true, .engine = "uring"};
    place_init(&place, MIB);
    struct blkdev *dev = disk_open(r, place.path, &no_uring, why, sizeof why);
    cr_assert_not_null(dev, "%s", why);
    cr_expect_str_neq(disk_engine(dev), "uring");
    close_disk(dev);
    cr_expect_null(disk_open(r, place.path, &uring, why, sizeof why));
    cr_expect(strstr(why, "io_uring is not available") != NULL, "%s", why);
    place_fini(&place);
    reactor_destroy(r);
}

/* --- what results mean --- */

Test(disk, errors_of_the_kernel_keep_their_meaning)
{
    static const struct {
        enum blk_op op;
        int error;
        enum blk_status status;
    } cases[] = {
        {BLK_READ, EIO, BLK_MEDIA},       {BLK_READ, EREMOTEIO, BLK_MEDIA},   {BLK_READ, EILSEQ, BLK_MEDIA},
        {BLK_READ, ENODATA, BLK_MEDIA},   {BLK_READ, ENODEV, BLK_GONE},       {BLK_READ, ENXIO, BLK_GONE},
        {BLK_WRITE, ESHUTDOWN, BLK_GONE}, {BLK_READ, ETIMEDOUT, BLK_TIMEOUT}, {BLK_WRITE, ENOSPC, BLK_NOSPACE},
        {BLK_WRITE, EDQUOT, BLK_NOSPACE}, {BLK_WRITE, EROFS, BLK_READONLY},   {BLK_DISCARD, EOPNOTSUPP, BLK_INVALID},
        {BLK_READ, EINVAL, BLK_INVALID},  {BLK_FLUSH, EIO, BLK_GONE},         {BLK_FLUSH, ENOSPC, BLK_NOSPACE},
        {BLK_READ, 9999, BLK_MEDIA},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++)
        cr_expect_eq(disk_status(cases[i].op, cases[i].error), cases[i].status, "%s answered by %s",
                     blk_op_name(cases[i].op), strerror(cases[i].error));
}

Test(disk, short_and_interrupted_transfers_go_on_and_the_end_is_the_end)
{
    struct disk *disk = calloc(1, sizeof *disk);
    struct blk_req req = {.op = BLK_READ, .off = 8192, .len = 4096};
    disk->dev.info.logical_block = 512;
    static const struct {
        int64_t n;
        enum disk_verdict verdict;
        uint64_t done_len;
        enum blk_status status;
        uint64_t bad_off;
    } steps[] = {
        {-EINTR, DISK_AGAIN, 0, BLK_OK, 0},
        {1024, DISK_AGAIN, 1024, BLK_OK, 0},
        {-EAGAIN, DISK_AGAIN, 1024, BLK_OK, 0},
        {700, DISK_AGAIN, 1536, BLK_OK, 0},
        {188, DISK_OVER, 1536, BLK_MEDIA, 8192 + 1536},
        {0, DISK_OVER, 1536, BLK_MEDIA, 8192 + 1536},
        {-EIO, DISK_OVER, 1536, BLK_MEDIA, 8192 + 1536},
        {-ENODEV, DISK_OVER, 1536, BLK_GONE, 0},
        {2560, DISK_OVER, 4096, BLK_OK, 0},
    };
    struct disk_progress progress = {0};
    for (unsigned i = 0; i < ARRAY_LENGTH(steps); i++) {
        struct disk_result result = {BLK_OK, 0};
        cr_expect_eq(disk_judge(disk, &req, steps[i].n, &progress, &result), steps[i].verdict, "step %u", i);
        cr_expect_eq(progress.done_len, steps[i].done_len, "step %u", i);
        if (steps[i].verdict == DISK_OVER)
            cr_expect_eq(result.status, steps[i].status, "step %u", i);
        if (steps[i].status == BLK_MEDIA)
            cr_expect_eq(result.bad_off, steps[i].bad_off, "step %u", i);
    }
    progress = (struct disk_progress){0};
    struct disk_result result;
    unsigned tries = 1;
    while (tries < 100000 && disk_judge(disk, &req, -EAGAIN, &progress, &result) == DISK_AGAIN)
        tries++;
    cr_expect(tries < 100000 && result.status == BLK_TIMEOUT, "patience has an end");
    free(disk);
}

/*
 * A disk with a hole: our own memory, where reading what is not mapped is an I/O error. Device offsets are addresses.
 */
static struct blk_req memory_req(struct page_pool *pool, struct page **pages, uint64_t from, uint64_t len)
{
    struct blk_req req = {.op = BLK_READ, .off = from, .len = len, .pages = pages};
    cr_assert(page_pool_get(pool, pages, page_count_for(from, len)));
    return req;
}

Test(disk, a_media_error_is_narrowed_to_its_first_block)
{
    static const uint64_t holes[] = {0, 4096, 300 * KIB, MIB - 4096};
    struct disk *disk = calloc(1, sizeof *disk);
    struct page_pool *pool = page_pool_create(256);
    struct page *pages[256];
    disk->dev.info.logical_block = 512;
    disk->fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    cr_assert_geq(disk->fd, 0);
    for (unsigned i = 0; i < ARRAY_LENGTH(holes); i++) {
        char *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        cr_assert_neq(memory, MAP_FAILED);
        memset(memory, 0x5e, MIB);
        struct blk_req req = memory_req(pool, pages, (uint64_t)(uintptr_t)memory, MIB);
        cr_expect_eq(disk_narrow(disk, &req, 0).status, BLK_OK, "an error that does not come again is none");
        cr_expect_eq(*((uint8_t *)pages[255]->data + 4095), 0x5e, "and the bytes are there");
        munmap(memory + holes[i], 4096);
        struct disk_result result = disk_narrow(disk, &req, 0);
        cr_expect_eq(result.status, BLK_MEDIA, "hole at %lu", holes[i]);
        cr_expect_eq(result.bad_off - req.off, holes[i], "hole at %lu found at %lu", holes[i],
                     result.bad_off - req.off);
        result = disk_serve(disk, &req);
        cr_expect(result.status == BLK_MEDIA && result.bad_off - req.off == holes[i], "hole at %lu", holes[i]);
        page_put_all(pages, 256);
        munmap(memory, MIB);
    }
    close(disk->fd);
    page_pool_destroy(pool);
    free(disk);
}
