/* Persistent reservations as values: who may do what, what orders make of them, records, TransportIDs. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "core/log.h"
#include "target/scsi/persist_list.h"
#include "target/scsi/reservation_record.h"

static struct reservations now, next;
static uint8_t news[RESERVATIONS_MAX];

/* Ports "a", "b", "c", ... with keys 1, 2, 3, ...; the first holds the reservation. */
static void registered(unsigned count, enum persist_type type)
{
    now = (struct reservations){.generation = 10, .type = (uint8_t)type};
    for (unsigned i = 0; i < count; i++)
        cr_assert_eq(reservations_add(&now, (char[]){(char)('a' + i), 0}, i + 1), PERSIST_GOOD);
}

static enum persist_verdict give(enum persist_action action, const char *port, uint64_t key, uint64_t action_key,
                                 unsigned type)
{
    struct persist_order order = {
        .action = action, .type = (uint8_t)type, .key = key, .action_key = action_key, .port = port, .to = ""};
    return reservations_change(&now, &order, &next, news);
}

/* "a1 b2: 5 a" - ports and keys, type, holder. */
static const char *shown(const struct reservations *r)
{
    static char text[256];
    size_t len = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < r->count; i++) {
        text_format(text + len, sizeof text - len, "%s%s%u", i ? " " : "", r->of[i].port, (unsigned)r->of[i].key);
        len = strlen(text);
    }
    if (r->type != PERSIST_NONE && persist_type_of_all(r->type))
        text_format(text + len, sizeof text - len, ": %u", r->type);
    else if (r->type != PERSIST_NONE)
        text_format(text + len, sizeof text - len, ": %u %s", r->type, r->of[r->holder].port);
    return text;
}

Test(scsi_reservation, who_may_read_and_write_under_each_type)
{
    /* for holder, registered, stranger: r, w or both; holder counts as registered */
    static const struct {
        enum persist_type type;
        const char *may[3];
    } cases[] = {
        {PERSIST_NONE, {"rw", "rw", "rw"}},
        {PERSIST_WRITE_EXCLUSIVE, {"rw", "r", "r"}},
        {PERSIST_EXCLUSIVE_ACCESS, {"rw", "", ""}},
        {PERSIST_WRITE_EXCLUSIVE_REGISTRANTS, {"rw", "rw", "r"}},
        {PERSIST_EXCLUSIVE_ACCESS_REGISTRANTS, {"rw", "rw", ""}},
        {PERSIST_WRITE_EXCLUSIVE_ALL, {"rw", "rw", "r"}},
        {PERSIST_EXCLUSIVE_ACCESS_ALL, {"rw", "rw", ""}},
    };
    static const char *const ports[3] = {"a", "b", "stranger"};
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        registered(2, cases[i].type);
        for (unsigned p = 0; p < 3; p++) {
            const char *may = cases[i].may[p];
            cr_expect_eq(reservations_forbid(&now, ports[p], PERSIST_READS), strchr(may, 'r') == NULL, "%u %s",
                         cases[i].type, ports[p]);
            cr_expect_eq(reservations_forbid(&now, ports[p], PERSIST_CHANGES), strchr(may, 'w') == NULL, "%u %s",
                         cases[i].type, ports[p]);
            cr_expect(!reservations_forbid(&now, ports[p], PERSIST_HARMLESS));
        }
    }
}

