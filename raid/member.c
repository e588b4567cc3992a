/* A member's states and error policy: see raid/member.h for the drawing. Values only: no I/O, no time of its own. */
#include "raid/member.h"

#include "core/check.h"

enum { FORGIVEN_MEDIA_ERRORS = 32, FORGIVEN_TIMEOUTS = 2 };
#define SECOND_NS      1000000000ull
#define MEDIA_WINDOW   (3600 * SECOND_NS)
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

enum member_action member_error(struct member *member, enum blk_op op, enum blk_status status, uint64_t now_ns)
{
    ASSERT(status != BLK_OK);
    if (op != BLK_READ) {
        member->write_errors++;
        return MEMBER_FAIL;
    }
    member->read_errors++;
    bool fail = true;
    if (status == BLK_MEDIA)
        fail = window_exceeded(&member->error_window_start_ns, &member->errors_in_window, now_ns, MEDIA_WINDOW,
                               FORGIVEN_MEDIA_ERRORS);
    else if (status == BLK_TIMEOUT)
        fail = window_exceeded(&member->timeout_window_start_ns, &member->timeouts_in_window, now_ns, TIMEOUT_WINDOW,
                               FORGIVEN_TIMEOUTS);
    return fail ? MEMBER_FAIL : MEMBER_KEEP;
}
