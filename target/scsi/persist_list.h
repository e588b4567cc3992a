/*
 * The parameter list of PERSISTENT RESERVE OUT (SPC-4 6.16.3, 6.16.4), from a peer: may be anything. Pure.
 */
#ifndef TARGET_SCSI_PERSIST_LIST_H
#define TARGET_SCSI_PERSIST_LIST_H

#include "target/scsi/transport_id.h"

/* The longest that makes sense: TransportIDs for all there can be. */
enum { PERSIST_LIST_BYTES = 24, PERSIST_LIST_MAX = PERSIST_LIST_BYTES + 4 + RESERVATIONS_MAX * TRANSPORT_ID_MAX };

struct persist_list {
    uint64_t key, action_key;
    bool spec_i_pt, aptpl, unregister;
    uint16_t port; /* MOVE: RELATIVE TARGET PORT IDENTIFIER */
    const uint8_t *ids;
    uint32_t ids_len; /* of TransportIDs; each is still to be checked */
};

/* PERSIST_GOOD, or what is wrong with it. `len` bytes came, of a list that is `said` long. */
enum persist_verdict persist_list_parse(const uint8_t *list, uint32_t len, uint32_t said, enum persist_action action,
                                        struct persist_list *out);

#endif
