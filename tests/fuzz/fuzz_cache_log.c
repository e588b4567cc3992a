/*
 * A cache's log on a hostile device. The input is a label and pages of the ring, 256 bytes of each. They are decoded as
 * they are; then, with magic, checksums, sequence numbers and places put right, so that changes behind these reach what
 * comes after, the log is opened over a small volume. Whatever it says, it ends, and only the volume is written.
 */
#include <stdlib.h>
#include <string.h>

#include "cache/log.h"
#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "core/log.h"
#include "tests/unit/lib/testloop.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { PIECE = 256, RING = 32, PAGES = LOG_RING_AT + RING, VOLUME = 64 * PAGE_BYTES, ENTRIES_AT = 128, ENTRY = 24 };

static uint8_t device[PAGES * PAGE_BYTES];

static void no_log(enum log_level level, const char *line)
{
    (void)level;
    (void)line;
}

static void seal(uint8_t *page, const char *magic)
{
    memcpy(page, magic, 16);
    put_le32(page + PAGE_BYTES - 4, crc32c(0, page, PAGE_BYTES - 4));
}

static void decode_all(void)
{
    struct log_label label, again;
    struct log_group group, same;
    static uint8_t bytes[PAGE_BYTES];
    if (log_labels_look(device, sizeof device, &label) >= LOG_CLEAN) {
        uint8_t labels[LOG_LABELS_BYTES] = {0};
        log_label_encode(&label, labels);
        ASSERT(log_labels_look(labels, sizeof device, &again) == (label.clean ? LOG_CLEAN : LOG_IN_USE));
        ASSERT(again.generation == label.generation && again.tail_page < again.ring && again.ring <= RING);
    }
    for (unsigned i = LOG_RING_AT; i < PAGES; i++) {
        if (!log_group_decode(device + i * PAGE_BYTES, &group))
            continue;
        log_group_encode(&group, bytes);
        ASSERT(log_group_decode(bytes, &same));
        ASSERT(same.sequence == group.sequence && same.entries_count == group.entries_count);
    }
}

/* The pages of DATA entries have the checksums that the entries say. */
static unsigned entries_right(uint8_t *header, unsigned at)
{
    unsigned data = 0, count = get_le32(header + 64);
    for (unsigned i = 0; i < count && i < LOG_ENTRIES_MAX && at + 1 + data < RING; i++) {
        uint8_t *entry = header + ENTRIES_AT + i * ENTRY;
        if (entry[20] == LOG_DATA)
            put_le32(entry + 16, crc32c(0, device + (LOG_RING_AT + at + ++data) * PAGE_BYTES, PAGE_BYTES));
    }
    put_le32(header + 68, data);
    return data;
}

static void put_right(struct log_identity *identity)
{
    uint64_t sequence = 1;
    put_le32(device + 16, LOG_FORMAT);
    put_le32(device + 20, PAGE_BYTES);
    put_le64(device + 144, RING);
    put_le64(device + 160, 0);
    put_le64(device + 168, 1);
    put_le32(device + 176, 1);
    put_le32(device + 180, 0);
    seal(device, "Corbel log label");
    memcpy(identity->log.bytes, device + 32, 16);
    memcpy(identity->array.bytes, device + 48, 16);
    memcpy(identity->volume.bytes, device + 64, 16);
    for (unsigned at = 0; at < RING; at++) {
        uint8_t *header = device + (LOG_RING_AT + at) * PAGE_BYTES;
        memcpy(header + 16, identity->log.bytes, 16);
        memcpy(header + 32, device + 152, 8);
        put_le64(header + 40, sequence++);
        put_le64(header + 48, at);
        at += entries_right(header, at);
        seal(header, "Corbel log group");
    }
}

static void nothing(struct task *task)
{
    (void)task;
}

static void call_done(struct cache_log_call *call)
{
    call->done = NULL;
}

static void open_it(const struct log_identity *identity)
{
    struct testloop *t = testloop_create(8, 1);
    struct memdisk *disk = memdisk_create(&t->loop, "log", sizeof device, 512);
    struct memdisk *volume = memdisk_create(&t->loop, "volume", VOLUME, 512);
    struct cache_log_options o = {.name = "fuzz", .devices = {&disk->dev}, .identity = *identity};
    struct cache_log_call call = {.done = call_done};
    struct task closed = {.run = nothing};
    struct cache_log *log = cache_log_create(&o);
    ASSERT(log != NULL);
    memcpy(disk->bytes, device, sizeof device);
    cache_log_open(log, &volume->dev, &call);
    testloop_run(t);
    ASSERT(call.done == NULL);
    if (call.result == CACHE_LOG_OK) {
        struct log_label label;
        ASSERT(log_labels_look(disk->bytes, sizeof device, &label) == LOG_IN_USE && label.tail_sequence == 1);
    }
    cache_log_close(log, &closed);
    testloop_run(t);
    test_close(t, &disk->dev);
    test_close(t, &volume->dev);
    testloop_destroy(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct log_identity identity = {0};
    log_setup(no_log, LOG_LEVEL_ERROR);
    memset(device, 0, sizeof device);
    for (size_t at = 0; at < len && at < PIECE * (1 + RING); at += PIECE) {
        unsigned page = at == 0 ? 0 : LOG_RING_AT + (unsigned)(at / PIECE) - 1;
        memcpy(device + page * PAGE_BYTES, data + at, MIN(len - at, (size_t)PIECE));
    }
    decode_all();
    put_right(&identity);
    decode_all();
    open_it(&identity);
    return 0;
}
