/*
 * The JSON text of a superblock, and its struct. Used by superblock*.c only; the header is superblock.c's business.
 *
 * Pure functions. Reading treats the text as hostile, but checks each field for itself only: superblock_check() says
 * whether the fields go together.
 */
#ifndef RAID_SUPERBLOCK_TEXT_H
#define RAID_SUPERBLOCK_TEXT_H

#include "raid/superblock.h"

/* Bytes of text written to `out`; 0: longer than `size`, or a string in it is not UTF-8. Not terminated. */
size_t superblock_text_write(const struct sb_array *array, char *out, size_t size);

/* False, with a sentence in `why` (may be NULL), if the text does not describe an array. */
bool superblock_text_read(const char *text, size_t len, struct sb_array *array, char *why, size_t why_len);

/* superblock_check()'s part that is about relayouts; each volume for itself is right. NULL, or a sentence. */
const char *superblock_relayouts_check(const struct sb_array *array);
/* Are they the two sides of one relayout? */
bool superblock_are_sides(const struct sb_volume *a, const struct sb_volume *b);

/* sb_array.kept as JSON; NULL: it is not what it should be. And back, as text; false: too long. */
struct json_t *superblock_kept_read(const char *kept);
bool superblock_kept_write(const struct json_t *root, char *kept);

#endif
