/* The parameter list of PERSISTENT RESERVE OUT: see persist_list.h. */
#include "target/scsi/persist_list.h"

#include "core/bytes.h"

enum { SPEC_I_PT = 0x08, APTPL = 0x01, MOVE_UNREG = 0x02, MOVE_APTPL = 0x01 };

static enum persist_verdict parse_move(const uint8_t *list, uint32_t len, struct persist_list *out)
{
    out->unregister = (list[17] & MOVE_UNREG) != 0;
    out->aptpl = (list[17] & MOVE_APTPL) != 0;
    out->port = get_be16(list + 18);
    out->ids = list + PERSIST_LIST_BYTES;
    out->ids_len = get_be32(list + 20);
    return out->ids_len == len - PERSIST_LIST_BYTES ? PERSIST_GOOD : PERSIST_LIST_LENGTH;
}

/* ALL_TG_PT needs no look: there is one port. */
static enum persist_verdict parse_plain(const uint8_t *list, uint32_t len, enum persist_action action,
                                        struct persist_list *out)
{
    out->aptpl = (list[20] & APTPL) != 0;
    out->spec_i_pt = (list[20] & SPEC_I_PT) != 0;
    if (!out->spec_i_pt)
        return len == PERSIST_LIST_BYTES ? PERSIST_GOOD : PERSIST_LIST_LENGTH;
    if (action != PERSIST_REGISTER)
        return PERSIST_LIST_FIELD;
    if (len < PERSIST_LIST_BYTES + 4)
        return PERSIST_LIST_LENGTH;
    out->ids = list + PERSIST_LIST_BYTES + 4;
    out->ids_len = get_be32(list + PERSIST_LIST_BYTES);
    return out->ids_len == len - PERSIST_LIST_BYTES - 4 ? PERSIST_GOOD : PERSIST_LIST_LENGTH;
}

enum persist_verdict persist_list_parse(const uint8_t *list, uint32_t len, uint32_t said, enum persist_action action,
                                        struct persist_list *out)
{
    *out = (struct persist_list){0};
    if (said > PERSIST_LIST_MAX)
        return PERSIST_FULL;
    if (len != said || len < PERSIST_LIST_BYTES)
        return PERSIST_LIST_LENGTH;
    out->key = get_be64(list);
    out->action_key = get_be64(list + 8);
    return action == PERSIST_MOVE ? parse_move(list, len, out) : parse_plain(list, len, action, out);
}
