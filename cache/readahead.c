/* See cache/readahead.h. */
#include "cache/readahead.h"

#include <string.h>

#include "core/check.h"

enum { SLACK = 64, DEGREE_MAX = 2048, STEPS_MAX = READAHEAD_RUNS, STALE_LOOKS = 8 };

void readahead_init(struct readahead *a, enum readahead_mode mode, uint32_t row, uint32_t most)
{
    *a = (struct readahead){.mode = mode, .row = row, .most = most};
}

static bool is_established(const struct readahead_stream *s)
{
    return s->kind == STREAM_STRIDED ? s->seen >= 3 : s->kind != STREAM_NEW;
}

/* --- which stream --- */

/* Requests in flight together may come in another order: somewhat before and behind the end is the same stream. */
static bool continues(const struct readahead_stream *s, uint64_t first, uint64_t end)
{
    switch ((enum stream_kind)s->kind) {
    case STREAM_NEW:
        return first == s->end || end == s->first;
    case STREAM_FORWARD:
        return end + SLACK > s->end && first <= s->end + SLACK;
    case STREAM_BACKWARD:
        return first < s->first + SLACK && end + SLACK >= s->first;
    case STREAM_STRIDED:
        return first == s->first + (uint64_t)s->stride && s->used != 0;
    }
    return false;
}

static bool is_near(const struct readahead_stream *s, uint64_t first)
{
    uint64_t far = first > s->first ? first - s->first : s->first - first;
    return far > 0 && far <= STRIDE_MAX && (s->kind == STREAM_NEW || (s->kind == STREAM_STRIDED && s->seen < 3));
}

static struct readahead_stream *find(struct readahead *a, uint64_t first, uint64_t end)
{
    struct readahead_stream *near = NULL;
    for (unsigned i = 0; i < READAHEAD_STREAMS; i++) {
        struct readahead_stream *s = &a->streams[i];
        if (s->seen == 0)
            continue;
        if (continues(s, first, end) || (s->first == first && s->end == end))
            return s;
        if (is_near(s, first) && (near == NULL || s->used > near->used))
            near = s;
    }
    return near;
}

static void begin(struct readahead *a, uint64_t first, uint64_t end)
{
    struct readahead_stream *oldest = &a->streams[0];
    for (unsigned i = 1; i < READAHEAD_STREAMS && oldest->seen > 0; i++)
        if (a->streams[i].used < oldest->used)
            oldest = &a->streams[i];
    a->established -= oldest->seen > 0 && is_established(oldest);
    *oldest = (struct readahead_stream){.first = first, .end = end, .used = a->reads, .seen = 1};
}

/* --- plans --- */

static uint32_t degree_max(const struct readahead *a)
{
    uint32_t share = a->most / MAX(a->established, 1u);
    return MAX(MIN(share, (uint32_t)DEGREE_MAX), 1u);
}

/* What there is room for. */
static void plan_add(struct readahead_plan *plan, uint64_t first, uint64_t count)
{
    if (count == 0 || count > plan->room || plan->count == READAHEAD_RUNS)
        return;
    plan->room -= (uint32_t)count;
    plan->runs[plan->count++] = (struct readahead_run){first, (uint32_t)count};
}

static void grow(const struct readahead *a, struct readahead_stream *s)
{
    s->degree = MIN(s->degree * 2, degree_max(a));
    s->trigger = MIN(s->trigger, s->degree / 2 + 1);
}

/* To the end of a row, if it is a row and more. */
static void plan_forward(const struct readahead *a, struct readahead_stream *s, struct readahead_plan *plan)
{
    s->edge = MAX(s->edge, s->end);
    uint64_t degree = MIN(s->degree, plan->room), end = s->edge + degree;
    if (s->edge - s->end > s->trigger || degree == 0)
        return;
    if (degree >= a->row)
        end = MAX(round_down(end, a->row), s->edge + 1);
    plan_add(plan, s->edge, end - s->edge);
    s->edge = end;
    grow(a, s);
}

static void plan_backward(const struct readahead *a, struct readahead_stream *s, struct readahead_plan *plan)
{
    s->edge = MIN(s->edge, s->first);
    uint64_t degree = MIN(MIN(s->degree, plan->room), s->edge), from = s->edge - degree;
    if (s->first - s->edge > s->trigger || degree == 0)
        return;
    if (degree >= a->row)
        from = MIN(round_up(from, a->row), s->edge - 1);
    plan_add(plan, from, s->edge - from);
    s->edge = from;
    grow(a, s);
}

static void plan_strided(struct readahead_stream *s, struct readahead_plan *plan)
{
    uint64_t count = s->end - s->first;
    if (s->steps > s->trigger)
        return;
    while (s->steps < s->degree && plan->count < READAHEAD_RUNS && count <= plan->room) {
        int64_t at = (int64_t)s->first + s->stride * (int64_t)(s->steps + 1);
        if (at < 0)
            break;
        plan_add(plan, (uint64_t)at, count);
        s->steps++;
    }
    s->degree = MIN(s->degree * 2, (uint32_t)STEPS_MAX);
}

static void plan_stream(const struct readahead *a, struct readahead_stream *s, struct readahead_plan *plan)
{
    if (s->kind == STREAM_FORWARD)
        plan_forward(a, s, plan);
    else if (s->kind == STREAM_BACKWARD)
        plan_backward(a, s, plan);
    else if (is_established(s))
        plan_strided(s, plan);
}

