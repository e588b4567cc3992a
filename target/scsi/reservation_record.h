/*
 * Persistent reservations as text, for keeping them through a loss of power (APTPL): a JSON object
 *
 *     {"generation": 7, "type": 5, "holder": 0, "registrations": ["00000000deadbeef iqn...,i,0x00023d000001", ...]}
 *
 * and, of an LU that is being sanitized (sanitize.h), "sanitize": 1, or 2 if it may be used as it is when that fails.
 *
 * Pure. Reading treats the text as hostile.
 */
#ifndef TARGET_SCSI_RESERVATION_RECORD_H
#define TARGET_SCSI_RESERVATION_RECORD_H

#include "target/scsi/reservation.h"

enum sanitize_mark { MARK_NONE, MARK_SANITIZING, MARK_EXIT_ALLOWED };

/* NULL: no memory. The caller frees it. */
char *reservation_record_write(const struct reservations *now, enum sanitize_mark mark);
/* False: it is no record. */
bool reservation_record_read(const char *text, struct reservations *out, enum sanitize_mark *mark);

#endif