Test(scsi_reservation, orders_make_the_next_value_and_tell_the_others)
{
    static const struct {
        const char *name;
        unsigned count;
        enum persist_type type;
        enum persist_action action;
        const char *port;
        uint64_t key, action_key;
        unsigned new_type;
        enum persist_verdict verdict;
        const char *result;
        uint32_t generation;
        uint8_t news[3];
    } cases[] = {
        {"register", 1, 0, PERSIST_REGISTER, "b", 0, 9, 0, PERSIST_GOOD, "a1 b9", 11, {0}},
        {"register with a key", 1, 0, PERSIST_REGISTER, "b", 1, 9, 0, PERSIST_CONFLICT, "", 0, {0}},
        {"register nothing", 1, 0, PERSIST_REGISTER, "b", 0, 0, 0, PERSIST_GOOD, "a1", 11, {0}},
        {"another key", 2, 5, PERSIST_REGISTER, "A", 1, 9, 0, PERSIST_GOOD, "a9 b2: 5 a", 11, {0}},
        {"wrong key", 2, 5, PERSIST_REGISTER, "a", 2, 9, 0, PERSIST_CONFLICT, "", 0, {0}},
        {"ignore the key", 2, 5, PERSIST_REGISTER_IGNORE, "a", 77, 9, 0, PERSIST_GOOD, "a9 b2: 5 a", 11, {0}},
        {"ignore, new", 1, 1, PERSIST_REGISTER_IGNORE, "b", 77, 9, 0, PERSIST_GOOD, "a1 b9: 1 a", 11, {0}},
        {"holder leaves, 1", 3, 1, PERSIST_REGISTER, "a", 1, 0, 0, PERSIST_GOOD, "b2 c3", 11, {0}},
        {"holder leaves, 5", 3, 5, PERSIST_REGISTER, "a", 1, 0, 0, PERSIST_GOOD, "b2 c3", 11, {0, 2, 2}},
        {"holder leaves, 7", 3, 7, PERSIST_REGISTER, "a", 1, 0, 0, PERSIST_GOOD, "b2 c3: 7", 11, {0}},
        {"last leaves, 7", 1, 7, PERSIST_REGISTER, "a", 1, 0, 0, PERSIST_GOOD, "", 11, {0}},
        {"another leaves", 3, 1, PERSIST_REGISTER, "b", 2, 0, 0, PERSIST_GOOD, "a1 c3: 1 a", 11, {0}},
        {"reserve", 2, 0, PERSIST_RESERVE, "b", 2, 0, 3, PERSIST_GOOD, "a1 b2: 3 b", 10, {0}},
        {"reserve again", 2, 3, PERSIST_RESERVE, "a", 1, 0, 3, PERSIST_GOOD, "a1 b2: 3 a", 10, {0}},
        {"reserve otherwise", 2, 3, PERSIST_RESERVE, "a", 1, 0, 1, PERSIST_CONFLICT, "", 0, {0}},
        {"reserve against", 2, 3, PERSIST_RESERVE, "b", 2, 0, 3, PERSIST_CONFLICT, "", 0, {0}},
        {"reserve as one of all", 2, 8, PERSIST_RESERVE, "b", 2, 0, 8, PERSIST_GOOD, "a1 b2: 8", 10, {0}},
        {"reserve as a stranger", 2, 0, PERSIST_RESERVE, "z", 0, 0, 3, PERSIST_CONFLICT, "", 0, {0}},
        {"reserve, no type", 2, 0, PERSIST_RESERVE, "a", 1, 0, 2, PERSIST_CDB_FIELD, "", 0, {0}},
        {"release, 1", 3, 1, PERSIST_RELEASE, "a", 1, 0, 1, PERSIST_GOOD, "a1 b2 c3", 10, {0}},
        {"release, 6", 3, 6, PERSIST_RELEASE, "a", 1, 0, 6, PERSIST_GOOD, "a1 b2 c3", 10, {0, 2, 2}},
        {"release by one of all", 3, 8, PERSIST_RELEASE, "b", 2, 0, 8, PERSIST_GOOD, "a1 b2 c3", 10, {2, 0, 2}},
        {"release another's", 3, 1, PERSIST_RELEASE, "b", 2, 0, 1, PERSIST_GOOD, "a1 b2 c3: 1 a", 10, {0}},
        {"release nothing", 1, 0, PERSIST_RELEASE, "a", 1, 0, 1, PERSIST_GOOD, "a1", 10, {0}},
        {"release otherwise", 1, 3, PERSIST_RELEASE, "a", 1, 0, 1, PERSIST_WRONG_RELEASE, "", 0, {0}},
        {"clear", 3, 3, PERSIST_CLEAR, "b", 2, 0, 0, PERSIST_GOOD, "", 11, {1, 0, 1}},
        {"clear, wrong key", 3, 3, PERSIST_CLEAR, "b", 1, 0, 0, PERSIST_CONFLICT, "", 0, {0}},
        {"preempt the holder", 3, 1, PERSIST_PREEMPT, "b", 2, 1, 1, PERSIST_GOOD, "b2 c3: 1 b", 11, {3, 0, 0}},
        {"preempt, new type", 3, 1, PERSIST_PREEMPT, "b", 2, 1, 5, PERSIST_GOOD, "b2 c3: 5 b", 11, {3, 0, 2}},
        {"preempt, no type", 3, 1, PERSIST_PREEMPT, "b", 2, 1, 4, PERSIST_CDB_FIELD, "", 0, {0}},
        {"preempt oneself", 2, 1, PERSIST_PREEMPT, "a", 1, 1, 3, PERSIST_GOOD, "a1 b2: 3 a", 11, {0, 2}},
        {"preempt another", 3, 1, PERSIST_PREEMPT, "a", 1, 3, 9, PERSIST_GOOD, "a1 b2: 1 a", 11, {0, 0, 3}},
        {"preempt nobody", 3, 1, PERSIST_PREEMPT, "a", 1, 99, 1, PERSIST_CONFLICT, "", 0, {0}},
        {"preempt key 0", 3, 1, PERSIST_PREEMPT, "a", 1, 0, 1, PERSIST_LIST_FIELD, "", 0, {0}},
        {"preempt all", 3, 7, PERSIST_PREEMPT, "b", 2, 0, 5, PERSIST_GOOD, "b2: 5 b", 11, {3, 0, 3}},
        {"preempt one of all", 3, 7, PERSIST_PREEMPT_ABORT, "b", 2, 1, 7, PERSIST_GOOD, "b2 c3: 7", 11, {3, 0, 0}},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        registered(cases[i].count, cases[i].type);
        enum persist_verdict verdict =
            give(cases[i].action, cases[i].port, cases[i].key, cases[i].action_key, cases[i].new_type);
        cr_expect_eq(verdict, cases[i].verdict, "%s", cases[i].name);
        cr_expect_arr_eq(news, cases[i].news, 3, "%s", cases[i].name);
        if (verdict != PERSIST_GOOD)
            continue;
        cr_expect_str_eq(shown(&next), cases[i].result, "%s: %s", cases[i].name, shown(&next));
        cr_expect_eq(next.generation, cases[i].generation, "%s", cases[i].name);
    }
}

