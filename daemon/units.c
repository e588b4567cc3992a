#include "daemon/units.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/check.h"

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit size_units[] = {
    {"B", 1},     {"K", KIB},        {"KiB", KIB},        {"M", MIB},      {"MiB", MIB},      {"G", GIB},
    {"GiB", GIB}, {"T", 1024 * GIB}, {"TiB", 1024 * GIB}, {"P", MIB *GIB}, {"PiB", MIB *GIB},
};

static const struct unit duration_units[] = {
    {"ms", 1000000ull},
    {"s", 1000000000ull},
    {"min", 60 * 1000000000ull},
    {"h", 3600 * 1000000000ull},
};

static const char *quantity_parse(const char *text, const struct unit *units, size_t count, uint64_t *value,
                                  const char *no_unit, const char *unknown_unit)
{
    while (isspace((unsigned char)*text))
        text++;
    if (!isdigit((unsigned char)*text))
        return "does not start with a number";
    char *end;
    double number = strtod(text, &end);
    while (isspace((unsigned char)*end))
        end++;
    if (*end == '\0')
        return no_unit;
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(end, units[i].name) != 0)
            continue;
        double product = number * (double)units[i].factor;
        if (product >= 9.0e18)
            return "is too large";
        *value = (uint64_t)product;
        return NULL;
    }
    return unknown_unit;
}

const char *size_parse(const char *text, uint64_t *bytes)
{
    size_t len = strlen(text);
    if (len >= 2 && strchr("KMGTPkmgtp", text[len - 2]) != NULL && toupper((unsigned char)text[len - 1]) == 'B')
        return "is ambiguous: write KiB, MiB, GiB, TiB (powers of 1024)";
    return quantity_parse(text, size_units, ARRAY_LENGTH(size_units), bytes,
                          "has no unit: write for example \"64 KiB\"",
                          "has an unknown unit: write B, KiB, MiB, GiB, TiB or PiB");
}

const char *duration_parse(const char *text, uint64_t *nanoseconds)
{
    return quantity_parse(text, duration_units, ARRAY_LENGTH(duration_units), nanoseconds,
                          "has no unit: write ms, s, min or h", "has an unknown unit: write ms, s, min or h");
}

void size_format(uint64_t bytes, char *out, size_t out_len)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned i = 0;
    double value = (double)bytes;
    while (value >= 1024 && i + 1 < ARRAY_LENGTH(names)) {
        value /= 1024;
        i++;
    }
    if (value == (double)(uint64_t)value)
        snprintf(out, out_len, "%" PRIu64 " %s", (uint64_t)value, names[i]);
    else
        snprintf(out, out_len, "%.1f %s", value, names[i]);
}

void duration_format(uint64_t seconds, char *out, size_t out_len)
{
    if (seconds >= 3600)
        snprintf(out, out_len, "%" PRIu64 " h %" PRIu64 " min", seconds / 3600, seconds / 60 % 60);
    else if (seconds >= 60)
        snprintf(out, out_len, "%" PRIu64 " min %" PRIu64 " s", seconds / 60, seconds % 60);
    else
        snprintf(out, out_len, "%" PRIu64 " s", seconds);
}
