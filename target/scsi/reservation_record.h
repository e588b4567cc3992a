/*
 * Persistent reservations as text, for keeping them through a loss of power (APTPL): a JSON object
 *
 *     {"generation": 7, "type": 5, "holder": 0, "registrations": ["00000000deadbeef iqn...,i,0x00023d000001", ...]}
 *
 * Pure. Reading treats the text as hostile.
 */
#ifndef TARGET_SCSI_RESERVATION_RECORD_H
#define TARGET_SCSI_RESERVATION_RECORD_H

#include "target/scsi/reservation.h"

/* NULL: no memory. The caller frees it. */
char *reservation_record_write(const struct reservations *now);
/* False: it is no record. */
bool reservation_record_read(const char *text, struct reservations *out);

#endif
