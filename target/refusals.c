/* Refusals: see refusals.h. */
#include "target/refusals.h"

#include <string.h>

#include "core/check.h"
#include "core/log.h"

#define MINUTE_NS (60 * 1000000000ull)
enum { SHOWN_MAX = 255 }; /* bytes of a name */

void name_for_people(char *out, size_t out_len, const char *name)
{
    size_t len = MIN(strlen(name), out_len - 1);
    for (size_t i = 0; i < len; i++)
        out[i] = name[i] > ' ' && name[i] < 0x7f ? name[i] : '?';
    out[len] = '\0';
}

/* May one more be shown? */
static bool is_shown(struct refusals *refusals, uint64_t now_ns, const char *protocol)
{
    if (refusals->shown == 0 || now_ns - refusals->since_ns >= MINUTE_NS) {
        if (refusals->hidden > 0)
            log_notice("%s: %u further refusals were not logged", protocol, refusals->hidden);
        *refusals = (struct refusals){.since_ns = now_ns};
    }
    bool shown = refusals->shown < REFUSALS_SHOWN;
    refusals->shown += shown;
    refusals->hidden += !shown;
    return shown;
}

void refusal_tell(struct refusals *refusals, uint64_t now_ns, const char *protocol, const char *peer, const char *who,
                  const char *object, unsigned status, const char *why)
{
    char name[SHOWN_MAX + 1], what[SHOWN_MAX + 1];
    if (!is_shown(refusals, now_ns, protocol))
        return;
    name_for_people(name, sizeof name, who[0] != '\0' ? who : "someone");
    name_for_people(what, sizeof what, object[0] != '\0' ? object : protocol);
    if (status != 0)
        log_notice("%s: refused: %s at %s, to %s: %s (%04x)", protocol, name, peer, what, why, status);
    else
        log_notice("%s: refused: %s at %s, to %s: %s", protocol, name, peer, what, why);
}