/* --- a stream goes on --- */

static void becomes(struct readahead *a, struct readahead_stream *s, uint64_t first, uint64_t end)
{
    uint32_t count = (uint32_t)(end - first);
    if (first == s->end || end == s->first) {
        s->kind = first == s->end ? STREAM_FORWARD : STREAM_BACKWARD;
        s->edge = s->kind == STREAM_FORWARD ? end : first;
        s->degree = MIN(MAX(4 * count, MIN(a->row, degree_max(a))), degree_max(a));
        s->trigger = count;
        a->established++;
    } else {
        s->kind = STREAM_STRIDED;
        s->stride = (int64_t)(first - s->first);
        s->seen = 1;
        s->degree = 2;
        s->trigger = 1;
        s->steps = 0;
    }
}

/* If it was asked for and is not here all the same, it is asked for again. */
static void advance(struct readahead *a, struct readahead_stream *s, uint64_t first, uint64_t end, bool missed)
{
    if (s->kind == STREAM_NEW || !continues(s, first, end))
        becomes(a, s, first, end);
    else if (s->kind == STREAM_STRIDED && s->seen == 2)
        a->established++;
    s->seen = (uint8_t)MIN(s->seen + 1, 255);
    s->steps -= s->kind == STREAM_STRIDED && s->steps > 0;
    s->end = s->kind == STREAM_FORWARD ? MAX(s->end, end) : end;
    s->first = s->kind == STREAM_BACKWARD ? MIN(s->first, first) : first;
    if (missed) {
        s->edge = s->kind == STREAM_FORWARD ? s->end : s->first;
        s->steps = 0;
    }
}

void readahead_plan(struct readahead *a, const struct readahead_read *read, uint32_t room, struct readahead_plan *plan)
{
    uint64_t first = read->first, end = first + read->count;
    *plan = (struct readahead_plan){.room = room};
    if (a->mode == READAHEAD_NONE)
        return;
    a->reads++;
    struct readahead_stream *s = find(a, first, end);
    if (s == NULL) {
        begin(a, first, end);
    } else if (s->first == first && s->end == end) {
        s->used = a->reads; /* the same again */
    } else {
        advance(a, s, first, end, read->missed);
        s->used = a->reads;
        plan_stream(a, s, plan);
    }
}

/* --- what became of it --- */

static struct readahead_stream *stream_of(struct readahead *a, uint64_t block)
{
    for (unsigned i = 0; i < READAHEAD_STREAMS; i++) {
        struct readahead_stream *s = &a->streams[i];
        bool forward = s->kind == STREAM_FORWARD && block + s->degree >= s->end && block < s->edge;
        bool backward = s->kind == STREAM_BACKWARD && block >= s->edge && block < s->first + s->degree;
        if (forward || backward)
            return s;
    }
    return NULL;
}

void readahead_late(struct readahead *a, uint64_t block)
{
    struct readahead_stream *s = stream_of(a, block);
    if (s != NULL)
        s->trigger = MIN(s->trigger * 2, s->degree);
}

void readahead_wasted(struct readahead *a, uint64_t block)
{
    struct readahead_stream *s = stream_of(a, block);
    if (s == NULL)
        return;
    s->degree = MAX(s->degree / 2, 1u);
    s->trigger = MIN(s->trigger, s->degree);
}

/* --- what is stale --- */

static void asked_pop(struct readahead *a, struct readahead_run *run)
{
    *run = a->asked[a->asked_first];
    a->asked_first = (a->asked_first + 1) % READAHEAD_ASKED;
    a->asked_count--;
}

void readahead_asked(struct readahead *a, const struct readahead_run *run)
{
    struct readahead_run oldest;
    if (a->asked_count == READAHEAD_ASKED)
        asked_pop(a, &oldest);
    a->asked[(a->asked_first + a->asked_count++) % READAHEAD_ASKED] = *run;
}

/* In front of it, as far as it is ever asked for: also what it would ask for again. */
static bool comes_to(const struct readahead_stream *s, uint64_t block)
{
    int64_t far = (int64_t)(block - s->first);
    switch ((enum stream_kind)s->kind) {
    case STREAM_NEW:
        return false;
    case STREAM_FORWARD:
        return block + SLACK >= s->end && block < s->end + DEGREE_MAX;
    case STREAM_BACKWARD:
        return block < s->first + SLACK && block + DEGREE_MAX >= s->first;
    case STREAM_STRIDED:
        return far / s->stride >= 0 && far / s->stride <= STEPS_MAX;
    }
    return false;
}

static bool is_awaited(const struct readahead *a, uint64_t block)
{
    for (unsigned i = 0; i < READAHEAD_STREAMS; i++)
        if (comes_to(&a->streams[i], block))
            return true;
    return false;
}

bool readahead_stale(struct readahead *a, struct readahead_run *run)
{
    for (unsigned i = 0; i < STALE_LOOKS && a->asked_count > 0; i++) {
        asked_pop(a, run);
        if (!is_awaited(a, run->first) && !is_awaited(a, run->first + run->count - 1))
            return true;
        readahead_asked(a, run);
    }
    return false;
}