Test(scsi_reservation, keys_that_several_share_are_preempted_together)
{
    registered(4, PERSIST_NONE);
    now.of[1].key = now.of[2].key = 1;
    cr_expect_eq(give(PERSIST_PREEMPT, "d", 4, 1, 1), PERSIST_GOOD);
    cr_expect_str_eq(shown(&next), "d4");
    cr_expect_arr_eq(news, ((uint8_t[]){3, 3, 3, 0}), 4);
}

Test(scsi_reservation, one_scope_only)
{
    registered(1, PERSIST_NONE);
    struct persist_order order = {.action = PERSIST_RESERVE, .scope = 1, .type = 1, .key = 1, .port = "a"};
    cr_expect_eq(reservations_change(&now, &order, &next, news), PERSIST_CDB_FIELD);
}

Test(scsi_reservation, a_reservation_moves_with_its_type)
{
    static const struct {
        enum persist_type type;
        const char *from, *to;
        uint64_t key, action_key;
        bool unregister;
        enum persist_verdict verdict;
        const char *result;
    } cases[] = {
        {3, "a", "z", 1, 9, false, PERSIST_GOOD, "a1 b2 z9: 3 z"},
        {3, "a", "B", 1, 9, false, PERSIST_GOOD, "a1 b9: 3 b"},
        {3, "a", "b", 1, 9, true, PERSIST_GOOD, "b9: 3 b"},
        {3, "a", "z", 2, 9, false, PERSIST_CONFLICT, ""},
        {3, "b", "z", 2, 9, false, PERSIST_CONFLICT, ""},
        {3, "a", "a", 1, 9, false, PERSIST_LIST_FIELD, ""},
        {3, "a", "z", 1, 0, false, PERSIST_LIST_FIELD, ""},
        {7, "a", "z", 1, 9, false, PERSIST_CONFLICT, ""},
        {0, "a", "z", 1, 9, false, PERSIST_CDB_FIELD, ""},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        registered(2, cases[i].type);
        struct persist_order order = {.action = PERSIST_MOVE,
                                      .type = (uint8_t)cases[i].type,
                                      .key = cases[i].key,
                                      .action_key = cases[i].action_key,
                                      .unregister = cases[i].unregister,
                                      .port = cases[i].from,
                                      .to = cases[i].to};
        enum persist_verdict verdict = reservations_change(&now, &order, &next, news);
        cr_expect_eq(verdict, cases[i].verdict, "case %u", i);
        if (verdict == PERSIST_GOOD)
            cr_expect_str_eq(shown(&next), cases[i].result, "case %u: %s", i, shown(&next));
    }
}

