/*
 * Sessions with iSCSI targets, by libiscsi: see daemon/remote.h.
 *
 *      connect --> log in --> questions, one after the other --> ready
 *         ^           |
 *         +-----------+  the target is elsewhere
 *
 * libiscsi would repair a session by itself and repeat what was under way, writes too; that is turned off. A member's
 * session has an ISID made from its URI, so that its successor reinstates it and the target ends what it left behind;
 * a session for a look has one of its own.
 *
 * libiscsi gathers and scatters, so the data needs no run of memory. It allocates a little for each command.
 */
#include "daemon/disk_iscsi.h"

#include <assert.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/check.h"
#include "core/crc32c.h"
#include "core/log.h"
#include "daemon/remote.h"
#include "daemon/remote_uri.h"
#include "daemon/secrets.h"

static_assert(sizeof(struct iovec) == sizeof(struct scsi_iovec) &&
                  offsetof(struct iovec, iov_len) == offsetof(struct scsi_iovec, iov_len),
              "lists of one can be given as lists of the other");

enum { ANSWER_BYTES = 255, MOVES_MAX = 3, SENSE_RESET = 0x29, BLOCKS_PER_COMMAND = INT32_MAX };

struct iscsi_session {
    struct remote_session session;
    struct iscsi_context *iscsi;
    struct remote_iscsi_uri uri;
    unsigned question; /* that is under way */
    unsigned moves;    /* to where the target said it is */
    bool tuned, ending, broken;
    uint8_t zeroes[PAGE_BYTES];
};

static struct iscsi_session *iscsi_of(struct remote_session *session)
{
    return container_of(session, struct iscsi_session, session);
}

static bool break_up(struct iscsi_session *s, const char *why)
{
    s->broken = true;
    if (s->session.why[0] == '\0')
        text_format(s->session.why, sizeof s->session.why, "%s", why);
    return false;
}

/* What libiscsi says begins with the name of a function; of a connection that was lost it says no more than that it
 * does not repair it. */
static bool break_up_by_library(struct iscsi_session *s)
{
    char text[200];
    const char *error = iscsi_get_error(s->iscsi);
    if (strncmp(error, "iscsi_", 6) == 0)
        error += strcspn(error, ":. ");
    error += strspn(error, ":. ");
    bool lost = error[0] == '\0' || strncmp(error, "Can not reconnect", 17) == 0;
    text_format(text, sizeof text, "%s", lost ? "the connection was lost" : error);
    text[strcspn(text, "\n")] = '\0';
    return break_up(s, text);
}

/* --- what answers mean --- */

