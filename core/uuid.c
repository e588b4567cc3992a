#include "core/uuid.h"

#include <string.h>

#include "core/bytes.h"
#include "core/log.h"
#include "core/loop.h"

struct uuid uuid_generate(struct loop *loop)
{
    struct uuid u;
    put_le64(u.bytes, loop_random(loop));
    put_le64(u.bytes + 8, loop_random(loop));
    u.bytes[6] = (uint8_t)((u.bytes[6] & 0x0f) | 0x40); /* version 4 */
    u.bytes[8] = (uint8_t)((u.bytes[8] & 0x3f) | 0x80); /* variant of RFC 4122 */
    return u;
}

bool uuid_equal(const struct uuid *a, const struct uuid *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

bool uuid_is_nil(const struct uuid *u)
{
    static const struct uuid nil;
    return uuid_equal(u, &nil);
}

static bool dash_before(unsigned i)
{
    return i == 4 || i == 6 || i == 8 || i == 10;
}

void uuid_format(const struct uuid *u, char out[UUID_TEXT_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    char *p = out;
    for (unsigned i = 0; i < 16; i++) {
        if (dash_before(i))
            *p++ = '-';
        *p++ = digits[u->bytes[i] >> 4];
        *p++ = digits[u->bytes[i] & 15];
    }
    *p = '\0';
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool uuid_parse(const char *text, struct uuid *out)
{
    struct uuid u;
    for (unsigned i = 0; i < 16; i++) {
        if (dash_before(i) && *text++ != '-')
            return false;
        int high = hex_value(text[0]);
        int low = high < 0 ? -1 : hex_value(text[1]);
        if (low < 0)
            return false;
        u.bytes[i] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    if (*text != '\0')
        return false;
    *out = u;
    return true;
}
