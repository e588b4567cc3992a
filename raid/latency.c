/* See raid/latency.h. Windows end when the first read after their end is noted: nothing runs while nobody reads. */
#include "raid/latency.h"

#include <string.h>

#include "core/check.h"

enum { PEERS_MAX = 64, SLOW_TIMES = 2 };

static unsigned bucket_of(uint64_t ns)
{
    ns |= LATENCY_STEPS;
    unsigned high = 63u - (unsigned)__builtin_clzll(ns);
    return high * LATENCY_STEPS + (unsigned)(ns >> (high - 2) & (LATENCY_STEPS - 1));
}

static uint64_t bucket_end(unsigned bucket)
{
    unsigned high = bucket / LATENCY_STEPS;
    uint64_t first = (uint64_t)(LATENCY_STEPS + bucket % LATENCY_STEPS) << (high - 2);
    return first + (UINT64_C(1) << (high - 2)) - 1;
}

void latency_add(struct latency *latency, uint64_t ns)
{
    latency->count[bucket_of(ns)]++;
    latency->total++;
}

void latency_fade(struct latency *latency)
{
    latency->total = 0;
    for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
        latency->count[i] /= 2;
        latency->total += latency->count[i];
    }
}

uint64_t latency_quantile(const struct latency *latency, unsigned percent)
{
    uint64_t wanted = ((uint64_t)latency->total * percent + 99) / 100, seen = 0;
    for (unsigned i = 0; i < LATENCY_BUCKETS && wanted > 0; i++) {
        seen += latency->count[i];
        if (seen >= wanted)
            return bucket_end(i);
    }
    return 0;
}

/* --- peers --- */

void peers_init(struct peers *peers, uint64_t window_ns, void (*changed)(struct peers *, struct peer *))
{
    *peers = (struct peers){.window_ns = window_ns, .changed = changed};
    TAILQ_INIT(&peers->list);
}

void peers_join(struct peers *peers, struct peer *peer)
{
    ASSERT(peer->peers == NULL);
    *peer = (struct peer){.peers = peers};
    TAILQ_INSERT_TAIL(&peers->list, peer, link);
}

void peers_leave(struct peer *peer)
{
    if (peer->peers == NULL)
        return;
    TAILQ_REMOVE(&peer->peers->list, peer, link);
    peer->peers = NULL;
    peer->slow = false;
}

/* The median of the others' medians; of two, the faster. 0: there are none. */
static uint64_t median_of_others(const struct peers *peers, const struct peer *but)
{
    uint64_t sorted[PEERS_MAX];
    unsigned count = 0;
    const struct peer *peer;
    TAILQ_FOREACH(peer, &peers->list, link)
    {
        if (peer == but || peer->median_ns == 0 || count == PEERS_MAX)
            continue;
        unsigned at = count++;
        for (; at > 0 && sorted[at - 1] > peer->median_ns; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = peer->median_ns;
    }
    return count == 0 ? 0 : sorted[(count - 1) / 2];
}

static void peer_judge(struct peers *peers, struct peer *peer)
{
    uint64_t others = median_of_others(peers, peer);
    if (peer->median_ns == 0 || others == 0)
        return;
    peer->slow_windows = peer->median_ns > SLOW_TIMES * others ? peer->slow_windows + 1 : 0;
    bool slow = peer->slow ? peer->slow_windows > 0 : peer->slow_windows >= PEERS_SLOW_WINDOWS;
    if (slow == peer->slow)
        return;
    peer->slow = slow;
    peers->changed(peers, peer);
}

static void window_end(struct peers *peers)
{
    struct peer *peer;
    TAILQ_FOREACH(peer, &peers->list, link)
    {
        bool enough = peer->window.total >= PEERS_SAMPLES_LEAST;
        peer->median_ns = enough ? latency_quantile(&peer->window, 50) : 0;
        memset(&peer->window, 0, sizeof peer->window);
    }
    TAILQ_FOREACH(peer, &peers->list, link)
    peer_judge(peers, peer);
}

void peers_note(struct peer *peer, uint64_t ns, uint64_t now_ns)
{
    struct peers *peers = peer->peers;
    if (peers == NULL)
        return;
    if (peers->window_end_ns == 0)
        peers->window_end_ns = now_ns + peers->window_ns;
    if (now_ns >= peers->window_end_ns) {
        window_end(peers);
        peers->window_end_ns = now_ns + peers->window_ns;
    }
    latency_add(&peer->window, ns);
}