enum iscsi_verdict iscsi_judge(enum blk_op op, const struct iscsi_answer *answer, enum blk_status *status)
{
    enum { ANY = 0x100 };
    static const struct {
        unsigned key, asc, ascq; /* ANY: any */
        enum iscsi_verdict verdict;
        enum blk_status status;
    } senses[] = {
        {SCSI_SENSE_UNIT_ATTENTION, SENSE_RESET, ANY, ISCSI_RESET, BLK_GONE},
        {SCSI_SENSE_UNIT_ATTENTION, 0x28, ANY, ISCSI_RESET, BLK_GONE},     /* another medium, it may be */
        {SCSI_SENSE_UNIT_ATTENTION, 0x2a, 0x01, ISCSI_MODES, BLK_TIMEOUT}, /* mode parameters changed */
        {SCSI_SENSE_UNIT_ATTENTION, ANY, ANY, ISCSI_AGAIN, BLK_TIMEOUT},
        {SCSI_SENSE_COMMAND_ABORTED, ANY, ANY, ISCSI_AGAIN, BLK_TIMEOUT},
        {SCSI_SENSE_NOT_READY, 0x04, 0x01, ISCSI_AGAIN, BLK_TIMEOUT}, /* becoming ready */
        {SCSI_SENSE_NOT_READY, ANY, ANY, ISCSI_OVER, BLK_GONE},
        {SCSI_SENSE_MEDIUM_ERROR, ANY, ANY, ISCSI_OVER, BLK_MEDIA},
        {SCSI_SENSE_HARDWARE_ERROR, ANY, ANY, ISCSI_OVER, BLK_MEDIA},
        {SCSI_SENSE_DATA_PROTECTION, 0x27, 0x07, ISCSI_OVER, BLK_NOSPACE}, /* space allocation failed */
        {SCSI_SENSE_DATA_PROTECTION, ANY, ANY, ISCSI_OVER, BLK_READONLY},
        {SCSI_SENSE_ILLEGAL_REQUEST, 0x25, ANY, ISCSI_OVER, BLK_GONE}, /* logical unit not supported */
        {SCSI_SENSE_ILLEGAL_REQUEST, ANY, ANY, ISCSI_OVER, BLK_INVALID},
    };
    enum iscsi_verdict verdict = ISCSI_OVER;
    *status = BLK_MEDIA;
    if (answer->status == SCSI_STATUS_GOOD || answer->status == SCSI_STATUS_CONDITION_MET)
        *status = BLK_OK;
    else if (answer->status == SCSI_STATUS_BUSY || answer->status == SCSI_STATUS_TASK_SET_FULL)
        verdict = ISCSI_AGAIN;
    else if (answer->status == SCSI_STATUS_RESERVATION_CONFLICT)
        *status = BLK_READONLY;
    else if (answer->status == SCSI_STATUS_TASK_ABORTED)
        *status = BLK_TIMEOUT;
    else if (answer->status == SCSI_STATUS_CHECK_CONDITION)
        for (unsigned i = ARRAY_LENGTH(senses); i-- > 0;) /* the first that fits */
            if (senses[i].key == answer->key && (senses[i].asc == ANY || senses[i].asc == answer->ascq >> 8) &&
                (senses[i].ascq == ANY || senses[i].ascq == (answer->ascq & 0xff))) {
                verdict = senses[i].verdict;
                *status = senses[i].status;
            }
    if (op == BLK_FLUSH && *status == BLK_MEDIA)
        *status = BLK_GONE; /* what it had acknowledged may be lost */
    return verdict;
}

static enum iscsi_verdict judge(enum blk_op op, int status, const struct scsi_task *task, enum blk_status *out)
{
    struct iscsi_answer answer = {.status = (unsigned)status};
    if (task != NULL && status == SCSI_STATUS_CHECK_CONDITION) {
        answer.key = task->sense.key;
        answer.ascq = (unsigned)task->sense.ascq;
    }
    return iscsi_judge(op, &answer, out);
}

static bool is_broken_status(int status)
{
    return status == (int)SCSI_STATUS_CANCELLED || status == (int)SCSI_STATUS_ERROR ||
           status == (int)SCSI_STATUS_TIMEOUT;
}

/* --- questions --- */

static struct scsi_task *ask_ready(struct iscsi_session *s, iscsi_command_cb done)
{
    return iscsi_testunitready_task(s->iscsi, (int)s->uri.lun, done, s);
}

static struct scsi_task *ask_capacity(struct iscsi_session *s, iscsi_command_cb done)
{
    return iscsi_readcapacity16_task(s->iscsi, (int)s->uri.lun, done, s);
}

static struct scsi_task *ask_page(struct iscsi_session *s, int page, iscsi_command_cb done)
{
    return iscsi_inquiry_task(s->iscsi, (int)s->uri.lun, 1, page, ANSWER_BYTES, done, s);
}

static struct scsi_task *ask_limits(struct iscsi_session *s, iscsi_command_cb done)
{
    return ask_page(s, SCSI_INQUIRY_PAGECODE_BLOCK_LIMITS, done);
}

static struct scsi_task *ask_provisioning(struct iscsi_session *s, iscsi_command_cb done)
{
    return ask_page(s, SCSI_INQUIRY_PAGECODE_LOGICAL_BLOCK_PROVISIONING, done);
}

static struct scsi_task *ask_kind(struct iscsi_session *s, iscsi_command_cb done)
{
    return ask_page(s, SCSI_INQUIRY_PAGECODE_BLOCK_DEVICE_CHARACTERISTICS, done);
}

