/* Portal groups and their tags, IPv6, redirection, and the end of a target. */
#include <errno.h>
#include <stdlib.h>

#include "core/log.h"
#include "tests/unit/target/initiator.h"

#define NAMES "InitiatorName=" INI_NAME "\0TargetName=" INI_TARGET

static const uint64_t second = 1000000000;

static struct ini_rig *plain_rig(void)
{
    return ini_rig_make(2000, (struct iscsi_limits){0});
}

static void drop(struct ini *ini)
{
    struct ini_rig *rig = ini->rig;
    ini_drop(ini);
    ini_rig_drop(rig);
}

/* A connection that came by this address, of this group. */
static struct ini *connect_by(struct ini_rig *rig, uint8_t isid, const char *local, uint16_t group)
{
    struct ini *ini = calloc(1, sizeof *ini);
    *ini = (struct ini){.rig = rig, .isid = {0x80, 0, 0, 0, 0, isid}, .cmd_sn = 1, .exp_cmd_sn = 1, .itt = 100};
    ini->s = teststream_create(&rig->t->loop, 5);
    text_format(ini->s->stream.local, sizeof ini->s->stream.local, "%s", local);
    text_format(ini->s->stream.peer, sizeof ini->s->stream.peer, "192.0.2.9:%u", 1000u + isid);
    iscsi_conn_open(rig->server, &ini->s->stream, group);
    return ini;
}

/* What SendTargets=All tells, with | for zero bytes; one PDU. */
static void send_targets(struct ini *ini, char *out, size_t max)
{
    static const char finder[] = "InitiatorName=" INI_NAME "\0SessionType=Discovery";
    uint8_t bhs[PDU_BHS_BYTES];
    cr_assert_eq(ini_login_request(ini, 0x87, 0, finder, sizeof finder, NULL, 0), 0);
    ini_request(ini, bhs, PDU_TEXT, 0x80);
    ini_send(ini, bhs, "SendTargets=All", 16);
    uint32_t len = ini_expect(ini, PDU_TEXT_RESPONSE, bhs, out, (uint32_t)max - 1);
    cr_expect(bhs[1] & PDU_FINAL, "one PDU");
    for (uint32_t i = 0; i < len; i++)
        out[i] = out[i] == '\0' ? '|' : out[i];
    out[len] = '\0';
}

Test(iscsi_portals, send_targets_tells_the_portals_of_each_targets_groups)
{
    static const struct {
        const char *local;
        uint16_t group;
        unsigned count;
        uint16_t groups[2];
        const char *told;
    } cases[] = {
        {"192.0.2.1:3260", 1, 0, {0}, "192.0.2.1:3260,1 192.0.2.2:3260,1 [2001:db8::1]:3260,2 "},
        {"[2001:db8::1]:3260", 2, 0, {0}, "[2001:db8::1]:3260,2 192.0.2.1:3260,1 192.0.2.2:3260,1 "},
        {"192.0.2.1:3260", 1, 1, {1}, "192.0.2.1:3260,1 192.0.2.2:3260,1 "},
        {"192.0.2.1:3260", 1, 1, {2}, "[2001:db8::1]:3260,2 "},
        {"[2001:db8::1]:3260", 2, 1, {1}, "192.0.2.1:3260,1 192.0.2.2:3260,1 "},
        {"192.0.2.1:3260", 1, 1, {3}, NULL},
        {"127.0.0.1:3260", 1, 1, {2}, "[2001:db8::1]:3260,2 [::1]:3260,2 "},
        {"127.0.0.1:3260",
         1,
         2,
         {2, 1},
         "127.0.0.1:3260,1 192.0.2.1:3260,1 192.0.2.2:3260,1 [2001:db8::1]:3260,2 [::1]:3260,2 "},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct ini_rig *rig = plain_rig();
        cr_assert_eq(iscsi_server_add_portal(rig->server, 1, "192.0.2.2:3260"), 0);
        cr_assert_eq(iscsi_server_add_portal(rig->server, 1, "192.0.2.2:3260"), 0, "once is enough");
        cr_assert_eq(iscsi_server_add_portal(rig->server, 2, "[2001:db8::1]:3260"), 0);
        cr_assert_eq(iscsi_server_add_portal(rig->server, 2, "[::1]:3260"), 0);
        cr_assert_eq(iscsi_server_set_groups(rig->server, INI_TARGET, cases[i].groups, cases[i].count), 0);
        struct ini *ini = connect_by(rig, 1, cases[i].local, cases[i].group);
        char out[1024], wanted[1024] = "";
        send_targets(ini, out, sizeof out);
        if (cases[i].told != NULL) {
            size_t at = strlen(strcpy(wanted, "TargetName=" INI_TARGET "|"));
            for (const char *a = cases[i].told, *end; *a != '\0'; a = end + 1) {
                end = strchr(a, ' ');
                text_format(wanted + at, sizeof wanted - at, "TargetAddress=%.*s|", (int)(end - a), a);
                at += strlen(wanted + at);
            }
        }
        cr_expect_str_eq(out, wanted, "%u: %s", i, out);
        drop(ini);
    }
}

