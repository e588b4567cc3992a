/*
 * Devices that cost nothing, behind the daemon's own reactor, sockets and NBD target: what a cache hit is measured
 * against. Nothing of this is part of the product.
 *
 *      null    every block is the same page of zeroes, given by reference; writes and flushes are over at once
 *      pages   block i is the page i of a pool of its own: a cache that need not look anything up. What it costs more
 *              than null is what memory costs that lies in no processor's cache
 *
 *      null_server BYTES PIDFILE       serves both, of so many bytes each, on a free port of 127.0.0.1, until SIGTERM;
 *                                      prints `nbd listens on ADDRESS`
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/check.h"
#include "core/log.h"
#include "daemon/listener.h"
#include "daemon/reactor.h"
#include "target/nbd/nbd.h"

enum { POOL_PAGES = 64 * 1024 * 1024 / PAGE_BYTES }; /* as the daemon has by default */

struct null_device {
    struct blkdev dev;
    struct page **pages;
    uint32_t page_count; /* 1: all blocks have that one */
};

static struct reactor *serving;

/* A page that takes the place of the reader's, if all of it is wanted; else its bytes are copied, as any must. */
static void give(struct null_device *n, struct blk_req *req)
{
    uint64_t first = req->off / PAGE_BYTES, end = req->off + req->len;
    for (uint64_t i = 0; i < page_count_for(req->off, req->len); i++) {
        struct page *page = n->pages[n->page_count == 1 ? 0 : first + i];
        uint64_t from = MAX(req->off, (first + i) * PAGE_BYTES), to = MIN(end, (first + i + 1) * PAGE_BYTES);
        if (to - from == PAGE_BYTES) {
            page_ref(page);
            page_put(req->pages[i]);
            req->pages[i] = page;
        } else {
            memcpy((char *)req->pages[i]->data + from % PAGE_BYTES, (char *)page->data + from % PAGE_BYTES, to - from);
        }
    }
}

static void null_submit(struct blkdev *dev, struct blk_req *req)
{
    if (req->op == BLK_READ)
        give(container_of(dev, struct null_device, dev), req);
    blk_complete(req, BLK_OK);
}

static void null_close(struct blkdev *dev, struct task *closed)
{
    loop_defer(dev->loop, closed);
}

static const struct blkdev_ops null_ops = {.kind = "null", .submit = null_submit, .close = null_close};

static void null_init(struct null_device *n, struct loop *loop, const char *name, uint64_t bytes, uint32_t page_count)
{
    struct blk_info info = {.size = bytes, .logical_block = 512, .physical_block = PAGE_BYTES};
    struct page_pool *pool = page_pool_create(page_count);
    n->pages = calloc(page_count, sizeof *n->pages);
    n->page_count = page_count;
    ASSERT(pool != NULL && n->pages != NULL);
    bool taken = page_pool_take(pool, n->pages, page_count);
    ASSERT(taken);
    for (uint32_t i = 0; i < page_count; i++)
        memset(n->pages[i]->data, 0, PAGE_BYTES);
    blkdev_init(&n->dev, &null_ops, loop, name, &info);
}

static void accepted(void *server, struct stream *stream)
{
    nbd_conn_open(server, stream, NBD_TLS_OFF);
}

static void stop(int number)
{
    (void)number;
    reactor_stop(serving);
}

static void must(bool good, const char *why)
{
    if (good)
        return;
    fprintf(stderr, "null_server: %s\n", why);
    exit(1);
}

static void write_pid(const char *path)
{
    FILE *file = fopen(path, "w");
    must(file != NULL, path);
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);
}

int main(int argc, char **argv)
{
    char why[512] = "usage: null_server BYTES PIDFILE";
    static struct null_device null, pages;
    uint64_t bytes = argc == 3 ? strtoull(argv[1], NULL, 0) / PAGE_BYTES * PAGE_BYTES : 0;
    must(bytes > 0, why);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, stop);
    serving = reactor_create(&(struct reactor_options){.name = "null", .pages = POOL_PAGES}, why, sizeof why);
    must(serving != NULL, why);
    struct loop *loop = reactor_loop(serving);
    struct nbd_server *server = nbd_server_create(loop, &(struct nbd_limits){0});
    null_init(&null, loop, "null", bytes, 1);
    null_init(&pages, loop, "pages", bytes, (uint32_t)(bytes / PAGE_BYTES));
    must(server != NULL &&
             nbd_server_add_export(server, &(struct nbd_export_options){.name = "null", .dev = &null.dev}) == 0 &&
             nbd_server_add_export(server, &(struct nbd_export_options){.name = "pages", .dev = &pages.dev}) == 0,
         "no server");
    struct listener *listener = listener_open(serving, "127.0.0.1:0", NULL, accepted, server, why, sizeof why);
    must(listener != NULL, why);
    listener_address(listener, why, sizeof why);
    write_pid(argv[2]);
    printf("nbd listens on %s\n", why);
    fflush(stdout);
    reactor_run(serving);
    return 0; /* the process' end is the end of all it has */
}
