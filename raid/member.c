/* A member's states and error policy: see raid/member.h for the drawing. Values only: no I/O, no time of its own. */
#include "raid/member.h"

#include "core/check.h"

enum { FORGIVEN_TIMEOUTS = 2, SECTOR_BYTES = 4096 };
#define SECOND_NS      1000000000ull
#define MEDIA_HALVED   (3600 * SECOND_NS)
#define TIMEOUT_WINDOW (60 * SECOND_NS)

static const struct sm_state states[] = {
    [MEMBER_ABSENT] = {"absent", SM_TO(MEMBER_REBUILDING) | SM_TO(MEMBER_ONLINE)},
    [MEMBER_ONLINE] = {"online", SM_TO(MEMBER_FAILED)},
    [MEMBER_REBUILDING] = {"rebuilding", SM_TO(MEMBER_ONLINE) | SM_TO(MEMBER_FAILED)},
    [MEMBER_FAILED] = {"failed", SM_TO(MEMBER_ABSENT)},
};

void member_init(struct member *member, unsigned slot, struct blkdev *dev, uint64_t data_start, enum member_state state)
{
    ASSERT(slot < RAID_MEMBERS_MAX && data_start % PAGE_BYTES == 0);
    ASSERT((dev == NULL) == (state == MEMBER_ABSENT) || state == MEMBER_FAILED);
    *member = (struct member){.slot = slot, .dev = dev, .data_start = data_start};
    sm_init(&member->state, states, ARRAY_LENGTH(states), state);
}

const char *member_state_name(enum member_state state)
{
    return (unsigned)state < ARRAY_LENGTH(states) ? states[state].name : "unknown";
}

/* Count one more in a window that begins with its first error. True: more than are forgiven. */
static bool window_exceeded(uint64_t *start_ns, uint64_t *count, uint64_t now_ns, uint64_t window_ns, uint64_t forgiven)
{
    if (*count == 0 || now_ns - *start_ns > window_ns) {
        *start_ns = now_ns;
        *count = 0;
    }
    return ++*count > forgiven;
}

uint64_t member_recent_errors(const struct member *member, uint64_t now_ns)
{
    uint64_t hours = now_ns / MEDIA_HALVED - member->errors_hour;
    return hours < 64 ? member->recent_errors >> hours : 0;
}

static bool media_exceeded(struct member *member, uint64_t off, uint64_t now_ns)
{
    uint64_t sector = off / SECTOR_BYTES;
    bool same =
        member->recent_errors > 0 && sector == member->error_sector && now_ns - member->error_sector_ns < SECOND_NS;
    member->error_sector = sector;
    member->error_sector_ns = now_ns;
    if (same)
        return false;
    member->recent_errors = member_recent_errors(member, now_ns) + 1;
    member->errors_hour = now_ns / MEDIA_HALVED;
    return member->recent_errors > MEMBER_FORGIVEN;
}

/* One stall of the disk, however many requests it holds up, counts once. */
static bool timeouts_exceeded(struct member *member, uint64_t now_ns)
{
    bool same = member->timeouts_in_window > 0 && now_ns - member->timeout_last_ns < SECOND_NS;
    member->timeout_last_ns = now_ns;
    return !same && window_exceeded(&member->timeout_window_start_ns, &member->timeouts_in_window, now_ns,
                                    TIMEOUT_WINDOW, FORGIVEN_TIMEOUTS);
}

enum member_action member_error(struct member *member, enum blk_op op, enum blk_status status, uint64_t off,
                                uint64_t now_ns)
{
    ASSERT(status != BLK_OK);
    if (op != BLK_READ) {
        member->write_errors++;
        return MEMBER_FAIL;
    }
    member->read_errors++;
    bool fail = true;
    if (status == BLK_MEDIA)
        fail = media_exceeded(member, off, now_ns);
    else if (status == BLK_TIMEOUT)
        fail = timeouts_exceeded(member, now_ns);
    return fail ? MEMBER_FAIL : MEMBER_KEEP;
}
