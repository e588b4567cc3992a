/*
 * A device of one loop, made usable on another.
 *
 * The proxy is a blkdev on `loop` (the user's). A request submitted to it is handed to the target's loop by
 * loop_call(), served there, and handed back. Pages stay the user's: the other side reads and fills their bytes but
 * takes no reference and replaces none (blkdev contract 5 is met, since filling in place is allowed: the proxy asks
 * the target with a page array of its own and copies a replaced page).
 *
 * Costs one hop each way; a connection moved to its volume's home loop needs no proxy.
 */
#ifndef CORE_BLK_PROXY_H
#define CORE_BLK_PROXY_H

#include "core/blkdev.h"

/* NULL if memory is short. The target must outlive the proxy, and not change its info meanwhile. */
struct blkdev *blk_proxy_create(struct loop *loop, struct blkdev *target, uint32_t max_in_flight);

#endif
