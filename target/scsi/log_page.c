/* Log pages: see log_page.h. */
#include "target/scsi/log_page.h"

#include <string.h>

#include "core/bytes.h"
#include "core/check.h"

enum { PAGE_HEADER = 4, ALL_SUBPAGES = 0xff, SUBPAGE_FORMAT = 0x40 };
/* FORMAT AND LINKING: a counter that stops at its end; a list in binary, in ASCII */
enum { FORMAT_COUNTER = 0x02, FORMAT_BINARY = 0x03, FORMAT_ASCII = 0x01 };

/* A page that is being written. Parameters below `from` are left out. */
struct writer {
    uint8_t *out;
    uint32_t len;
    uint16_t from;
};

static void put_parameter(struct writer *w, uint16_t number, uint8_t format, const void *bytes, uint8_t len)
{
    if (number < w->from)
        return;
    uint8_t *at = w->out + w->len;
    ASSERT(w->len + 4 + len <= LOG_PAGE_MAX);
    put_be16(at, number);
    at[2] = format;
    at[3] = len;
    memcpy(at + 4, bytes, len);
    w->len += 4u + len;
}

static void put_counter(struct writer *w, uint16_t number, uint64_t value)
{
    uint8_t bytes[8];
    put_be64(bytes, value);
    put_parameter(w, number, FORMAT_COUNTER, bytes, sizeof bytes);
}

/* 7.3.6: total bytes processed, and errors that were not corrected. Those that were, RAID keeps to itself. */
static void put_errors(struct writer *w, uint64_t bytes, uint64_t errors)
{
    put_counter(w, 5, bytes);
    put_counter(w, 6, errors);
}

static void page_write_errors(struct writer *w, const struct log_view *v)
{
    put_errors(w, v->counters.wrote_blocks * v->block_bytes, v->write_errors);
}

static void page_read_errors(struct writer *w, const struct log_view *v)
{
    put_errors(w, v->counters.read_blocks * v->block_bytes, v->read_errors);
}

/* A verify that fails is a read that fails, and counted there. */
static void page_verify_errors(struct writer *w, const struct log_view *v)
{
    put_errors(w, v->counters.verified_bytes, 0);
}

/* SBC-3 6.4.4: available and used resources, of the logical unit alone. */
static void page_provisioning(struct writer *w, const struct log_view *v)
{
    enum { SCOPE_LU = 0x01 };
    const uint64_t values[] = {v->available, v->mapped};
    for (uint16_t i = 0; v->mapping_known && i < ARRAY_LENGTH(values); i++) {
        uint8_t bytes[8] = {[4] = SCOPE_LU};
        put_be32(bytes, (uint32_t)MIN(values[i], (uint64_t)UINT32_MAX));
        put_parameter(w, (uint16_t)(i + 1), FORMAT_BINARY, bytes, sizeof bytes);
    }
}

/* SPC-4 7.3.20: there is no sensor, and nothing to refer to. */
static void page_temperature(struct writer *w, const struct log_view *v)
{
    static const uint8_t unknown[2] = {0, 0xff};
    (void)v;
    put_parameter(w, 0, FORMAT_BINARY, unknown, sizeof unknown);
    put_parameter(w, 1, FORMAT_BINARY, unknown, sizeof unknown);
}

/* 7.3.18: dates of nothing; a unit that is never stopped. */
static void page_start_stop(struct writer *w, const struct log_view *v)
{
    static const uint8_t no_cycles[4] = {0};
    (void)v;
    put_parameter(w, 1, FORMAT_ASCII, "      ", 6);
    put_parameter(w, 2, FORMAT_ASCII, "      ", 6);
    put_parameter(w, 3, FORMAT_BINARY, no_cycles, sizeof no_cycles);
    put_parameter(w, 4, FORMAT_BINARY, no_cycles, sizeof no_cycles);
}