static void fill(struct reservations *r)
{
    *r = (struct reservations){.aptpl = true};
    for (unsigned i = 0; i < RESERVATIONS_MAX; i++) {
        char port[PORT_NAME_BYTES];
        memset(port, 'x', sizeof port);
        text_format(port + 200, 56, "%u", i);
        cr_assert_eq(reservations_add(r, port, i + 1), PERSIST_GOOD);
    }
}

Test(scsi_reservation, there_is_room_for_so_many_and_no_more)
{
    fill(&now);
    cr_expect_eq(give(PERSIST_REGISTER, "one more", 0, 1, 0), PERSIST_FULL);
    cr_expect_eq(reservations_add(&now, "one more", 1), PERSIST_FULL);
    cr_expect_eq(reservations_add(&now, now.of[5].port, 1), PERSIST_LIST_FIELD);
}

Test(scsi_reservation, what_reserve_and_release_do_beside_them)
{
    registered(2, PERSIST_WRITE_EXCLUSIVE);
    cr_expect_eq(reservations_reserve(&now, "a"), RESERVE_NOTHING);
    cr_expect_eq(reservations_reserve(&now, "b"), RESERVE_CONFLICT);
    cr_expect_eq(reservations_reserve(&now, "z"), RESERVE_CONFLICT);
    registered(2, PERSIST_WRITE_EXCLUSIVE_REGISTRANTS);
    cr_expect_eq(reservations_reserve(&now, "b"), RESERVE_NOTHING);
    registered(1, PERSIST_NONE);
    cr_expect_eq(reservations_reserve(&now, "a"), RESERVE_CONFLICT);
    registered(0, PERSIST_NONE);
    cr_expect_eq(reservations_reserve(&now, "z"), RESERVE_AS_EVER);
}

/* --- records --- */

Test(scsi_reservation, a_record_reads_back)
{
    fill(&now);
    now.generation = UINT32_MAX;
    now.type = PERSIST_EXCLUSIVE_ACCESS_REGISTRANTS;
    now.holder = 63;
    now.of[3].key = UINT64_MAX;
    char *text = reservation_record_write(&now, MARK_NONE);
    cr_assert_not_null(text);
    enum sanitize_mark mark;
    cr_assert(reservation_record_read(text, &next, &mark));
    cr_expect_eq(mark, MARK_NONE);
    cr_expect_eq(memcmp(&now, &next, sizeof now), 0);
    free(text);
    registered(0, PERSIST_NONE);
    text = reservation_record_write(&now, MARK_NONE);
    cr_assert_str_eq(text, "{\"generation\":10,\"type\":0,\"holder\":0,\"registrations\":[]}");
    free(text);
    text = reservation_record_write(&now, MARK_EXIT_ALLOWED);
    cr_assert(reservation_record_read(text, &next, &mark));
    cr_expect_eq(mark, MARK_EXIT_ALLOWED);
    free(text);
}

