/* Several sources: what they are together. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/check.h"
#include "core/power_combine.h"

/* By a letter: Healthy, on mains but Not healthy, eXercise, on Battery, Low, Unknown. */
static struct power_health health_of(char letter, uint64_t runtime_s)
{
    static const struct {
        char letter;
        struct power_health health;
    } kinds[] = {
        {'H', {.state = POWER_ONLINE, .healthy = true, .cause = "healthy"}},
        {'N', {.state = POWER_ONLINE, .cause = "replace-battery", .reason = "worn"}},
        {'X', {.state = POWER_ON_BATTERY, .exercise = true, .cause = "calibration", .reason = "learns"}},
        {'B', {.state = POWER_ON_BATTERY, .cause = "on-battery", .reason = "failed"}},
        {'L', {.state = POWER_LOW, .cause = "battery-low", .reason = "low"}},
        {'U', {.state = POWER_UNKNOWN, .cause = "silent", .reason = "silent"}},
    };
    unsigned i = 0;
    while (kinds[i].letter != letter)
        i++;
    struct power_health health = kinds[i].health;
    health.runtime_s = runtime_s;
    return health;
}

/* The letter that the sources, with run times of 100, 200, ..., are together; and whose reason that is. */
static char together(const char *letters, unsigned needed, unsigned *whose, uint64_t *runtime_s)
{
    struct power_health healths[POWER_SOURCES_MAX];
    unsigned count = (unsigned)strlen(letters);
    for (unsigned i = 0; i < count; i++)
        healths[i] = health_of(letters[i], 100 * (i + 1));
    struct power_health health = power_combine(healths, count, needed, whose);
    *runtime_s = health.runtime_s;
    cr_expect_str_eq(health.cause, healths[*whose].cause, "%s, %u", letters, needed);
    cr_expect_str_eq(health.reason, healths[*whose].reason, "%s, %u", letters, needed);
    for (const char *letter = "HNXBLU"; *letter != '\0'; letter++) {
        struct power_health one = health_of(*letter, 0);
        if (one.state == health.state && one.healthy == health.healthy && one.exercise == health.exercise)
            return *letter;
    }
    return '?';
}

Test(power_combine, the_machine_fares_as_the_needed_one_from_the_best)
{
    static const struct {
        const char *sources;
        unsigned needed;
        char wanted;
        unsigned whose;
        uint64_t runtime_s;
    } cases[] = {
        {"H", 1, 'H', 0, 100},
        {"B", 1, 'B', 0, 100},
        {"U", 1, 'U', 0, 100},
        {"HH", 1, 'H', 1, 200},
        {"HH", 2, 'H', 0, 100},
        {"HB", 1, 'H', 0, 100},
        {"HB", 2, 'B', 1, 200},
        {"BB", 1, 'B', 1, 200},
        {"BB", 2, 'B', 0, 100},
        {"LB", 1, 'B', 1, 200},
        {"LB", 2, 'L', 0, 100},
        {"NL", 1, 'N', 0, 100},
        {"XB", 1, 'X', 0, 100},
        {"XB", 2, 'B', 1, 200},
        {"XH", 2, 'X', 0, 100},
        {"HUB", 2, 'B', 2, 300},
        {"HN", 1, 'H', 0, 100},
        {"HN", 2, 'N', 1, 200},
        {"HU", 1, 'H', 0, 100},
        {"HLB", 3, 'L', 1, 200},
        {"UU", 1, 'U', 1, 200},
        {"BHHU", 2, 'H', 1, 200},
        /* too few are known: mains, but not healthy, for the reason of the unknown one; or as the worst known */
        {"HU", 2, 'N', 1, 100},
        {"UH", 2, 'N', 0, 200},
        {"UB", 2, 'B', 1, 200},
        {"UL", 1, 'L', 1, 200},
        {"BU", 1, 'B', 0, 100},
        {"HBU", 3, 'B', 1, 200},
        {"UNU", 2, 'N', 1, 200},
    };
    for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
        unsigned whose;
        uint64_t runtime_s;
        char got = together(cases[i].sources, cases[i].needed, &whose, &runtime_s);
        cr_expect_eq(got, cases[i].wanted, "%u of %s: %c", cases[i].needed, cases[i].sources, got);
        cr_expect_eq(whose, cases[i].whose, "%u of %s: %u", cases[i].needed, cases[i].sources, whose);
        cr_expect_eq(runtime_s, cases[i].runtime_s, "%u of %s", cases[i].needed, cases[i].sources);
    }
}

Test(power_combine, a_run_time_that_is_not_known_counts_as_the_shortest)
{
    struct power_health two[] = {health_of('B', POWER_RUNTIME_UNKNOWN), health_of('B', 5)};
    unsigned whose;
    cr_expect_eq(power_combine(two, 2, 1, &whose).runtime_s, 5);
    cr_expect_eq(power_combine(two, 2, 2, &whose).runtime_s, POWER_RUNTIME_UNKNOWN);
}

/* All sets of four: healthy if and only if enough are; on battery or low only if too few are on mains; and never is the
 * machine better off with more needed. */
Test(power_combine, every_set_of_four)
{
    static const char kinds[] = "HNXBLU";
    for (unsigned n = 0; n < 6 * 6 * 6 * 6; n++) {
        char set[5] = {kinds[n % 6], kinds[n / 6 % 6], kinds[n / 36 % 6], kinds[n / 216], '\0'};
        unsigned healthy = 0, unknown = 0, mains = 0, last = 0;
        for (unsigned i = 0; i < 4; i++) {
            healthy += set[i] == 'H';
            mains += set[i] == 'H' || set[i] == 'N';
            unknown += set[i] == 'U';
        }
        for (unsigned needed = 1; needed <= 4; needed++) {
            unsigned whose;
            uint64_t runtime_s;
            char got = together(set, needed, &whose, &runtime_s);
            unsigned rank = (unsigned)(strchr(kinds, got) - kinds);
            cr_assert_eq(got == 'H', healthy >= needed, "%u of %s: %c", needed, set, got);
            cr_assert_eq(got == 'U', unknown == 4, "%u of %s: %c", needed, set, got);
            if (got == 'X' || got == 'B' || got == 'L')
                cr_assert_lt(mains, needed, "%u of %s: %c", needed, set, got);
            cr_assert_geq(rank, last, "%u of %s: %c", needed, set, got);
            last = rank;
        }
    }
}
