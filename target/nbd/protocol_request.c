/* Requests from bytes, and the rules they must obey: see target/nbd/protocol.h. */
#include "core/bytes.h"
#include "core/check.h"
#include "target/nbd/contexts.h"

bool nbd_parse_request(const uint8_t *bytes, enum nbd_mode mode, struct nbd_request_header *out)
{
    bool extended = mode == NBD_EXTENDED;
    *out = (struct nbd_request_header){.flags = get_be16(bytes + 4),
                                       .command = get_be16(bytes + 6),
                                       .cookie = get_be64(bytes + 8),
                                       .off = get_be64(bytes + 16),
                                       .len = extended ? get_be64(bytes + 24) : get_be32(bytes + 24)};
    return get_be32(bytes) == (extended ? NBD_MAGIC_EXTENDED_REQUEST : NBD_MAGIC_REQUEST);
}

/* A write has one. By the document an extended write must say so as others do; but QEMU (10.0) does not. */
uint64_t nbd_request_payload(const struct nbd_request_header *request, enum nbd_mode mode)
{
    bool says_so = mode == NBD_EXTENDED && (request->flags & NBD_CMD_PAYLOAD_LEN) != 0;
    return request->command == NBD_CMD_WRITE || says_so ? request->len : 0;
}

/* One row a command that is answered. The document allows FUA on every command once SEND_FUA was offered. */
struct command_rule {
    uint16_t flags; /* command flags that mean something here */
    uint16_t needs; /* transmission flag without which the command does not exist; 0: always there */
    bool known, has_range, has_data, writes;
    enum nbd_fault beyond; /* the fault of a range that passes the end */
};

static const struct command_rule command_rules[] = {
    [NBD_CMD_READ] = {.known = true,
                      .flags = NBD_CMD_FUA | NBD_CMD_DF,
                      .has_range = true,
                      .has_data = true,
                      .beyond = NBD_FAULT_BEYOND_END},
    [NBD_CMD_WRITE] = {.known = true,
                       .flags = NBD_CMD_FUA,
                       .has_range = true,
                       .has_data = true,
                       .writes = true,
                       .beyond = NBD_FAULT_NO_ROOM},
    [NBD_CMD_FLUSH] = {.known = true, .flags = NBD_CMD_FUA, .needs = NBD_FLAG_SEND_FLUSH},
    [NBD_CMD_TRIM] = {.known = true,
                      .flags = NBD_CMD_FUA,
                      .needs = NBD_FLAG_SEND_TRIM,
                      .has_range = true,
                      .writes = true,
                      .beyond = NBD_FAULT_BEYOND_END},
    [NBD_CMD_CACHE] = {.known = true,
                       .flags = NBD_CMD_FUA,
                       .needs = NBD_FLAG_SEND_CACHE,
                       .has_range = true,
                       .beyond = NBD_FAULT_BEYOND_END},
    [NBD_CMD_WRITE_ZEROES] = {.known = true,
                              .flags = NBD_CMD_FUA | NBD_CMD_NO_HOLE | NBD_CMD_FAST_ZERO,
                              .needs = NBD_FLAG_SEND_WRITE_ZEROES,
                              .has_range = true,
                              .writes = true,
                              .beyond = NBD_FAULT_NO_ROOM},
    [NBD_CMD_BLOCK_STATUS] = {.known = true,
                              .flags = NBD_CMD_FUA | NBD_CMD_REQ_ONE | NBD_CMD_PAYLOAD_LEN,
                              .has_range = true,
                              .beyond = NBD_FAULT_BEYOND_END},
};

/* A command flag is legal only where the export offered it. */
static const struct {
    uint16_t flag, needs;
} flag_rules[] = {
    {NBD_CMD_FUA, NBD_FLAG_SEND_FUA},
    {NBD_CMD_NO_HOLE, NBD_FLAG_SEND_WRITE_ZEROES},
    {NBD_CMD_DF, NBD_FLAG_SEND_DF},
    {NBD_CMD_FAST_ZERO, NBD_FLAG_SEND_FAST_ZERO},
    {NBD_CMD_PAYLOAD_LEN, NBD_FLAG_BLOCK_STATUS_PAYLOAD},
};

