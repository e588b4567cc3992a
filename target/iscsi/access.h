/*
 * Access lists: who may use a target, how he proves who he is, and what he then sees of it.
 *
 * A list is a row of rules (struct iscsi_rule, iscsi.h). A rule speaks for initiators whose name fits one of its
 * patterns and whose address lies in one of its networks; of those that speak for an initiator, the first that goes
 * with the way it authenticates itself counts: without CHAP the first without a user, with CHAP the first with the user
 * that it names.
 *
 * A list never changes once it is made; a new configuration makes a new one. It is counted by who holds it, on the
 * server's loop only; other loops read it while a connection of theirs holds it. Secrets are wiped when it is freed,
 * and are in nothing else.
 */
#ifndef TARGET_ISCSI_ACCESS_H
#define TARGET_ISCSI_ACCESS_H

#include "target/iscsi/iscsi.h"
#include "target/match.h"

struct access_rule {
    char *name;
    struct match_rule whom;
    char *user, *secret;               /* NULL: no CHAP */
    char *target_user, *target_secret; /* NULL: we cannot prove ourselves */
    struct scsi_view view;
    bool viewed; /* else all is seen as it is */
};

struct access_list {
    unsigned holders;
    unsigned count;
    struct access_rule rules[];
};

/* With one holder; NULL: a network that is none, or no memory. */
struct access_list *access_create(const struct iscsi_rule *rules, unsigned count);
/* Of a NULL nothing is counted. */
struct access_list *access_hold(struct access_list *list);
void access_release(struct access_list *list);

/* The first rule behind `after` (NULL: of all) that speaks for an initiator at a peer's address. NULL: none. */
const struct access_rule *access_next(const struct access_list *list, const struct access_rule *after,
                                      const char *initiator, const char *peer);
/* May it, if it can prove what is asked for? A list that is NULL admits everybody. */
bool access_admits(const struct access_list *list, const char *initiator, const char *peer);
/* Do two lists say the same of an initiator? */
bool access_same(const struct access_list *a, const struct access_list *b, const char *initiator, const char *peer);
/* Is there a rule, by name, in both that has another secret? */
bool access_secrets_differ(const struct access_list *a, const struct access_list *b);

#endif