/* 7.3.17: the last 20 tests that were asked for by number; there are none such. */
static void page_self_tests(struct writer *w, const struct log_view *v)
{
    static const uint8_t none[16] = {0};
    (void)v;
    for (uint16_t test = 1; test <= 20; test++)
        put_parameter(w, test, FORMAT_BINARY, none, sizeof none);
}

/* SBC-3 6.4.2: no scan is active. */
static void page_background_scan(struct writer *w, const struct log_view *v)
{
    uint8_t status[12] = {0};
    put_be32(status, (uint32_t)MIN(v->served_minutes, (uint64_t)UINT32_MAX));
    put_parameter(w, 0, FORMAT_BINARY, status, sizeof status);
}

/* SPC-4 7.3.9: commands, blocks, and how long they took, in microseconds. */
static void page_statistics(struct writer *w, const struct log_view *v)
{
    uint8_t statistics[64] = {0}, interval[8];
    const struct scsi_counters *c = &v->counters;
    const uint64_t values[] = {c->reads,       c->writes,          c->wrote_blocks,
                               c->read_blocks, c->read_ns / 1000u, c->write_ns / 1000u};
    for (unsigned i = 0; i < ARRAY_LENGTH(values); i++)
        put_be64(statistics + 8 * i, values[i]);
    put_parameter(w, 1, FORMAT_BINARY, statistics, sizeof statistics);
    put_be32(interval, 6); /* 1 * 10^-6 s */
    put_be32(interval + 4, 1);
    put_parameter(w, 3, FORMAT_BINARY, interval, sizeof interval);
}

/* 7.3.11: nothing to report, and no sensor. */
static void page_exceptions(struct writer *w, const struct log_view *v)
{
    static const uint8_t none[4] = {0, 0, 0xff, 0};
    (void)v;
    put_parameter(w, 0, FORMAT_BINARY, none, sizeof none);
}

static void page_list(struct writer *w, const struct log_view *v);
static void page_list_subpages(struct writer *w, const struct log_view *v);

static const struct log_page {
    uint8_t page, subpage;
    void (*build)(struct writer *w, const struct log_view *v);
} log_pages[] = {
    {0x00, 0, page_list},          {0x00, ALL_SUBPAGES, page_list_subpages},
    {0x02, 0, page_write_errors},  {0x03, 0, page_read_errors},
    {0x05, 0, page_verify_errors}, {0x0c, 0, page_provisioning},
    {0x0d, 0, page_temperature},   {0x0e, 0, page_start_stop},
    {0x10, 0, page_self_tests},    {0x15, 0, page_background_scan},
    {0x19, 0, page_statistics},    {0x2f, 0, page_exceptions},
};

/* 7.3.15: no parameters, but codes. */
static void page_list(struct writer *w, const struct log_view *v)
{
    (void)v;
    for (unsigned i = 0; i < ARRAY_LENGTH(log_pages); i++)
        if (log_pages[i].subpage == 0)
            w->out[w->len++] = log_pages[i].page;
}

static void page_list_subpages(struct writer *w, const struct log_view *v)
{
    (void)v;
    for (unsigned i = 0; i < ARRAY_LENGTH(log_pages); i++) {
        w->out[w->len++] = log_pages[i].page;
        w->out[w->len++] = log_pages[i].subpage;
    }
}

uint32_t log_page_build(uint8_t out[LOG_PAGE_MAX], const struct log_view *view, uint8_t page, uint8_t subpage,
                        uint16_t pointer)
{
    struct writer w = {.out = out, .len = PAGE_HEADER, .from = pointer};
    unsigned i = 0;
    while (i < ARRAY_LENGTH(log_pages) && (log_pages[i].page != page || log_pages[i].subpage != subpage))
        i++;
    if (i == ARRAY_LENGTH(log_pages))
        return 0;
    log_pages[i].build(&w, view);
    out[0] = (uint8_t)(page | (subpage != 0 ? SUBPAGE_FORMAT : 0));
    out[1] = subpage;
    put_be16(out + 2, (uint16_t)(w.len - PAGE_HEADER));
    return w.len;
}
