/*
 * Load by NBD: fixed newstyle handshake, NBD_OPT_GO without structured replies, then simple requests and replies
 * (the NBD protocol document, "Transmission phase"). With --tls STARTTLS comes first.
 */
#include <string.h>

#include "core/bytes.h"
#include "tests/bench/load.h"
#include "tests/bench/load_tls.h"

enum {
    REQUEST_BYTES = 28,
    REPLY_BYTES = 16,
    OPT_STARTTLS = 5,
    OPT_GO = 7,
    REP_ACK = 1,
    REP_INFO = 3,
    CMD_READ = 0,
    CMD_WRITE = 1
};

static const uint64_t magic_option = 0x49484156454f5054, magic_option_reply = 0x3e889045565a9;
static const uint32_t magic_request = 0x25609513, magic_reply = 0x67446698;

static void send_option(struct load_connection *c, uint32_t number, const uint8_t *data, uint32_t len)
{
    uint8_t head[16];
    put_be64(head, magic_option);
    put_be32(head + 8, number);
    put_be32(head + 12, len);
    load_send_all(c, head, sizeof head);
    if (len > 0)
        load_send_all(c, data, len);
}

static void send_go(struct load_connection *c)
{
    uint8_t data[6 + 512];
    uint32_t name = (uint32_t)strlen(c->options->export_);
    if (name > 500)
        load_fail("%s: too long a name", c->options->export_);
    put_be32(data, name);
    memcpy(data + 4, c->options->export_, name);
    put_be16(data + 4 + name, 0);
    send_option(c, OPT_GO, data, 6 + name);
}

/* Up to the ACK. */
static void receive_replies(struct load_connection *c)
{
    uint8_t head[20], data[4096];
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

static void nbd_open(struct load_connection *c)
{
    uint8_t greeting[18], flags[4];
    load_receive_all(c, greeting, sizeof greeting);
    if (memcmp(greeting, "NBDMAGICIHAVEOPT", 16) != 0)
        load_fail("%s: not a newstyle NBD server", c->options->uri);
    put_be32(flags, 1 | 2); /* fixed newstyle, no zeroes */
    load_send_all(c, flags, sizeof flags);
    if (c->options->tls != NULL) {
        send_option(c, OPT_STARTTLS, NULL, 0);
        receive_replies(c);
        c->tls = load_tls_start(c->fd, c->options->tls);
    }
    send_go(c);
    receive_replies(c);
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