Test(iscsi_portals, what_cannot_be_a_portal_or_a_group)
{
    struct ini_rig *rig = plain_rig();
    char address[32];
    uint16_t groups[ISCSI_GROUPS_MAX + 1] = {0};
    int error = 0;
    cr_expect_eq(iscsi_server_add_portal(rig->server, 0, "192.0.2.7:3260"), -EINVAL);
    cr_expect_eq(iscsi_server_add_portal(rig->server, 1, ""), -EINVAL);
    for (unsigned i = 0; i < 100 && error == 0; i++) {
        text_format(address, sizeof address, "198.51.100.%u:3260", i);
        error = iscsi_server_add_portal(rig->server, 1, address);
    }
    cr_expect_eq(error, -ENOMEM);
    cr_expect_eq(iscsi_server_set_groups(rig->server, INI_TARGET, groups, ISCSI_GROUPS_MAX + 1), -EINVAL);
    cr_expect_eq(iscsi_server_set_groups(rig->server, "iqn.2026-11.org.example:no", groups, 1), -ENOENT);
    cr_expect_eq(iscsi_server_set_redirect(rig->server, "iqn.2026-11.org.example:no", "", false), -ENOENT);
    ini_rig_drop(rig);
}

Test(iscsi_portals, a_login_finds_the_target_in_its_groups_only_and_is_told_the_tag)
{
    struct ini_rig *rig = plain_rig();
    char answer[1024];
    const uint16_t group = 7;
    cr_assert_eq(iscsi_server_set_groups(rig->server, INI_TARGET, &group, 1), 0);
    struct ini *other = connect_by(rig, 1, "192.0.2.1:3260", 1);
    cr_expect_eq(ini_login_request(other, 0x87, 0, NAMES, sizeof NAMES, NULL, 0), 0x0203);
    ini_expect_closed(other);
    struct ini *ini = connect_by(rig, 2, "192.0.2.1:3261", 7);
    cr_expect_eq(ini_login_request(ini, 0x87, 0, NAMES, sizeof NAMES, answer, sizeof answer), 0);
    cr_expect_str_eq(answer, "TargetPortalGroupTag=7");
    ini_drop(other);
    drop(ini);
}

Test(iscsi_portals, groups_stay_while_there_are_sessions)
{
    struct ini_rig *rig = plain_rig();
    const uint16_t group = 7;
    struct ini *ini = ini_session(rig, 1, "");
    cr_expect_eq(iscsi_server_set_groups(rig->server, INI_TARGET, &group, 1), -EBUSY);
    ini_drop(ini);
    testloop_run_ready(rig->t);
    cr_expect_eq(iscsi_server_set_groups(rig->server, INI_TARGET, &group, 1), 0);
    ini_rig_drop(rig);
}

Test(iscsi_portals, logins_are_sent_elsewhere_with_an_address_without_tag)
{
    for (unsigned permanent = 0; permanent < 2; permanent++) {
        struct ini_rig *rig = plain_rig();
        struct ini *before = ini_session(rig, 1, "");
        char answer[1024];
        cr_assert_eq(iscsi_server_set_redirect(rig->server, INI_TARGET, "[2001:db8::7]:3260", permanent), 0);
        struct ini *ini = ini_connect(rig, 2);
        int status = ini_login_request(ini, 0x87, 0, NAMES, sizeof NAMES, answer, sizeof answer);
        cr_expect_eq(status, permanent ? 0x0102 : 0x0101);
        cr_expect_str_eq(answer, "TargetAddress=[2001:db8::7]:3260");
        ini_expect_closed(ini);
        cr_expect_eq(ini_do(before, INI_R, 36, INI_CDB(0x12, 0, 0, 0, 36)).status, 0, "sessions go on");
        struct ini *there = connect_by(rig, 4, "[2001:db8::7]:3260", 1);
        cr_expect_eq(ini_login_request(there, 0x87, 0, NAMES, sizeof NAMES, NULL, 0), 0, "who is there may stay");
        ini_drop(there);
        cr_assert_eq(iscsi_server_set_redirect(rig->server, INI_TARGET, "", false), 0);
        struct ini *after = ini_session(rig, 3, "");
        ini_drop(after);
        ini_drop(before);
        drop(ini);
    }
}

