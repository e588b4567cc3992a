/*
 * What a upsd may send: byte 0 says whether a login goes before, the rest are its answers to one question after the
 * other. Fed in one piece and torn, they must mean the same, and a reading must be one that a judge can take.
 */
#include <string.h>

#include "core/check.h"
#include "core/crc32c.h"
#include "daemon/power_upsd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* A sum over all events. */
static uint32_t converse(const uint8_t *data, size_t len, bool login, size_t piece)
{
    struct upsd_talk talk;
    struct power_judge judge;
    struct power_limits limits = {.charge_min = 30, .runtime_min_s = 60};
    char out[UPSD_ASK_MAX];
    uint32_t sum = 0;
    enum upsd_event event = UPSD_MORE;
    size_t used = 0;
    power_judge_init(&judge, &limits);
    upsd_talk_begin(&talk, "ups", login ? "user" : "", "secret", out);
    upsd_talk_ask(&talk, out);
    for (size_t at = 0; at < len && event != UPSD_BROKEN; at += used) {
        event = upsd_talk_feed(&talk, (const char *)data + at, MIN(piece, len - at), &used);
        ASSERT(used > 0 && used <= MIN(piece, len - at) && (event != UPSD_MORE || used == MIN(piece, len - at)));
        if (event == UPSD_MORE)
            continue;
        sum = crc32c(sum, &event, sizeof event);
        if (event == UPSD_READING) {
            power_judge_read(&judge, &talk.reading, at);
            sum = crc32c(sum, &talk.reading, sizeof talk.reading);
        } else {
            ASSERT(talk.why[0] != '\0');
            power_judge_error(&judge, talk.why);
        }
        ASSERT(power_judge_look(&judge, at).healthy ? event == UPSD_READING : true);
        if (event != UPSD_BROKEN)
            upsd_talk_ask(&talk, out);
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len == 0)
        return 0;
    bool login = data[0] & 1;
    uint32_t whole = converse(data + 1, len - 1, login, SIZE_MAX);
    ASSERT(converse(data + 1, len - 1, login, 1) == whole);
    ASSERT(converse(data + 1, len - 1, login, 1 + len / 3) == whole);
    return 0;
}
