/* Which spare takes the place of a lost disk. */
#include <criterion/criterion.h>

#include <string.h>

#include "core/check.h"
#include "raid/spares.h"

static const struct spare_need need = {
    .array = "r0", .slot = 3, .bytes = 1000, .logical_block = 512, .rotational = true, .tolerance = 1};

static const struct {
    const char *what;
    struct spare spares[3];
    int pick;
    const char *why;
} cases[] = {
    {"no spare at all", {{0}}, -1, "no spare"},
    {"one that fits exactly", {{"a", "", 1000, 512, true, false}}, 0, NULL},
    {"the smallest that fits",
     {{"a", "", 3000, 512, true, false}, {"b", "", 2000, 512, true, false}, {"c", "", 999, 512, true, false}},
     1,
     NULL},
    {"its own before a shared one that is smaller",
     {{"a", "", 1000, 512, true, false}, {"b", "r0", 5000, 512, true, false}},
     1,
     NULL},
    {"its own of the other kind before a shared one",
     {{"a", "", 1000, 512, true, false}, {"b", "r0", 5000, 512, false, false}},
     1,
     NULL},
    {"the same kind before a smaller one",
     {{"a", "", 1000, 512, false, false}, {"b", "", 5000, 512, true, false}},
     1,
     NULL},
    {"another kind is better than none", {{"a", "", 1000, 512, false, false}}, 0, NULL},
    {"that of another array is not for us", {{"a", "r1", 2000, 512, true, false}}, -1, "no spare"},
    {"nor one that is taken", {{"a", "", 2000, 512, true, true}}, -1, "no spare"},
    {"too small, in numbers",
     {{"a", "", 400, 512, true, false}, {"b", "", 999, 512, true, false}},
     -1,
     "spare b has 999 bytes, 1 too few: the slot needs 1000"},
    {"other blocks, in numbers",
     {{"a", "", 2000, 4096, true, false}},
     -1,
     "blocks of 4096 bytes, and the array of 512"},
    {"of two reasons the one that is nearer",
     {{"a", "", 2000, 4096, true, false}, {"b", "", 900, 512, true, false}},
     -1,
     "100 too few"},
};

Test(spares, the_best_fitting_one_is_picked_or_the_reason_given)
{
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        unsigned count = 0;
        while (count < 3 && cases[i].spares[count].name != NULL)
            count++;
        char why[256] = "";
        int pick = spares_pick(cases[i].spares, count, &need, why, sizeof why);
        cr_expect_eq(pick, cases[i].pick, "%s: %d", cases[i].what, pick);
        cr_expect(cases[i].why == NULL || strstr(why, cases[i].why) != NULL, "%s: %s", cases[i].what, why);
    }
}

Test(spares, a_label_says_whose_spare_it_is_and_a_damaged_one_nothing)
{
    static const char *const names[] = {"", "r0", "a-name-as-long-as-can-be-12345678901234567890123456789012345678"};
    uint8_t bytes[SPARE_LABEL_BYTES];
    char array[SPARE_ARRAY_SIZE];
    for (unsigned i = 0; i < ARRAY_LENGTH(names); i++) {
        cr_assert(spare_label_encode(bytes, names[i]));
        cr_assert(spare_label_decode(bytes, array));
        cr_expect_str_eq(array, names[i]);
        for (unsigned at = 0; at < SPARE_LABEL_BYTES; at += 37) {
            bytes[at] ^= 1;
            cr_expect_not(spare_label_decode(bytes, array), "byte %u", at);
            bytes[at] ^= 1;
        }
    }
    cr_expect_not(spare_label_encode(bytes, "a-name-longer-than-can-be-1234567890123456789012345678901234567890"));
    memset(bytes, 0, sizeof bytes);
    cr_expect_not(spare_label_decode(bytes, array));
}

Test(spares, the_array_with_the_least_redundancy_left_goes_first)
{
    struct spare_need needs[] = {need, need, need};
    needs[0].tolerance = 2;
    needs[2].tolerance = 0;
    cr_expect_eq(spares_most_urgent(needs, 3), 2);
    cr_expect_eq(spares_most_urgent(needs, 2), 1);
    cr_expect_eq(spares_most_urgent(needs, 0), 0);
}
