/*
 * Persistent reservations (SPC-4 5.12) as a value: who is registered at an LU, and who holds what.
 *
 * Pure. A PERSISTENT RESERVE OUT is an order from a registered port (or one that wants to be); it makes the next value
 * from the present one, says how the command ends, and which of the ports that were registered have news. So the caller
 * can bring the next value to where it is kept before it counts. command_persist_out.c does that.
 *
 * Registrations belong to an initiator port by its name ("iqn...,i,0x<isid>"), so they outlive sessions. A target has
 * one port here: ALL_TG_PT means the same as its absence.
 *
 * Invariants of a value: ports differ; type 0 means no reservation; else count > 0, and holder < count (of no meaning
 * when all registrants hold it).
 */
#ifndef TARGET_SCSI_RESERVATION_H
#define TARGET_SCSI_RESERVATION_H

#include <stdbool.h>
#include <stdint.h>

enum { RESERVATIONS_MAX = 64, PORT_NAME_BYTES = 256 };

/* SPC-4 table 74. */
enum persist_type {
    PERSIST_NONE = 0,
    PERSIST_WRITE_EXCLUSIVE = 1,
    PERSIST_EXCLUSIVE_ACCESS = 3,
    PERSIST_WRITE_EXCLUSIVE_REGISTRANTS = 5,
    PERSIST_EXCLUSIVE_ACCESS_REGISTRANTS = 6,
    PERSIST_WRITE_EXCLUSIVE_ALL = 7,
    PERSIST_EXCLUSIVE_ACCESS_ALL = 8,
};

struct registration {
    uint64_t key; /* not 0 */
    char port[PORT_NAME_BYTES];
};

struct reservations {
    uint32_t generation; /* PRGENERATION */
    bool aptpl;          /* to be kept through a loss of power */
    uint8_t type;        /* enum persist_type */
    unsigned holder, count;
    struct registration of[RESERVATIONS_MAX];
};

/* Service actions of PERSISTENT RESERVE OUT. */
enum persist_action {
    PERSIST_REGISTER,
    PERSIST_RESERVE,
    PERSIST_RELEASE,
    PERSIST_CLEAR,
    PERSIST_PREEMPT,
    PERSIST_PREEMPT_ABORT,
    PERSIST_REGISTER_IGNORE,
    PERSIST_MOVE,
};

struct persist_order {
    enum persist_action action;
    uint8_t scope, type;      /* as in the CDB */
    uint64_t key, action_key; /* RESERVATION KEY, SERVICE ACTION RESERVATION KEY */
    bool aptpl;
    bool for_others; /* REGISTER with SPEC_I_PT */
    bool unregister; /* MOVE: the one who moves it */
    const char *port;
    const char *to; /* MOVE */
};

enum persist_verdict {
    PERSIST_GOOD,
    PERSIST_CONFLICT,
    PERSIST_CDB_FIELD,
    PERSIST_LIST_FIELD,
    PERSIST_LIST_LENGTH,
    PERSIST_WRONG_RELEASE, /* 5/26/04 */
    PERSIST_FULL,          /* 5/55/04 */
};

/* What those who were registered are to hear, by their index in the present value. */
enum persist_news { NEWS_NONE, NEWS_CLEARED /* 2A/03 */, NEWS_RELEASED /* 2A/04 */, NEWS_PREEMPTED /* 2A/05 */ };

/* *next is of no meaning unless the verdict is PERSIST_GOOD; `news` is all NEWS_NONE then. */
enum persist_verdict reservations_change(const struct reservations *now, const struct persist_order *order,
                                         struct reservations *next, uint8_t news[RESERVATIONS_MAX]);
/* One more port, for REGISTER with SPEC_I_PT. */
enum persist_verdict reservations_add(struct reservations *next, const char *port, uint64_t key);

bool persist_same_port(const char *a, const char *b);
/* NULL: not registered. Ports are compared without regard to case. */
const struct registration *reservations_find(const struct reservations *now, const char *port);
bool reservations_hold(const struct reservations *now, const struct registration *of);
bool persist_type_exists(unsigned type);
bool persist_type_of_all(unsigned type); /* all registrants hold it */

/* What a command does to the medium, as far as persistent reservations care (SPC-4 tables 64 and 65, SBC-3 table
 * 13). */
enum persist_class { PERSIST_CHANGES, PERSIST_READS, PERSIST_HARMLESS };
/* May the port not do this? */
bool reservations_forbid(const struct reservations *now, const char *port, enum persist_class class);
/* RESERVE and RELEASE (6, 10) where persistent reservations are in use (SPC-4 5.12.3, CRH): they do nothing, or
 * conflict. */
enum persist_reserve { RESERVE_AS_EVER, RESERVE_NOTHING, RESERVE_CONFLICT };
enum persist_reserve reservations_reserve(const struct reservations *now, const char *port);

#endif
