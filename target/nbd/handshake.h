/*
 * Inside the NBD target: the phase of options, from the greeting to GO.
 *
 * Bounded in every direction: an option's data by NBD_OPTION_DATA_MAX, what is sent at once by NBD_NEGOTIATION_OUT,
 * the whole by limits.negotiation_ns. One option is answered, and its answer taken by the socket, before the next one
 * is read. What goes wrong here ends the connection quietly: port scanners are no news.
 */
#ifndef TARGET_NBD_HANDSHAKE_H
#define TARGET_NBD_HANDSHAKE_H

#include "core/sm.h"
#include "target/nbd/protocol.h"

struct nbd_conn;
struct nbd_export;

/* Room for the longest answer that is built in one go: all pieces of INFO, or one entry of LIST. */
enum { NBD_NEGOTIATION_OUT = 16384 };

struct nbd_negotiation {
    struct timer timer;
    struct sm step;
    uint32_t client_flags;
    struct nbd_option_header option; /* the one at hand */
    uint32_t skip;                   /* bytes of its data still to be dropped ... */
    uint32_t refusal;                /* ... before this error is sent */
    const char *refusal_text;
    const struct nbd_export *next;   /* LIST: to be told next */
    const struct nbd_export *chosen; /* GO, EXPORT_NAME */
    uint32_t contexts;               /* SET_META_CONTEXT: bits, for ... */
    const char *contexts_of;         /* ... the export of this name */
    size_t out_start, out_end;
    uint8_t out[NBD_NEGOTIATION_OUT];
};

/* Greet, and take over the stream until nbd_conn_hand_over() or nbd_conn_cut(). */
void nbd_handshake_start(struct nbd_conn *conn);

#endif
