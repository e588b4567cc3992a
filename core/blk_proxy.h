/*
 * A device of one loop, made usable on another.
 *
 * The proxy is a blkdev on `loop` (the user's). A request submitted to it is handed to the target's loop by
 * loop_call(), served there, and handed back; what is submitted in one turn travels together. Pages stay the user's:
 * the other side copies their bytes to and from pages of its own loop's pool, takes no reference and replaces none,
 * because references are counted without locks.
 *
 * What the target tells its watchers the proxy tells its own, a hop later: size, read_only and volatile_cache are then
 * what they are beneath.
 *
 * Costs one hop and one copy each way; a connection moved to its volume's home loop needs no proxy.
 */
#ifndef CORE_BLK_PROXY_H
#define CORE_BLK_PROXY_H

#include "core/blkdev.h"

/* NULL if memory is short. The target's loop has a page pool. The target must outlive the proxy, and does
 * not shrink meanwhile. */
struct blkdev *blk_proxy_create(struct loop *loop, struct blkdev *target, uint32_t max_in_flight);

#endif
