#include "tests/unit/cache/scene.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/check.h"

struct scene *scene_create(const struct cache_options *options)
{
    static const struct cache_options usual = {.name = "scene", .bytes = 1024 * KIB, .readahead = READAHEAD_NONE};
    struct scene *s = calloc(1, sizeof *s);
    cr_assert(s != NULL);
    s->t = testloop_create(4096, 1);
    s->disk = trialdisk_create(&s->t->loop, SCENE_DISK, 512, SCENE_ROW);
    test_fill(s->disk->seen, SCENE_DISK, 77);
    memcpy(s->disk->done, s->disk->seen, SCENE_DISK);
    memcpy(s->disk->stable, s->disk->seen, SCENE_DISK);
    s->cache = cache_create(&s->disk->dev, options != NULL ? options : &usual);
    cr_assert(s->cache != NULL);
    return s;
}

void scene_destroy(struct scene *s)
{
    if (s->cache != NULL)
        test_close(s->t, cache_dev(s->cache));
    test_close(s->t, &s->disk->dev);
    testloop_destroy(s->t);
    free(s);
}

static void call_done(struct blk_req *req)
{
    container_of(req, struct scene_call, req)->over = true;
}

void scene_submit(struct scene *s, struct scene_call *call)
{
    call->over = false;
    call->req.done = call_done;
    blk_submit(cache_dev(s->cache), &call->req);
}

void scene_drain(struct scene *s, struct scene_call *call)
{
    *call = (struct scene_call){.req.done = call_done};
    cache_drain(s->cache, &call->req);
}

static void pages_for(struct scene *s, struct scene_call *call)
{
    cr_assert(page_pool_get(s->t->loop.pages, call->pages, page_count_for(call->req.off, call->req.len)));
    call->req.pages = call->pages;
}

void scene_read(struct scene *s, struct scene_call *call, uint64_t off, uint64_t len)
{
    call->req = (struct blk_req){.op = BLK_READ, .off = off, .len = len};
    pages_for(s, call);
    scene_submit(s, call);
}

void scene_write(struct scene *s, struct scene_call *call, unsigned flags, uint64_t off, uint64_t len, uint64_t seed)
{
    uint8_t *bytes = malloc(len);
    call->req = (struct blk_req){.op = BLK_WRITE, .flags = flags, .off = off, .len = len};
    pages_for(s, call);
    test_fill(bytes, len, seed);
    pages_copy_in(call->pages, off % PAGE_BYTES, bytes, len);
    free(bytes);
    scene_submit(s, call);
}

enum blk_status scene_wait(struct scene *s, struct scene_call *call)
{
    cr_assert(testloop_run_until(s->t, &call->over), "it is never done");
    return call->req.status;
}

void scene_call_over(struct scene_call *call)
{
    page_put_all(call->pages, page_count_for(call->req.off, call->req.len));
}

bool scene_call_reads(const struct scene *s, const struct scene_call *call)
{
    uint8_t *bytes = malloc(call->req.len);
    pages_copy_out(bytes, call->pages, call->req.off % PAGE_BYTES, call->req.len);
    bool same = memcmp(bytes, s->disk->seen + call->req.off, call->req.len) == 0;
    free(bytes);
    return same;
}