static struct scsi_task *ask_identity(struct iscsi_session *s, iscsi_command_cb done)
{
    return ask_page(s, SCSI_INQUIRY_PAGECODE_DEVICE_IDENTIFICATION, done);
}

static struct scsi_task *ask_caching(struct iscsi_session *s, iscsi_command_cb done)
{
    return iscsi_modesense6_task(s->iscsi, (int)s->uri.lun, 1, SCSI_MODESENSE_PC_CURRENT, SCSI_MODEPAGE_CACHING, 0,
                                 ANSWER_BYTES, done, s);
}

static void hear_ready(struct remote_facts *facts, struct scsi_task *task)
{
    (void)facts, (void)task;
}

static void hear_capacity(struct remote_facts *facts, struct scsi_task *task)
{
    const struct scsi_readcapacity16 *capacity = scsi_datain_unmarshall(task);
    if (capacity == NULL || capacity->block_length == 0 || capacity->returned_lba >= UINT64_MAX / PAGE_BYTES)
        return;
    facts->info.logical_block = capacity->block_length;
    facts->info.physical_block = capacity->block_length << MIN(capacity->lbppbe, 8);
    facts->info.physical_block = MIN(facts->info.physical_block, (uint32_t)PAGE_BYTES);
    facts->info.size = (capacity->returned_lba + 1) * capacity->block_length;
    /* Not discard_zeroes by LBPRZ: an UNMAP is a hint, what is not unmapped keeps its bytes. */
}

static void hear_limits(struct remote_facts *facts, struct scsi_task *task)
{
    const struct scsi_inquiry_block_limits *limits = scsi_datain_unmarshall(task);
    uint64_t block = facts->info.logical_block;
    if (limits == NULL)
        return;
    if (limits->max_xfer_len != 0)
        facts->transfer_max = MIN(facts->transfer_max, limits->max_xfer_len * block);
    if (limits->max_ws_len != 0)
        facts->zero_max = MIN(limits->max_ws_len, (uint64_t)BLOCKS_PER_COMMAND) * block;
    facts->discard_max = limits->max_unmap_bdc != 0 ? limits->max_unmap * block : 0;
}

static void hear_provisioning(struct remote_facts *facts, struct scsi_task *task)
{
    const struct scsi_inquiry_logical_block_provisioning *lbp = scsi_datain_unmarshall(task);
    if (lbp == NULL || !lbp->lbpu)
        facts->discard_max = 0;
}

static void hear_kind(struct remote_facts *facts, struct scsi_task *task)
{
    const struct scsi_inquiry_block_device_characteristics *kind = scsi_datain_unmarshall(task);
    facts->info.rotational = kind != NULL && kind->medium_rotation_rate > 1;
}

/* The best designator of the logical unit, as text. */
static void hear_identity(struct remote_facts *facts, struct scsi_task *task)
{
    static const enum scsi_designator_type order[] = {SCSI_DESIGNATOR_TYPE_NAA, SCSI_DESIGNATOR_TYPE_EUI_64,
                                                      SCSI_DESIGNATOR_TYPE_SCSI_NAME_STRING,
                                                      SCSI_DESIGNATOR_TYPE_T10_VENDORT_ID};
    const struct scsi_inquiry_device_identification *page = scsi_datain_unmarshall(task);
    for (unsigned i = 0; page != NULL && i < ARRAY_LENGTH(order); i++)
        for (const struct scsi_inquiry_device_designator *d = page->designators; d != NULL; d = d->next) {
            if (d->designator_type != order[i] || d->association != SCSI_ASSOCIATION_LOGICAL_UNIT)
                continue;
            size_t used = 0;
            text_format(facts->identity, sizeof facts->identity, "%s.", i == 0 ? "naa" : i == 1 ? "eui" : "t10");
            for (int b = 0; b < d->designator_length && used < sizeof facts->identity; b++) {
                used = strlen(facts->identity);
                text_format(facts->identity + used, sizeof facts->identity - used, "%02x",
                            (unsigned char)d->designator[b]);
            }
            return;
        }
}

