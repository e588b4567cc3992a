/*
 * Portals and their groups: at which addresses a target is told to be (RFC 7143, 13.8, 13.9, appendix C).
 *
 * A portal group is a set of portals with a tag; a target is served at all of them or at some. SendTargets tells, for
 * each target, the address the initiator came by if the target is served there, then the others of its groups.
 */
#include <errno.h>
#include <string.h>

#include "core/check.h"
#include "core/log.h"
#include "target/iscsi/connection.h"

bool target_at_group(const struct iscsi_target *target, uint16_t group)
{
    bool at = target->group_count == 0;
    for (unsigned i = 0; i < target->group_count; i++)
        at |= target->groups[i] == group;
    return at;
}

bool portal_list_add(struct portal_list *list, uint16_t group, const char *address)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->portals[i].group == group && strcmp(list->portals[i].address, address) == 0)
            return true;
    if (list->count == PORTALS_MAX)
        return false;
    struct portal *portal = &list->portals[list->count];
    portal->group = group;
    text_format(portal->address, sizeof portal->address, "%s", address);
    __atomic_store_n(&list->count, list->count + 1, __ATOMIC_RELEASE);
    return true;
}

static bool is_network_address(const char *address)
{
    return address[0] != '\0' && strncmp(address, "unix:", 5) != 0;
}

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]:", 6) == 0;
}

static void list_address(struct text_out *out, const char *address, uint16_t group)
{
    char tagged[ADDRESS_MAX + 8];
    text_format(tagged, sizeof tagged, "%s,%u", address, group);
    text_pair(out, "TargetAddress", tagged);
}

/* A target without an address would be looked for where the initiator is (appendix C): so it is not told then. */
void portals_list(const struct portal_list *list, const struct iscsi_target *target, const struct connection *conn,
                  struct text_out *out)
{
    uint32_t count = __atomic_load_n(&list->count, __ATOMIC_ACQUIRE);
    bool here = target_at_group(target, conn->group), named = here;
    if (here)
        text_pair(out, "TargetName", target->name);
    if (here && is_network_address(conn->local))
        list_address(out, conn->local, conn->group);
    for (uint32_t i = 0; i < count; i++) {
        const struct portal *portal = &list->portals[i];
        bool own = portal->group == conn->group && strcmp(portal->address, conn->local) == 0;
        bool reachable = !is_loopback(portal->address) || is_loopback(conn->local);
        if (own || !reachable || !target_at_group(target, portal->group))
            continue;
        if (!named)
            text_pair(out, "TargetName", target->name);
        named = true;
        list_address(out, portal->address, portal->group);
    }
}
