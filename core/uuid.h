/* Universally unique identifiers: 16 bytes, and the usual text of 36 characters. */
#ifndef CORE_UUID_H
#define CORE_UUID_H

#include <stdbool.h>
#include <stdint.h>

struct loop;

enum { UUID_TEXT_SIZE = 37 };

struct uuid {
    uint8_t bytes[16];
};

/* A random (version 4) identifier from the loop's randomness. */
struct uuid uuid_generate(struct loop *loop);
bool uuid_equal(const struct uuid *a, const struct uuid *b);
bool uuid_is_nil(const struct uuid *u);
void uuid_format(const struct uuid *u, char out[UUID_TEXT_SIZE]);
/* False, with *out untouched, if `text` is not 8-4-4-4-12 hexadecimal digits. */
bool uuid_parse(const char *text, struct uuid *out);

#endif