static void hear_caching(struct remote_facts *facts, struct scsi_task *task)
{
    struct scsi_mode_sense *mode = scsi_datain_unmarshall(task);
    const struct scsi_mode_page *page = mode != NULL ? scsi_modesense_get_page(mode, SCSI_MODEPAGE_CACHING, 0) : NULL;
    if (mode != NULL) {
        facts->info.read_only = (mode->device_specific_parameter & 0x80) != 0; /* WP, SBC-3 6.4.1 */
        facts->fua = (mode->device_specific_parameter & 0x10) != 0;            /* DPOFUA; WRITE SAME has none */
    }
    if (page != NULL)
        facts->info.volatile_cache = page->caching.wce != 0;
}

/* A question that a target cannot answer says no more than that; but the capacity must be known. */
static const struct {
    struct scsi_task *(*ask)(struct iscsi_session *, iscsi_command_cb);
    void (*hear)(struct remote_facts *, struct scsi_task *);
} questions[] = {{ask_ready, hear_ready},    {ask_capacity, hear_capacity},
                 {ask_limits, hear_limits},  {ask_provisioning, hear_provisioning},
                 {ask_kind, hear_kind},      {ask_identity, hear_identity},
                 {ask_caching, hear_caching}};

static void heard(struct iscsi_context *iscsi, int status, void *data, void *session);

static void ask(struct iscsi_session *s)
{
    if (s->question == ARRAY_LENGTH(questions) && s->session.facts.info.size == 0)
        break_up(s, "the target does not tell its capacity: is there such a LUN?");
    else if (s->question == ARRAY_LENGTH(questions))
        s->session.ready = true;
    else if (questions[s->question].ask(s, heard) == NULL)
        break_up_by_library(s);
}

static void heard(struct iscsi_context *iscsi, int status, void *data, void *session)
{
    struct iscsi_session *s = session;
    struct scsi_task *task = data;
    enum blk_status unused;
    (void)iscsi;
    if (s->ending || is_broken_status(status)) {
        if (!s->ending)
            break_up_by_library(s);
    } else if (judge(BLK_READ, status, task, &unused) != ISCSI_OVER) {
        ask(s); /* a unit attention, of a session just begun */
    } else {
        if (status == SCSI_STATUS_GOOD)
            questions[s->question].hear(&s->session.facts, task);
        s->question++;
        ask(s);
    }
    if (task != NULL)
        scsi_free_scsi_task(task);
}

/* --- the beginning --- */

static void connected(struct iscsi_context *iscsi, int status, void *data, void *session);

static void logged_in(struct iscsi_context *iscsi, int status, void *data, void *session)
{
    struct iscsi_session *s = session;
    (void)data;
    if (s->ending)
        return;
    if (status == SCSI_STATUS_GOOD)
        ask(s);
    else if (status != SCSI_STATUS_REDIRECT || s->moves++ == MOVES_MAX || iscsi_disconnect(iscsi) != 0 ||
             iscsi_connect_async(iscsi, iscsi_get_target_address(iscsi), connected, s) != 0)
        break_up_by_library(s);
}

/* Twice: there it is, and (not while we end it) the connection was lost. */
static void connected(struct iscsi_context *iscsi, int status, void *data, void *session)
{
    struct iscsi_session *s = session;
    (void)data;
    if (s->ending)
        return;
    if (status != SCSI_STATUS_GOOD || iscsi_login_async(iscsi, logged_in, s) != 0)
        break_up_by_library(s);
}

/* The name the machine's initiator has, if there is one; else one of our own. */
static void initiator_name(const struct remote_iscsi_uri *uri, char *out, size_t len)
{
    char line[256], name[224] = "", host[128] = "host";
    FILE *file = uri->initiator[0] == '\0' ? fopen("/etc/iscsi/initiatorname.iscsi", "re") : NULL;
    while (file != NULL && name[0] == '\0' && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, " InitiatorName = %223s", name) != 1)
            name[0] = '\0';
    if (file != NULL)
        fclose(file);
    gethostname(host, sizeof host - 1);
    for (char *p = host; *p != '\0'; p++)
        *p = (char)(*p >= 'A' && *p <= 'Z' ? *p - 'A' + 'a' : *p);
    if (uri->initiator[0] != '\0' || name[0] != '\0')
        text_format(out, len, "%s", uri->initiator[0] != '\0' ? uri->initiator : name);
    else
        text_format(out, len, "iqn.2026-01.org.corbel:%s", host);
}

