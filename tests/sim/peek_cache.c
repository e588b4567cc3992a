/* Through the keyhole of a cache, as peek.c does of the array. Reads only. */
#include "cache/cache_impl.h"
#include "tests/sim/sim.h"

bool peek_cache_written_down(const struct cache *c)
{
    return !c->draining && !c->drain_wanted;
}
