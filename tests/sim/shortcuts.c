/*
 * What would be most of the cost of a run and is not what it tests. Linked with --wrap; left out of sanitized builds.
 *
 * Mappings are used again: an array that is opened takes some 16 MiB of pages, and a seed opens several. What is handed
 * out again holds old bytes, as any pool does. They may reach a disk: the journal writes whole pages, and what stands in
 * them beside the bytes that it logs is nobody's; a torn write may then leave a record whole by chance, or not. So for a
 * run that is to be the same twice every mapping is handed out with the same bytes (mappings_alike).
 *
 * The text of superblocks is remembered: every member carries the same text four times, and it is read at each start.
 * Both functions are pure (raid/superblock_text.h), so the answer is the one they gave to the same question before.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "raid/superblock_text.h"

/* --- mappings --- */

void *__real_mmap(void *at, size_t len, int protection, int flags, int fd, off_t off);
int __real_munmap(void *at, size_t len);
void *__wrap_mmap(void *at, size_t len, int protection, int flags, int fd, off_t off);
int __wrap_munmap(void *at, size_t len);

static struct {
    void *at;
    size_t len;
} kept[64];

static bool alike;
void mappings_alike(bool wanted);

void mappings_alike(bool wanted)
{
    alike = wanted;
}

static void *handed_out(void *at, size_t len)
{
    return alike && at != MAP_FAILED ? memset(at, 0xa5, len) : at;
}

/* In few sizes, so that one fits another seed. */
static size_t kept_size(size_t len)
{
    size_t size = 4096;
    while (size < len)
        size *= 2;
    return size;
}

void *__wrap_mmap(void *at, size_t len, int protection, int flags, int fd, off_t off)
{
    bool private = at == NULL && (flags & MAP_PRIVATE) && fd < 0;
    len = private ? kept_size(len) : len;
    for (unsigned i = 0; private && i < ARRAY_LENGTH(kept); i++)
        if (kept[i].at != NULL && kept[i].len == len) {
            at = kept[i].at;
            kept[i].at = NULL;
            return handed_out(at, len);
        }
    at = __real_mmap(at, len, protection, flags, fd, off);
    return private ? handed_out(at, len) : at;
}

int __wrap_munmap(void *at, size_t len)
{
    len = kept_size(len);
    for (unsigned i = 0; i < ARRAY_LENGTH(kept); i++)
        if (kept[i].at == NULL) {
            kept[i].at = at;
            kept[i].len = len;
            return 0;
        }
    return __real_munmap(at, len);
}

/* --- texts --- */

size_t __real_superblock_text_write(const struct sb_array *array, char *out, size_t size);
bool __real_superblock_text_read(const char *text, size_t len, struct sb_array *array, char *why, size_t why_len);
size_t __wrap_superblock_text_write(const struct sb_array *array, char *out, size_t size);
bool __wrap_superblock_text_read(const char *text, size_t len, struct sb_array *array, char *why, size_t why_len);

enum { TEXT_MAX = 64 << 10, TEXTS = 16 };

struct memory {
    struct known {
        size_t len; /* 0: free */
        struct sb_array array;
        char text[TEXT_MAX];
    } of[TEXTS];
    unsigned next;
};
static struct memory written, parsed; /* array to text; text to array */

static void remember(struct memory *memory, const struct sb_array *array, const char *text, size_t len)
{
    if (len > TEXT_MAX)
        return;
    struct known *known = &memory->of[memory->next++ % TEXTS];
    known->len = len;
    known->array = *array;
    memcpy(known->text, text, len);
}

size_t __wrap_superblock_text_write(const struct sb_array *array, char *out, size_t size)
{
    for (unsigned i = 0; i < TEXTS; i++) {
        const struct known *known = &written.of[i];
        if (known->len == 0 || known->len > size || memcmp(&known->array, array, sizeof *array) != 0)
            continue;
        memcpy(out, known->text, known->len);
        return known->len;
    }
    size_t len = __real_superblock_text_write(array, out, size);
    if (len != 0)
        remember(&written, array, out, len);
    return len;
}

bool __wrap_superblock_text_read(const char *text, size_t len, struct sb_array *array, char *why, size_t why_len)
{
    for (unsigned i = 0; i < TEXTS && len != 0; i++) {
        const struct known *known = &parsed.of[i];
        if (known->len != len || memcmp(known->text, text, len) != 0)
            continue;
        *array = known->array;
        return true;
    }
    bool good = __real_superblock_text_read(text, len, array, why, why_len);
    if (good)
        remember(&parsed, array, text, len);
    return good;
}