Test(scsi_reservation, what_is_no_record_is_refused)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{\"generation\":1,\"type\":0,\"holder\":0}",
        "{\"generation\":-1,\"type\":0,\"holder\":0,\"registrations\":[]}",
        "{\"generation\":1,\"type\":1,\"holder\":0,\"registrations\":[]}",
        "{\"generation\":1,\"type\":2,\"holder\":0,\"registrations\":[\"0000000000000001 a\"]}",
        "{\"generation\":1,\"type\":1,\"holder\":1,\"registrations\":[\"0000000000000001 a\"]}",
        "{\"generation\":1,\"type\":0,\"holder\":0,\"registrations\":[\"0000000000000000 a\"]}",
        "{\"generation\":1,\"type\":0,\"holder\":0,\"registrations\":[\"000000000000001 a\"]}",
        "{\"generation\":1,\"type\":0,\"holder\":0,\"registrations\":[\"0000000000000001 \"]}",
        "{\"generation\":1,\"type\":0,\"holder\":0,\"registrations\":[\"1\"]}",
        "{\"generation\":1,\"type\":0,\"holder\":0,\"registrations\":[1]}",
        "{\"generation\":1,\"type\":0,\"holder\":0,\"registrations\":[\"0000000000000001 a\",\"0000000000000001 A\"]}",
        "{\"generation\":1,\"type\":0,\"holder\":0,\"registrations\":[],\"sanitize\":3}",
    };
    enum sanitize_mark mark;
    for (unsigned i = 0; i < ARRAY_LENGTH(bad); i++)
        cr_expect(!reservation_record_read(bad[i], &next, &mark), "case %u", i);
    cr_expect(reservation_record_read(
        "{\"generation\":1,\"type\":1,\"holder\":0,\"registrations\":[\"00000000000000ab a\"]}", &next, &mark));
    cr_expect_eq(next.of[0].key, 0xab);
}

/* --- TransportIDs and parameter lists --- */

Test(scsi_reservation, transport_ids_name_ports_and_initiators)
{
    uint8_t bytes[TRANSPORT_ID_MAX];
    struct transport_id id;
    uint32_t len = transport_id_write(bytes, "iqn.2026-11.org.Example:a,i,0x00023d00000a");
    cr_expect_eq(len, 4 + 44);
    cr_expect_arr_eq(bytes, ((uint8_t[]){0x45, 0, 0, 44, 'i', 'q', 'n'}), 7);
    cr_assert_eq(transport_id_read(bytes, sizeof bytes, &id), len);
    cr_expect_str_eq(id.name, "iqn.2026-11.org.example:a,i,0x00023d00000a");
    cr_expect(!id.device && transport_id_covers(&id, "iqn.2026-11.org.example:A,i,0x00023D00000A"));
    cr_expect(!transport_id_covers(&id, "iqn.2026-11.org.example:a,i,0x00023d00000b"));
    cr_expect_eq(transport_id_write(bytes, "short"), 4 + 20);
    memcpy(bytes, (uint8_t[]){0x05, 0, 0, 8, 'i', 'q', 'n', '.', 'a', 0, 0, 0}, 12);
    cr_assert_eq(transport_id_read(bytes, 12, &id), 12);
    cr_expect(id.device && transport_id_covers(&id, "iqn.a,i,0x1") && !transport_id_covers(&id, "iqn.ab,i,0x1"));
    cr_expect(!transport_id_covers(&id, "iqn"));
}