Test(iscsi_portals, an_initiator_that_may_not_come_in_is_not_told_where_to_go)
{
    struct ini_rig *rig = plain_rig();
    const char *pattern = "iqn.2026-11.org.example:somebody-else";
    const struct iscsi_rule rule = {.name = "other", .initiators = &pattern, .initiator_count = 1};
    cr_assert_eq(iscsi_server_set_access(rig->server, INI_TARGET, &rule, 1, NULL), 0);
    cr_assert_eq(iscsi_server_set_redirect(rig->server, INI_TARGET, "192.0.2.7:3260", false), 0);
    struct ini *ini = ini_connect(rig, 1);
    cr_expect_eq(ini_login_request(ini, 0x87, 0, NAMES, sizeof NAMES, NULL, 0), 0x0202);
    ini_expect_closed(ini);
    drop(ini);
}

struct removal {
    struct task task;
    bool over;
};

static void on_removed(struct task *task)
{
    container_of(task, struct removal, task)->over = true;
}

Test(iscsi_portals, a_target_that_is_removed_has_its_sessions_log_out_and_cuts_the_rest)
{
    struct ini_rig *rig = plain_rig();
    struct scsi_target *second_scsi = scsi_target_create(&rig->t->loop, INI_TARGET "2");
    cr_assert_eq(iscsi_server_add_target(rig->server, second_scsi, &rig->t->loop, INI_TARGET "2", NULL), 0);
    struct ini *polite = ini_session(rig, 1, ""), *deaf = ini_session(rig, 2, ""), *late = ini_connect(rig, 3);
    struct ini *other = ini_connect(rig, 4);
    static const char names[] = "InitiatorName=" INI_NAME "\0TargetName=" INI_TARGET "2";
    cr_assert_eq(ini_login_request(other, 0x87, 0, names, sizeof names, NULL, 0), 0);
    struct removal removal = {.task.run = on_removed};
    uint8_t bhs[PDU_BHS_BYTES];
    cr_expect_eq(iscsi_server_remove_target(rig->server, INI_TARGET "3", second, &removal.task), -ENOENT);
    cr_assert_eq(iscsi_server_remove_target(rig->server, INI_TARGET, 5 * second, &removal.task), 0);
    cr_expect_eq(iscsi_server_remove_target(rig->server, INI_TARGET, second, &removal.task), -ENOENT, "once");
    cr_expect_eq(ini_login_request(late, 0x87, 0, NAMES, sizeof NAMES, NULL, 0), 0x0203);
    ini_expect(polite, PDU_ASYNC, bhs, NULL, 0);
    cr_expect(bhs[36] == 1 && get_be16(bhs + 42) == 5);
    cr_expect_eq(ini_do(polite, 0, 0, INI_CDB(0)).status, 0, "what it has to do is still done");
    ini_request(polite, bhs, PDU_LOGOUT, 0x80);
    ini_send(polite, bhs, NULL, 0);
    ini_expect(polite, PDU_LOGOUT_RESPONSE, NULL, NULL, 0);
    ini_expect_closed(polite);
    ini_expect(deaf, PDU_ASYNC, bhs, NULL, 0);
    cr_expect_not(removal.over);
    ini_pass_time(rig, 6 * second);
    ini_expect(deaf, PDU_ASYNC, bhs, NULL, 0);
    cr_expect_eq(bhs[36], 2);
    ini_expect_closed(deaf);
    cr_expect(removal.over, "now it is lent no more");
    ini_expect_silence(other);
    cr_assert_eq(iscsi_server_add_target(rig->server, rig->scsi, &rig->t->loop, INI_TARGET, NULL), 0);
    struct ini *again = ini_session(rig, 5, "");
    ini_drop(again);
    ini_drop(polite);
    ini_drop(deaf);
    ini_drop(late);
    ini_drop(other);
    struct removal nobody = {.task.run = on_removed};
    cr_assert_eq(iscsi_server_remove_target(rig->server, INI_TARGET, 5 * second, &nobody.task), 0);
    testloop_run_ready(rig->t);
    cr_expect(nobody.over, "with nobody there it is over at once");
    iscsi_server_destroy(rig->server);
    scsi_target_destroy(second_scsi);
    rig->server = iscsi_server_create(&rig->t->loop, &rig->limits);
    ini_rig_drop(rig);
}
