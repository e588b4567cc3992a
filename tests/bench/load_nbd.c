/*
 * Load by NBD: fixed newstyle handshake, NBD_OPT_GO without structured replies, then simple requests and replies
 * (the NBD protocol document, "Transmission phase"). No TLS.
 */
#include <string.h>

#include "core/bytes.h"
#include "tests/bench/load.h"

enum { REQUEST_BYTES = 28, REPLY_BYTES = 16, OPT_GO = 7, REP_ACK = 1, REP_INFO = 3, CMD_READ = 0, CMD_WRITE = 1 };

static const uint64_t magic_option = 0x49484156454f5054, magic_option_reply = 0x3e889045565a9;
static const uint32_t magic_request = 0x25609513, magic_reply = 0x67446698;

static void send_go(struct load_connection *c)
{
    uint8_t option[20 + 512];
    uint32_t name = (uint32_t)strlen(c->options->export_);
    if (name > 500)
        load_fail("%s: too long a name", c->options->export_);
    put_be32(option, 1 | 2); /* fixed newstyle, no zeroes */
    put_be64(option + 4, magic_option);
    put_be32(option + 12, OPT_GO);
    put_be32(option + 16, name + 6);
    put_be32(option + 20, name);
    memcpy(option + 24, c->options->export_, name);
    put_be16(option + 24 + name, 0);
    load_send_all(c, option, 26 + name);
}

static void nbd_open(struct load_connection *c)
{
    uint8_t greeting[18], head[20], data[4096];
    load_receive_all(c, greeting, sizeof greeting);
    if (memcmp(greeting, "NBDMAGICIHAVEOPT", 16) != 0)
        load_fail("%s: not a newstyle NBD server", c->options->uri);
    send_go(c);
    for (;;) {
        load_receive_all(c, head, sizeof head);
        uint32_t type = get_be32(head + 12), len = get_be32(head + 16);
        if (get_be64(head) != magic_option_reply || len > sizeof data)
            load_fail("an option reply that makes no sense");
        load_receive_all(c, data, len);
        if (type == REP_ACK)
            return;
        if (type != REP_INFO)
            load_fail("export '%s' refused: %x %.*s", c->options->export_, type, (int)len, (char *)data);
        if (len >= 12 && get_be16(data) == 0)
            c->device_size = get_be64(data + 2);
    }
}

static unsigned out_per_slot(const struct load_connection *c)
{
    return c->options->is_write ? 2 : 1;
}

static unsigned headers_per_slot(const struct load_connection *c)
{
    (void)c;
    return REQUEST_BYTES;
}

static bool may_issue(const struct load_connection *c)
{
    (void)c;
    return true;
}

static void issue(struct load_connection *c, struct load_slot *slot, bool is_write)
{
    uint8_t *h = slot->headers;
    put_be32(h, magic_request);
    put_be16(h + 4, 0);
    put_be16(h + 6, is_write ? CMD_WRITE : CMD_READ);
    put_be64(h + 8, slot->index | (uint64_t)is_write << 32);
    put_be64(h + 16, slot->off);
    put_be32(h + 24, c->options->block);
    load_append(c, h, REQUEST_BYTES);
    if (is_write)
        load_append(c, slot->data, c->options->block);
}

static void header(struct load_connection *c, const uint8_t *h)
{
    uint64_t cookie = get_be64(h + 8);
    bool is_write = cookie >> 32;
    if (get_be32(h) != magic_reply || (uint32_t)cookie >= c->options->depth)
        load_fail("a reply that makes no sense: %08x", get_be32(h));
    c->failed_status = get_be32(h + 4) != 0;
    c->completing = &c->slots[(uint32_t)cookie];
    c->payload_left = is_write || c->failed_status ? 0 : c->options->block;
}

static const struct load_protocol nbd = {REPLY_BYTES, nbd_open, out_per_slot, headers_per_slot,
                                         may_issue,   issue,    header};

int main(int argc, char **argv)
{
    return load_main(argc, argv, &nbd);
}