Test(scsi_reservation, transport_ids_that_are_none)
{
    static const uint8_t good[12] = {0x05, 0, 0, 8, 'i', 'q', 'n', '.', 'a', 0, 0, 0};
    static const struct {
        unsigned at;
        uint8_t value;
    } wrongs[] = {{0, 0x06}, {0, 0x85}, {0, 0x45}, {3, 7}, {3, 12}, {3, 4}, {4, 0}, {5, ' '}, {5, 0x80}};
    struct transport_id id;
    cr_expect_eq(transport_id_read(good, 12, &id), 12);
    cr_expect_eq(transport_id_read(good, 3, &id), 0);
    for (unsigned i = 0; i < ARRAY_LENGTH(wrongs); i++) {
        uint8_t bytes[12];
        memcpy(bytes, good, 12);
        bytes[wrongs[i].at] = wrongs[i].value;
        cr_expect_eq(transport_id_read(bytes, 12, &id), 0, "case %u", i);
    }
}

Test(scsi_reservation, parameter_lists)
{
    static const struct {
        enum persist_action action;
        uint32_t len, said;
        uint8_t byte17, byte20, byte23, byte27;
        enum persist_verdict verdict;
    } cases[] = {
        {PERSIST_REGISTER, 24, 24, 0, 0x01, 0, 0, PERSIST_GOOD},
        {PERSIST_REGISTER, 23, 24, 0, 0x01, 0, 0, PERSIST_LIST_LENGTH},
        {PERSIST_CLEAR, 23, 23, 0, 0, 0, 0, PERSIST_LIST_LENGTH},
        {PERSIST_CLEAR, 25, 25, 0, 0, 0, 0, PERSIST_LIST_LENGTH},
        {PERSIST_CLEAR, 0, 0, 0, 0, 0, 0, PERSIST_LIST_LENGTH},
        {PERSIST_REGISTER, 40, 40, 0, 0x08, 0, 12, PERSIST_GOOD},
        {PERSIST_REGISTER, 40, 40, 0, 0x08, 0, 13, PERSIST_LIST_LENGTH},
        {PERSIST_REGISTER, 24, 24, 0, 0x08, 0, 0, PERSIST_LIST_LENGTH},
        {PERSIST_RESERVE, 40, 40, 0, 0x08, 0, 12, PERSIST_LIST_FIELD},
        {PERSIST_REGISTER_IGNORE, 40, 40, 0, 0x08, 0, 12, PERSIST_LIST_FIELD},
        {PERSIST_REGISTER, 40, 60000, 0, 0x08, 0, 12, PERSIST_FULL},
        {PERSIST_MOVE, 36, 36, 3, 0, 12, 0, PERSIST_GOOD},
        {PERSIST_MOVE, 36, 36, 3, 0, 13, 0, PERSIST_LIST_LENGTH},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        uint8_t list[40] = {[7] = 5,
                            [15] = 6,
                            [17] = cases[i].byte17,
                            [19] = 1,
                            [20] = cases[i].byte20,
                            [23] = cases[i].byte23,
                            [27] = cases[i].byte27};
        if (cases[i].action == PERSIST_MOVE)
            list[20] = 0;
        struct persist_list out;
        cr_expect_eq(persist_list_parse(list, cases[i].len, cases[i].said, cases[i].action, &out), cases[i].verdict,
                     "case %u", i);
        if (cases[i].verdict != PERSIST_GOOD)
            continue;
        cr_expect(out.key == 5 && out.action_key == 6, "case %u", i);
        cr_expect_eq(out.ids_len, cases[i].action == PERSIST_MOVE || cases[i].byte20 == 0x08 ? 12 : 0, "case %u", i);
        cr_expect_eq(out.unregister, cases[i].action == PERSIST_MOVE, "case %u", i);
        cr_expect_eq(out.aptpl, cases[i].byte20 != 0x08, "case %u", i);
    }
}
