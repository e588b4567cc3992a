/*
 * TransportIDs of iSCSI (SPC-4 7.6.4.6): the name of an initiator port, or of an initiator with all its ports.
 *
 * Pure. What is read comes from a peer and may be anything.
 */
#ifndef TARGET_SCSI_TRANSPORT_ID_H
#define TARGET_SCSI_TRANSPORT_ID_H

#include <stdbool.h>
#include <stdint.h>

#include "target/scsi/reservation.h"

enum { TRANSPORT_ID_MAX = 4 + PORT_NAME_BYTES };

struct transport_id {
    bool device; /* the name of an initiator: no ISID */
    char name[PORT_NAME_BYTES];
};

/* The bytes it takes of the `len` at `bytes`; 0: there is none. */
uint32_t transport_id_read(const uint8_t *bytes, uint32_t len, struct transport_id *out);
/* The TransportID of a port; returns its bytes. */
uint32_t transport_id_write(uint8_t out[TRANSPORT_ID_MAX], const char *port);
/* Is it a port of this initiator? */
bool transport_id_covers(const struct transport_id *id, const char *port);

#endif