/* RFC 7143 11.12.5: the same ISID reinstates the session, another one is another session. */
static void set_isid(struct iscsi_session *s, const char *uri, bool member)
{
    uint32_t number = crc32c(0, uri, strlen(uri));
    if (!member && getrandom(&number, sizeof number, 0) != sizeof number)
        number++;
    iscsi_set_isid_random(s->iscsi, number & 0xffffff, member ? 0 : 1);
}

static bool set_secret(struct iscsi_session *s, const char *user, const char *file, bool of_target)
{
    struct secret secret;
    if (user[0] == '\0')
        return true;
    if (!secret_read(file, true, &secret, s->session.why, sizeof s->session.why))
        return false;
    int error = of_target ? iscsi_set_target_username_pwd(s->iscsi, user, secret.text)
                          : iscsi_set_initiator_username_pwd(s->iscsi, user, secret.text);
    secret_wipe(&secret);
    return error == 0 || break_up_by_library(s);
}

static bool set_up(struct iscsi_session *s, const char *uri, bool member)
{
    iscsi_set_targetname(s->iscsi, s->uri.target);
    iscsi_set_session_type(s->iscsi, ISCSI_SESSION_NORMAL);
    iscsi_set_header_digest(s->iscsi, ISCSI_HEADER_DIGEST_NONE_CRC32C);
    iscsi_set_noautoreconnect(s->iscsi, 1);
    set_isid(s, uri, member);
    if (!set_secret(s, s->uri.user, s->uri.secret_file, false) ||
        !set_secret(s, s->uri.target_user, s->uri.target_secret_file, true))
        return false;
    return iscsi_connect_async(s->iscsi, s->uri.portal, connected, s) == 0 || break_up_by_library(s);
}

static void first_facts(struct remote_facts *facts, const char *uri)
{
    *facts = (struct remote_facts){
        .info = {.volatile_cache = true}, .transfer_max = REMOTE_TRANSFER_MAX, .zero_max = REMOTE_ZERO_MAX};
    remote_uri_identity(uri, facts->identity, sizeof facts->identity);
}

static void iscsi_end(struct remote_session *session, bool broken);

static struct remote_session *iscsi_begin(const char *uri, bool member, char *why, size_t why_len)
{
    struct iscsi_session *s = calloc(1, sizeof *s);
    char name[256];
    if (s == NULL) {
        text_format(why, why_len, "out of memory");
        return NULL;
    }
    if (!remote_iscsi_uri_parse(uri, &s->uri, why, why_len)) {
        free(s);
        return NULL;
    }
    s->session.driver = &remote_iscsi;
    TAILQ_INIT(&s->session.answered);
    first_facts(&s->session.facts, uri);
    initiator_name(&s->uri, name, sizeof name);
    s->iscsi = iscsi_create_context(name);
    if (s->iscsi != NULL && set_up(s, uri, member))
        return &s->session;
    text_format(why, why_len, "%s", s->iscsi == NULL ? "out of memory" : s->session.why);
    iscsi_end(&s->session, true);
    return NULL;
}

/* --- going on --- */

static int iscsi_fd(struct remote_session *session)
{
    return iscsi_get_fd(iscsi_of(session)->iscsi);
}

static short iscsi_events(struct remote_session *session)
{
    return (short)iscsi_which_events(iscsi_of(session)->iscsi);
}

static bool iscsi_go_on(struct remote_session *session, short revents)
{
    struct iscsi_session *s = iscsi_of(session);
    if (s->broken || (iscsi_service(s->iscsi, revents) != 0 && !break_up_by_library(s)))
        return false;
    if (!s->tuned && session->ready) {
        remote_tune(iscsi_get_fd(s->iscsi));
        s->tuned = true;
    }
    return !s->broken;
}

