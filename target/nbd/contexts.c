/* Queries and filters of metadata contexts: see target/nbd/contexts.h. */
#include "target/nbd/contexts.h"

#include <string.h>

#include "core/bytes.h"
#include "core/check.h"
#include "target/nbd/nbd.h"

const struct nbd_context nbd_contexts[NBD_CONTEXTS] = {{NBD_CONTEXT_ALLOCATION, 1, "base:allocation"}};

/* namespace:leaf, with a namespace of printable characters; the leaf may be empty. */
static bool query_is_well_formed(const uint8_t *text, uint32_t len)
{
    const uint8_t *colon = len > 0 ? memchr(text, ':', len) : NULL;
    if (colon == NULL || colon == text || len > NBD_NAME_MAX || memchr(text, '\0', len) != NULL)
        return false;
    for (const uint8_t *at = text; at < colon; at++)
        if (*at <= ' ' || *at == 0x7f)
            return false;
    return true;
}

/* All queries, and nothing left over. */
static bool queries_are_well_formed(const uint8_t *at, uint32_t left, uint32_t count)
{
    for (; count > 0; count--) {
        if (left < 4)
            return false;
        uint32_t len = get_be32(at);
        if (len > left - 4 || !query_is_well_formed(at + 4, len))
            return false;
        at += 4 + len;
        left -= 4 + len;
    }
    return left == 0;
}

/* u32 length of the name, the name, u32 count, count times a query. */
uint32_t nbd_parse_meta_request(const uint8_t *data, uint32_t len, struct nbd_meta_request *out)
{
    enum { FIXED = 4 + 4 };
    if (len < FIXED)
        return NBD_REP_ERR_INVALID;
    uint32_t name_len = get_be32(data);
    if (name_len > len - FIXED)
        return NBD_REP_ERR_INVALID;
    const uint8_t *at = data + 4 + name_len;
    *out = (struct nbd_meta_request){
        .name = (const char *)data + 4, .name_len = name_len, .query_count = get_be32(at), .queries = at + 4};
    if (!queries_are_well_formed(out->queries, len - FIXED - name_len, out->query_count))
        return NBD_REP_ERR_INVALID;
    return nbd_check_name(out->name, name_len);
}

static bool query_matches(const struct nbd_context *context, const uint8_t *text, uint32_t len, bool is_list)
{
    size_t name_len = strlen(context->name), wildcard = strcspn(context->name, ":") + 1;
    bool fits = len == name_len || (is_list && len == wildcard);
    return fits && memcmp(context->name, text, len) == 0;
}

uint32_t nbd_contexts_asked(const struct nbd_meta_request *request, bool is_list)
{
    uint32_t asked = 0;
    const uint8_t *at = request->queries;
    for (uint32_t q = 0; q < request->query_count; q++) {
        uint32_t len = get_be32(at);
        for (unsigned i = 0; i < NBD_CONTEXTS; i++)
            if (query_matches(&nbd_contexts[i], at + 4, len, is_list))
                asked |= nbd_contexts[i].bit;
        at += 4 + len;
    }
    for (unsigned i = 0; i < NBD_CONTEXTS && is_list && request->query_count == 0; i++)
        asked |= nbd_contexts[i].bit;
    return asked;
}

static uint32_t bit_of(uint32_t id)
{
    for (unsigned i = 0; i < NBD_CONTEXTS; i++)
        if (nbd_contexts[i].id == id)
            return nbd_contexts[i].bit;
    return 0;
}

bool nbd_parse_status_filter(const uint8_t *data, uint32_t len, uint32_t selected, struct nbd_status_filter *out)
{
    if (len < 8 + 4 || len % 4 != 0)
        return false;
    *out = (struct nbd_status_filter){.len = get_be64(data)};
    for (uint32_t at = 8; at < len; at += 4) {
        uint32_t bit = bit_of(get_be32(data + at));
        if ((bit & selected) == 0 || (bit & out->contexts) != 0)
            return false;
        out->contexts |= bit;
    }
    return true;
}
