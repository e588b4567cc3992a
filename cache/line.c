/* See cache/line.h. The treap's priorities are a hash of the number with a salt: nobody can choose a deep tree. */
#include "cache/line.h"

#include <stdlib.h>

#include "cache/ghost.h"
#include "core/check.h"

#define NONE UINT32_MAX

bool lines_init(struct lines *s, uint32_t count, uint32_t blocks, uint32_t salt)
{
    ASSERT(count > 0 && blocks > 0 && blocks <= UINT16_MAX);
    *s = (struct lines){.count = count, .root = NONE, .oldest = NONE, .newest = NONE, .blocks = blocks, .salt = salt};
    s->table = calloc(count, sizeof *s->table);
    for (uint32_t i = 0; s->table != NULL && i < count; i++)
        s->table[i].right = i + 1 < count ? i + 1 : NONE;
    return s->table != NULL;
}

void lines_fini(struct lines *s)
{
    free(s->table);
}

uint64_t lines_bytes(uint32_t count)
{
    return (uint64_t)count * sizeof(struct line);
}

static uint32_t index_of(const struct lines *s, const struct line *line)
{
    return (uint32_t)(line - s->table);
}

static uint64_t priority(const struct lines *s, uint32_t node)
{
    return key_hash(s->table[node].number ^ (uint64_t)s->salt << 8);
}

/* --- the tree --- */

static void refresh(struct lines *s, uint32_t node)
{
    struct line *line = &s->table[node];
    line->below = line->class;
    if (line->left != NONE)
        line->below |= s->table[line->left].below;
    if (line->right != NONE)
        line->below |= s->table[line->right].below;
}

/* Two trees, all of `a` before all of `b`. */
static uint32_t join(struct lines *s, uint32_t a, uint32_t b)
{
    if (a == NONE || b == NONE)
        return a == NONE ? b : a;
    bool first = priority(s, a) > priority(s, b);
    if (first)
        s->table[a].right = join(s, s->table[a].right, b);
    else
        s->table[b].left = join(s, a, s->table[b].left);
    refresh(s, first ? a : b);
    return first ? a : b;
}

/* A tree into what is before `number` and the rest. */
static void split(struct lines *s, uint32_t node, uint64_t number, uint32_t *before, uint32_t *rest)
{
    if (node == NONE) {
        *before = *rest = NONE;
        return;
    }
    struct line *line = &s->table[node];
    if (line->number < number) {
        split(s, line->right, number, &line->right, rest);
        *before = node;
    } else {
        split(s, line->left, number, before, &line->left);
        *rest = node;
    }
    refresh(s, node);
}

static void tree_insert(struct lines *s, uint32_t node)
{
    uint32_t before, rest;
    s->table[node].left = s->table[node].right = NONE;
    refresh(s, node);
    split(s, s->root, s->table[node].number, &before, &rest);
    s->root = join(s, join(s, before, node), rest);
}

static void tree_remove(struct lines *s, uint32_t node)
{
    uint32_t before, rest, own;
    split(s, s->root, s->table[node].number, &before, &rest);
    split(s, rest, s->table[node].number + 1, &own, &rest);
    ASSERT(own == node);
    s->root = join(s, before, rest);
}

/* Its class changed: so may what its ancestors know. */
static void refresh_path(struct lines *s, uint32_t node, uint64_t number)
{
    struct line *line = &s->table[node];
    if (number != line->number)
        refresh_path(s, number < line->number ? line->left : line->right, number);
    refresh(s, node);
}

struct line *line_find(const struct lines *s, uint64_t number)
{
    uint32_t node = s->root;
    while (node != NONE && s->table[node].number != number)
        node = number < s->table[node].number ? s->table[node].left : s->table[node].right;
    return node == NONE ? NULL : &s->table[node];
}

static struct line *next_in(const struct lines *s, uint32_t node, uint64_t number, unsigned classes)
{
    if (node == NONE || (s->table[node].below & classes) == 0)
        return NULL;
    struct line *line = &s->table[node];
    struct line *found = line->number > number ? next_in(s, line->left, number, classes) : NULL;
    if (found != NULL)
        return found;
    if (line->number >= number && line->class & classes)
        return line;
    return next_in(s, line->right, number, classes);
}

struct line *line_next(const struct lines *s, uint64_t number, unsigned classes)
{
    return next_in(s, s->root, number, classes);
}

/* --- ages --- */

static void age_remove(struct lines *s, struct line *line)
{
    if (line->older != NONE)
        s->table[line->older].newer = line->newer;
    else
        s->oldest = line->newer;
    if (line->newer != NONE)
        s->table[line->newer].older = line->older;
    else
        s->newest = line->older;
    line->aged = false;
}

static void age_insert(struct lines *s, struct line *line)
{
    ASSERT(s->newest == NONE || (int32_t)(line->epoch - s->table[s->newest].epoch) >= 0); /* L2 */
    line->older = s->newest;
    line->newer = NONE;
    if (s->newest == NONE)
        s->oldest = index_of(s, line);
    else
        s->table[s->newest].newer = index_of(s, line);
    s->newest = index_of(s, line);
    line->aged = true;
}

struct line *line_oldest(const struct lines *s)
{
    return s->oldest == NONE ? NULL : &s->table[s->oldest];
}

struct line *line_younger(const struct lines *s, const struct line *line)
{
    return line->newer == NONE ? NULL : &s->table[line->newer];
}

/* --- life --- */

struct line *line_get(struct lines *s, uint64_t number)
{
    struct line *line = line_find(s, number);
    if (line != NULL || s->free == NONE)
        return line;
    uint32_t node = s->free;
    line = &s->table[node];
    s->free = line->right;
    s->used++;
    *line = (struct line){.number = number, .class = LINE_ANY};
    ASSERT(line->number == number);
    tree_insert(s, node);
    return line;
}

static unsigned class_of(const struct lines *s, const struct line *line)
{
    unsigned class = LINE_ANY | (line->unlogged ? LINE_UNLOGGED : 0);
    if (line->dirty == 0 || line->leaving > 0 || line->aside)
        return class;
    return class | (line->whole == s->blocks ? LINE_FULL : LINE_PARTIAL);
}

static void line_free(struct lines *s, struct line *line)
{
    tree_remove(s, index_of(s, line));
    s->aside -= line->aside;
    *line = (struct line){.right = s->free};
    s->free = index_of(s, line);
    s->used--;
}

void line_settle(struct lines *s, struct line *line)
{
    ASSERT(line->whole <= line->dirty && line->dirty <= s->blocks);
    bool aged = line->dirty > 0 && !line->aside;
    unsigned class = class_of(s, line);
    if (line->aged && !aged)
        age_remove(s, line);
    else if (!line->aged && aged)
        age_insert(s, line);
    if (line->dirty == 0 && line->leaving == 0) {
        line_free(s, line);
    } else if (class != line->class) {
        line->class = class & 15;
        refresh_path(s, s->root, line->number);
    }
}

void line_set_aside(struct lines *s, struct line *line)
{
    s->aside += !line->aside;
    line->aside = true;
    line_settle(s, line);
}

void lines_recall(struct lines *s, uint32_t epoch)
{
    for (uint32_t i = 0; s->aside > 0 && i < s->count; i++) {
        struct line *line = &s->table[i];
        if (!line->aside)
            continue;
        line->aside = false;
        line->epoch = epoch;
        s->aside--;
        line_settle(s, line);
    }
}
