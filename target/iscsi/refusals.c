/* Refusals: see refusals.h. */
#include "target/iscsi/refusals.h"

#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "target/iscsi/iscsi.h"

#define MINUTE_NS (60 * 1000000000ull)

void name_for_people(char *out, size_t out_len, const char *name)
{
    size_t len = MIN(strlen(name), out_len - 1);
    for (size_t i = 0; i < len; i++)
        out[i] = name[i] > ' ' && name[i] < 0x7f ? name[i] : '?';
    out[len] = '\0';
}

/* May one more be shown? */
static bool is_shown(struct refusals *refusals, uint64_t now_ns)
{
    if (refusals->shown == 0 || now_ns - refusals->since_ns >= MINUTE_NS) {
        if (refusals->hidden > 0)
            log_notice("iSCSI: %u further refusals were not logged", refusals->hidden);
        *refusals = (struct refusals){.since_ns = now_ns};
    }
    bool shown = refusals->shown < REFUSALS_SHOWN;
    refusals->shown += shown;
    refusals->hidden += !shown;
    return shown;
}

void refusal_tell(struct refusals *refusals, uint64_t now_ns, const char *peer, const char *initiator,
                  const char *object, unsigned status, const char *why)
{
    char who[ISCSI_NAME_MAX + 1], what[ISCSI_NAME_MAX + 1];
    if (!is_shown(refusals, now_ns))
        return;
    name_for_people(who, sizeof who, initiator[0] != '\0' ? initiator : "someone");
    name_for_people(what, sizeof what, object[0] != '\0' ? object : "iSCSI");
    if (status != 0)
        log_notice("iSCSI: refused: %s at %s, to %s: %s (%04x)", who, peer, what, why, status);
    else
        log_notice("iSCSI: refused: %s at %s, to %s: %s", who, peer, what, why);
}