static bool flags_are_legal(uint16_t flags, uint16_t meaningful, uint16_t offered)
{
    if (flags & ~meaningful)
        return false;
    for (size_t i = 0; i < ARRAY_LENGTH(flag_rules); i++)
        if ((flags & flag_rules[i].flag) && !(offered & flag_rules[i].needs))
            return false;
    return true;
}

/* An extended write may say that it has a payload. Beside it only a block status may. */
static enum nbd_fault flags_check(const struct nbd_request_header *request, const struct command_rule *rule,
                                  const struct nbd_rules *rules)
{
    uint16_t flags = request->flags;
    if (rules->mode == NBD_EXTENDED && request->command == NBD_CMD_WRITE)
        flags &= (uint16_t)~NBD_CMD_PAYLOAD_LEN;
    return flags == 0 || flags_are_legal(flags, rule->flags, rules->flags) ? NBD_FAULT_NONE : NBD_FAULT_FLAGS;
}

static enum nbd_fault too_long(const struct nbd_request_header *request, const struct nbd_rules *rules)
{
    bool knows_overflow = request->command == NBD_CMD_READ && rules->mode != NBD_SIMPLE;
    return knows_overflow ? NBD_FAULT_READ_TOO_LONG : NBD_FAULT_TOO_LONG;
}

static enum nbd_fault range_check(const struct nbd_request_header *request, const struct command_rule *rule,
                                  const struct nbd_rules *rules)
{
    if (request->len == 0)
        return NBD_FAULT_EMPTY;
    if (rule->has_data && request->len > rules->payload_max)
        return too_long(request, rules);
    if (request->off > rules->size || request->len > rules->size - request->off)
        return rule->beyond;
    return NBD_FAULT_NONE;
}

/* The range of a block status with a payload stands in it: nbd_status_range_check(). */
static enum nbd_fault status_check(const struct nbd_request_header *request, const struct nbd_rules *rules)
{
    if (rules->contexts == 0)
        return NBD_FAULT_NO_CONTEXT;
    if (!(request->flags & NBD_CMD_PAYLOAD_LEN))
        return nbd_status_range_check(request, rules);
    return request->len > NBD_FILTER_BYTES_MAX ? NBD_FAULT_FILTER : NBD_FAULT_NONE;
}

enum nbd_fault nbd_status_range_check(const struct nbd_request_header *request, const struct nbd_rules *rules)
{
    return range_check(request, &command_rules[NBD_CMD_BLOCK_STATUS], rules);
}

/* Zeroes are fast where the device forgets what it held: not if it shall keep the space, and not less than a unit. */
static bool zeroes_are_slow(const struct nbd_request_header *request, const struct nbd_rules *rules)
{
    uint64_t unit = MAX(rules->zero_unit, 1u), end = request->off + request->len;
    uint64_t first = (request->off + unit - 1) / unit, last = end / unit;
    return (request->flags & NBD_CMD_NO_HOLE) || first >= last;
}

enum nbd_fault nbd_request_check(const struct nbd_request_header *request, const struct nbd_rules *rules)
{
    if (request->command >= ARRAY_LENGTH(command_rules) || !command_rules[request->command].known)
        return NBD_FAULT_COMMAND;
    const struct command_rule *rule = &command_rules[request->command];
    if (rule->writes && (rules->flags & NBD_FLAG_READ_ONLY))
        return NBD_FAULT_READ_ONLY;
    if (rule->needs != 0 && !(rules->flags & rule->needs))
        return NBD_FAULT_NOT_OFFERED;
    enum nbd_fault fault = flags_check(request, rule, rules);
    if (fault == NBD_FAULT_NONE && rule->has_range)
        fault =
            request->command == NBD_CMD_BLOCK_STATUS ? status_check(request, rules) : range_check(request, rule, rules);
    bool wants_speed = (request->flags & NBD_CMD_FAST_ZERO) != 0 && fault == NBD_FAULT_NONE;
    return wants_speed && zeroes_are_slow(request, rules) ? NBD_FAULT_SLOW : fault;
}
