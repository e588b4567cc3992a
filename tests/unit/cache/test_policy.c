/* The policies by themselves: which block leaves. */
#include <criterion/criterion.h>

#include <stdlib.h>

#include "cache/ghost.h"
#include "cache/policy.h"
#include "core/check.h"
#include "tests/unit/lib/testloop.h"

static uint64_t keys[4096];

static uint64_t key_of(void *arg, uint32_t slot)
{
    return ((uint64_t *)arg)[slot];
}

static uint32_t evict(struct cache_policy *policy, bool guess)
{
    return policy->ops->evict(policy, guess, key_of, keys);
}

static void insert(struct cache_policy *policy, uint32_t slot, uint64_t key)
{
    keys[slot] = key;
    policy->ops->insert(policy, slot, key, CACHE_COLD);
}

Test(policy, s3fifo_lets_a_scan_pass_and_keeps_what_is_used)
{
    struct cache_policy *policy = cache_policy_s3fifo.create(100);
    for (uint32_t i = 0; i < 100; i++)
        insert(policy, i, i);
    for (uint32_t i = 0; i < 50; i++)
        policy->ops->hit(policy, i * 2);
    for (uint64_t key = 1000; key < 2000; key++) {
        uint32_t slot = evict(policy, false);
        cr_assert(keys[slot] >= 1000 || keys[slot] % 2 == 1, "key %lu left, which was used", keys[slot]);
        insert(policy, slot, key);
    }
    policy->ops->destroy(policy);
}

/* docs/cache.md has what other parts would do. */
Test(policy, s3fifo_gives_what_is_used_once_a_twentieth)
{
    struct cache_policy *policy = cache_policy_s3fifo.create(100);
    unsigned hot = 0;
    for (uint32_t i = 0; i < 100; i++) {
        insert(policy, i, i);
        policy->ops->hit(policy, i);
    }
    for (uint64_t key = 1000; key < 2000; key++)
        insert(policy, evict(policy, false), key);
    for (uint32_t i = 0; i < 100; i++)
        hot += keys[i] < 1000;
    cr_expect(hot >= 94 && hot <= 95, "%u are left", hot);
    policy->ops->destroy(policy);
}

Test(policy, s3fifo_takes_what_comes_again_for_hot)
{
    struct cache_policy *policy = cache_policy_s3fifo.create(100);
    for (uint32_t i = 0; i < 100; i++)
        insert(policy, i, i);
    uint32_t slot = evict(policy, false);
    cr_assert_eq(keys[slot], 0, "first in, first out");
    insert(policy, slot, 0);
    for (uint64_t key = 1000; key < 1200; key++) {
        slot = evict(policy, false);
        cr_assert_neq(keys[slot], 0);
        insert(policy, slot, key);
    }
    policy->ops->destroy(policy);
}

Test(policy, a_guess_displaces_nothing_that_was_used)
{
    struct cache_policy *policy = cache_policy_s3fifo.create(16);
    for (uint32_t i = 0; i < 16; i++) {
        insert(policy, i, i);
        policy->ops->hit(policy, i);
    }
    cr_expect_eq(evict(policy, true), CACHE_SLOT_NONE);
    cr_expect_neq(evict(policy, false), CACHE_SLOT_NONE);
    policy->ops->destroy(policy);
}

Test(policy, what_was_removed_is_not_evicted_and_keeps_its_rank)
{
    struct cache_policy *policy = cache_policy_s3fifo.create(8);
    for (uint32_t i = 0; i < 8; i++)
        insert(policy, i, i);
    policy->ops->hit(policy, 3);
    cr_expect_eq(policy->ops->remove(policy, 3), CACHE_HOT);
    cr_expect_eq(policy->ops->remove(policy, 4), CACHE_COLD);
    bool seen[8] = {false};
    for (unsigned i = 0; i < 6; i++)
        seen[evict(policy, false)] = true;
    cr_expect(!seen[3] && !seen[4]);
    cr_expect_eq(evict(policy, false), CACHE_SLOT_NONE);
    policy->ops->destroy(policy);
}

Test(policy, ghosts_remember_the_last_keys_and_forget_older_ones)
{
    struct ghost ghost;
    unsigned young = 0, old = 0, strange = 0;
    cr_assert(ghost_init(&ghost, 4096));
    for (uint64_t key = 0; key < 100000; key++)
        ghost_add(&ghost, key);
    for (uint64_t i = 0; i < 1000; i++) {
        young += ghost_take(&ghost, 99999 - i, 4096);
        old += ghost_take(&ghost, i, 4096);
        strange += ghost_take(&ghost, 1000000 + i, 4096);
    }
    cr_expect_gt(young, 900, "%u of 1000", young);
    cr_expect_lt(old + strange, 10, "%u and %u", old, strange);
    cr_expect(!ghost_take(&ghost, 99999, 4096), "taken is taken");
    ghost_fini(&ghost);
}
