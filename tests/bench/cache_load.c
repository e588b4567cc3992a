#include "tests/bench/cache_load.h"

#include <math.h>
#include <stdlib.h>

#include "core/check.h"

struct load_client {
    struct blk_req req;
    struct page **pages;
    struct load *load;
    unsigned number;
    uint64_t since_ns;
    bool busy;
};

static void client_go(struct load_client *client);
static void request_done(struct blk_req *req);

static uint64_t now_ns(const struct load *load)
{
    return loop_now_ns(&load->t->loop);
}

static void record(struct load *load, uint64_t ns)
{
    if (load->answered == load->room) {
        load->room = MAX(load->room * 2, 1024u);
        load->latencies_ns = realloc(load->latencies_ns, load->room * sizeof(uint64_t));
        ASSERT(load->latencies_ns != NULL);
    }
    load->latencies_ns[load->answered++] = ns;
}

static bool counts(const struct load *load, uint64_t since_ns)
{
    return since_ns >= load->begin_ns + load->options.warm_ns && !load->stopping;
}

static void look_over(struct load *load)
{
    bool enough = load->stopping || (load->options.count > 0 && load->sent == load->options.count);
    if (!enough || load->busy > 0)
        return;
    load->over = true;
    timer_stop(&load->t->loop, &load->arrival);
    timer_stop(&load->t->loop, &load->end);
}

static void client_over(struct load_client *client)
{
    struct load *load = client->load;
    if (counts(load, client->since_ns)) {
        record(load, now_ns(load) - client->since_ns);
        load->end_ns = now_ns(load);
    }
    page_put_all(client->pages, page_count_for(0, load->options.bytes));
    client->busy = false;
    load->busy--;
    if (load->options.rate == 0)
        client_go(client);
    look_over(load);
}

static void request_done(struct blk_req *req)
{
    struct load_client *client = container_of(req, struct load_client, req);
    ASSERT(req->status == BLK_OK);
    if (req->op == BLK_FLUSH || !client->load->options.flush) {
        client_over(client);
        return;
    }
    client->req = (struct blk_req){.op = BLK_FLUSH, .done = request_done};
    blk_submit(client->load->options.dev, &client->req);
}

/* Pages are taken anew each time: a device may have put others in their place. */
static void client_go(struct load_client *client)
{
    struct load *load = client->load;
    const struct load_options *o = &load->options;
    if (load->stopping || (o->count > 0 && load->sent == o->count))
        return;
    load->sent++;
    load->busy++;
    client->busy = true;
    client->since_ns = now_ns(load);
    bool got = page_pool_get(load->t->loop.pages, client->pages, page_count_for(0, o->bytes));
    ASSERT(got);
    client->req = (struct blk_req){.op = o->op,
                                   .off = o->next(load, client->number),
                                   .len = o->bytes,
                                   .pages = client->pages,
                                   .done = request_done};
    blk_submit(o->dev, &client->req);
}

static void arrival_fire(struct timer *timer)
{
    struct load *load = container_of(timer, struct load, arrival);
    double u = (double)(test_random(&load->options.seed) >> 11) / (double)(UINT64_C(1) << 53);
    timer_start(&load->t->loop, &load->arrival, (uint64_t)(-log(1 - u) / load->options.rate * 1e9));
    for (unsigned i = 0; i < load->options.clients; i++)
        if (!load->clients[i].busy) {
            client_go(&load->clients[i]);
            return;
        }
    load->turned_away++;
}

static void end_fire(struct timer *timer)
{
    struct load *load = container_of(timer, struct load, end);
    load->stopping = true;
    load->end_ns = now_ns(load);
    timer_stop(&load->t->loop, &load->arrival);
    look_over(load);
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void start(struct load *load)
{
    for (unsigned i = 0; i < load->options.clients; i++) {
        struct load_client *client = &load->clients[i];
        client->load = load;
        client->number = i;
        client->pages = calloc(page_count_for(0, load->options.bytes), sizeof *client->pages);
        ASSERT(client->pages != NULL);
    }
    if (load->options.run_ns > 0)
        timer_start(&load->t->loop, &load->end, load->options.warm_ns + load->options.run_ns);
    if (load->options.rate > 0)
        arrival_fire(&load->arrival);
    for (unsigned i = 0; i < load->options.clients && load->options.rate == 0; i++)
        client_go(&load->clients[i]);
}

struct load *load_run(struct testloop *t, const struct load_options *options)
{
    struct load *load = calloc(1, sizeof *load);
    ASSERT(load != NULL);
    *load = (struct load){.options = *options, .t = t, .arrival.fire = arrival_fire, .end.fire = end_fire};
    load->clients = calloc(options->clients, sizeof *load->clients);
    ASSERT(load->clients != NULL && (options->count > 0) != (options->run_ns > 0));
    load->begin_ns = load->end_ns = now_ns(load);
    start(load);
    bool over = testloop_run_until(t, &load->over);
    ASSERT(over);
    double seconds = (double)(load->end_ns - load->begin_ns - options->warm_ns) / 1e9;
    load->a_second = seconds > 0 ? (double)load->answered / seconds : 0;
    qsort(load->latencies_ns, load->answered, sizeof(uint64_t), by_size);
    return load;
}

void load_free(struct load *load)
{
    for (unsigned i = 0; i < load->options.clients; i++)
        free(load->clients[i].pages);
    free(load->clients);
    free(load->latencies_ns);
    free(load);
}

uint64_t load_percentile_ns(const struct load *load, double share)
{
    if (load->answered == 0)
        return 0;
    uint64_t rank = (uint64_t)ceil(share * (double)load->answered);
    return load->latencies_ns[MIN(MAX(rank, 1u), load->answered) - 1];
}

uint64_t load_sequential(struct load *load, unsigned client)
{
    (void)client;
    return (load->sent - 1) * load->options.bytes % round_down(load->options.span, load->options.bytes);
}

uint64_t load_random(struct load *load, unsigned client)
{
    (void)client;
    return test_random(&load->options.seed) % (load->options.span / load->options.bytes) * load->options.bytes;
}
