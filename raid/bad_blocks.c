/* See raid/bad_blocks.h: a sorted array, searched by halves. */
#include "raid/bad_blocks.h"

#include <stddef.h>
#include <string.h>

#include "core/check.h"

static uint64_t range_end(const struct bad_range *range)
{
    return range->start + range->length;
}

/* The first range of the slot, or behind it, that ends at `start` or later. */
static unsigned find(const struct bad_list *list, unsigned slot, uint64_t start)
{
    unsigned low = 0, high = list->count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        const struct bad_range *range = &list->of[middle];
        if (range->slot < slot || (range->slot == slot && range_end(range) < start))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_in(const struct bad_list *list, unsigned at, unsigned slot, uint64_t end)
{
    return at < list->count && list->of[at].slot == slot && list->of[at].start < end;
}

bool bad_overlaps(const struct bad_list *list, unsigned slot, uint64_t start, uint64_t length)
{
    return list->count > 0 && is_in(list, find(list, slot, start + 1), slot, start + length);
}

/* Replace `old` ranges from `at` on by `new_count` of `new_ranges`. */
static void replace(struct bad_list *list, unsigned at, unsigned old, const struct bad_range *new_ranges,
                    unsigned new_count)
{
    memmove(&list->of[at + new_count], &list->of[at + old], (list->count - at - old) * sizeof list->of[0]);
    memcpy(&list->of[at], new_ranges, new_count * sizeof list->of[0]);
    unsigned count = list->count - old + new_count;
    if (count < list->count)
        memset(&list->of[count], 0, (list->count - count) * sizeof list->of[0]);
    list->count = count;
}

bool bad_add(struct bad_list *list, unsigned slot, uint64_t start, uint64_t length)
{
    ASSERT(length > 0 && start % BAD_UNIT == 0 && length % BAD_UNIT == 0);
    uint64_t end = start + length;
    unsigned at = find(list, slot, start), old = 0;
    for (; is_in(list, at + old, slot, end + 1); old++) { /* those that touch it become part of it */
        start = MIN(start, list->of[at + old].start);
        end = MAX(end, range_end(&list->of[at + old]));
    }
    if (old == 0 && list->count >= BAD_ADD_MAX)
        return false;
    replace(list, at, old, &(struct bad_range){slot, start, end - start}, 1);
    return true;
}

bool bad_clear(struct bad_list *list, unsigned slot, uint64_t start, uint64_t length)
{
    uint64_t end = start + length;
    unsigned at = find(list, slot, start + 1), old = 0, left = 0;
    struct bad_range rest[2];
    for (; is_in(list, at + old, slot, end); old++) {
        const struct bad_range *range = &list->of[at + old];
        if (range->start < start)
            rest[left++] = (struct bad_range){slot, range->start, start - range->start};
        if (range_end(range) > end)
            rest[left++] = (struct bad_range){slot, end, range_end(range) - end};
    }
    if (list->count - old + left > BAD_MAX)
        return false;
    replace(list, at, old, rest, left);
    return true;
}

unsigned bad_count(const struct bad_list *list, unsigned slot)
{
    return find(list, slot + 1, 0) - find(list, slot, 0);
}

uint64_t bad_next(const struct bad_list *list, unsigned slot, uint64_t start, uint64_t end)
{
    unsigned at = find(list, slot, start + 1);
    if (!is_in(list, at, slot, end))
        return end;
    return list->of[at].start > start ? list->of[at].start : MIN(end, range_end(&list->of[at]));
}

uint64_t bad_bytes(const struct bad_list *list, unsigned slot)
{
    uint64_t bytes = 0;
    for (unsigned at = find(list, slot, 0); is_in(list, at, slot, UINT64_MAX); at++)
        bytes += list->of[at].length;
    return bytes;
}

const char *bad_check(const struct bad_list *list, const uint64_t *sizes, unsigned slots)
{
    if (list->count > BAD_MAX)
        return "the list of bad blocks is too long";
    for (unsigned i = 0; i < list->count; i++) {
        const struct bad_range *range = &list->of[i], *before = &list->of[i - (i > 0)];
        if (range->slot >= slots || range->start % BAD_UNIT != 0 || range->length % BAD_UNIT != 0)
            return "a range of bad blocks has no such slot, or is not of whole blocks";
        if (range->length == 0 || range->start >= sizes[range->slot] ||
            range->length > sizes[range->slot] - range->start)
            return "a range of bad blocks is empty, or reaches beyond its member's data";
        if (i > 0 && (range->slot < before->slot ||
                      (range->slot == before->slot && range->start <= before->start + before->length)))
            return "the ranges of bad blocks are not in order";
    }
    return NULL;
}