static void over(struct iscsi_context *iscsi, int status, void *data, void *arg)
{
    struct remote_op *op = arg;
    struct iscsi_session *s = iscsi_of(op->session);
    struct scsi_task *task = data;
    enum blk_status answer = BLK_GONE;
    (void)iscsi;
    if (s->ending || is_broken_status(status)) {
        if (!s->ending)
            break_up_by_library(s);
    } else {
        enum iscsi_verdict verdict = judge(op->op, status, task, &answer);
        bool is_short = answer == BLK_OK && blk_op_has_data(op->op) && task != NULL &&
                        task->residual_status == SCSI_RESIDUAL_UNDERFLOW && task->residual != 0;
        op->again = verdict == ISCSI_AGAIN || verdict == ISCSI_MODES;
        if (verdict == ISCSI_RESET)
            break_up(s, "the target was reset, or has another medium");
        else if (verdict == ISCSI_MODES && !s->session.facts.info.volatile_cache)
            break_up(s, "the target's modes were changed"); /* it may have a cache now: the next session asks */
        else
            remote_answer(op, is_short ? BLK_MEDIA : answer);
    }
    if (task != NULL)
        scsi_free_scsi_task(task);
}

static struct scsi_task *start(struct iscsi_session *s, struct remote_op *op)
{
    int lun = (int)s->uri.lun, block = (int)s->session.facts.info.logical_block;
    uint64_t lba = op->off / (unsigned)block;
    uint32_t count = (uint32_t)(op->len / (unsigned)block);
    struct scsi_iovec *iov = (struct scsi_iovec *)(void *)op->iov;
    int fua = op->flags & BLK_FUA && s->session.facts.fua;
    struct unmap_list range = {lba, count};
    switch (op->op) {
    case BLK_READ:
        return iscsi_read16_iov_task(s->iscsi, lun, lba, (uint32_t)op->len, block, 0, 0, 0, 0, 0, over, op, iov,
                                     op->iov_count);
    case BLK_WRITE:
        return iscsi_write16_iov_task(s->iscsi, lun, lba, NULL, (uint32_t)op->len, block, 0, 0, fua, 0, 0, over, op,
                                      iov, op->iov_count);
    case BLK_FLUSH:
        return iscsi_synchronizecache16_task(s->iscsi, lun, 0, 0, 0, 0, over, op);
    case BLK_DISCARD:
        return iscsi_unmap_task(s->iscsi, lun, 0, 0, &range, 1, over, op);
    case BLK_WRITE_ZEROES: /* with UNMAP set it may only be where zeroes are read back: SBC-3 5.50 */
        return iscsi_writesame16_task(s->iscsi, lun, lba, s->zeroes, (uint32_t)block, count, 0, 0, 0, 0, over, op);
    case BLK_STATUS:
        break;
    }
    UNREACHABLE("answered above");
}

static bool iscsi_issue(struct remote_session *session, struct remote_op *op)
{
    struct iscsi_session *s = iscsi_of(session);
    op->session = session;
    if (s->broken)
        return false;
    return start(s, op) != NULL || break_up_by_library(s);
}

/* The logout is sent, and its answer not waited for. */
static void logged_out(struct iscsi_context *iscsi, int status, void *data, void *session)
{
    (void)iscsi, (void)status, (void)data, (void)session;
}

static void iscsi_end(struct remote_session *session, bool broken)
{
    struct iscsi_session *s = iscsi_of(session);
    s->ending = true;
    if (s->iscsi != NULL && broken)
        remote_reset(iscsi_get_fd(s->iscsi));
    else if (s->iscsi != NULL && iscsi_logout_async(s->iscsi, logged_out, s) == 0)
        iscsi_service(s->iscsi, POLLOUT);
    if (s->iscsi != NULL)
        iscsi_destroy_context(s->iscsi);
    free(s);
}

const struct remote_driver remote_iscsi = {.kind = "iscsi",
                                           .begin = iscsi_begin,
                                           .fd = iscsi_fd,
                                           .events = iscsi_events,
                                           .service = iscsi_go_on,
                                           .issue = iscsi_issue,
                                           .end = iscsi_end};
