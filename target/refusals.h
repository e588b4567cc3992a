/*
 * Refusals, told to people: who, from where, what, why. So many a minute, and then how many more there were; whoever
 * knocks a thousand times does not fill the log. One record for each loop that refuses.
 *
 * What a peer calls itself is shown with question marks for all but printable ASCII: it may not forge lines of the log.
 */
#ifndef TARGET_REFUSALS_H
#define TARGET_REFUSALS_H

#include <stddef.h>
#include <stdint.h>

enum { REFUSALS_SHOWN = 20 }; /* a minute */

struct refusals {
    uint64_t since_ns; /* the minute */
    uint32_t shown, hidden;
};

/* `who` and `object` may be "": not known. `status` 0: none was sent. */
void refusal_tell(struct refusals *refusals, uint64_t now_ns, const char *protocol, const char *peer, const char *who,
                  const char *object, unsigned status, const char *why);
void name_for_people(char *out, size_t out_len, const char *name);

#endif
