/*
 * An array that froze, because too many of its disks vanished at once, is started anew in place: what a restart of the
 * process does, for one array. Whoever uses its volumes is cut off first (exports and targets go, and their clients
 * find them again when they come back), then it is closed, and assembled from the disks there are now, without force.
 *
 * Nothing is taken over from the frozen array: what it had not written down is as lost as in a crash, and is looked
 * after in the same way, by the labels, the region maps and the journal. So one whose caches hold answered writes is
 * let be, unless they stay in an arena: the volume cannot be served without that.
 */
#include "core/log.h"
#include "daemon/appliance_internal.h"

bool live_array_start_again(struct appliance *a, const char *name, const struct assembly_options *options)
{
    live_arrays_start(a, a->config, options, name);
    const struct live_array *live = live_array_find(a, name);
    if (live == NULL || live->array == NULL)
        return false;
    live_patrols(a, a->config);
    live_rates(a, a->config);
    live_serve(a, a->config, NULL, NULL);
    return true;
}

/* Of answered writes: a client that comes back would have its flush answered though they are gone. */
static bool is_empty(struct live_array *live, char *why, size_t why_len)
{
    uint64_t dirty = live_caches_dirty(live);
    text_format(why, why_len,
                "array %s is frozen, and its caches hold %llu KiB of answered writes that no disk has: corbelctl array "
                "assemble --force gives them up, but for what was flushed into a log",
                live->name, (unsigned long long)(dirty / 1024));
    return dirty == 0;
}

bool live_array_thaw(struct appliance *a, struct live_array *live, bool force, char *why, size_t why_len)
{
    if (!force && !is_empty(live, why, why_len))
        return false;
    if (!live_unserve(a, live->name, why, why_len))
        return false;
    if (!force && !is_empty(live, why, why_len)) { /* the last ones that came */
        live_serve(a, a->config, NULL, NULL);
        return false;
    }
    log_notice("array %s was frozen, and is started anew with the disks there are now", live->name);
    live_array_close(a, live);
    return true;
}
