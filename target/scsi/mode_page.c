/* Mode pages: see mode_page.h. */
#include "target/scsi/mode_page.h"

#include "core/bytes.h"
#include "core/check.h"

enum { PAGE_ERRORS = 0x01, PAGE_CACHING = 0x08, PAGE_CONTROL = 0x0a, PAGE_POWER = 0x1a, PAGE_EXCEPTIONS = 0x1c };
enum { PAGE_MAX_BYTES = 40, SUBPAGE_FORMAT = 0x40 };
enum { CACHING_WCE = 0x04, CONTROL_D_SENSE = 0x04, CONTROL_SWP = 0x08, ERRORS_LBPERE = 0x80 }; /* bytes 2, 2, 4, 7 */
/* Of the threshold descriptor: byte 0; where it begins. SBC-3 6.5.8 */
enum { THRESHOLD_ENABLED = 0x80, THRESHOLD_PERCENT = 0x08, THRESHOLD_INCREASING = 0x01, THRESHOLD_USED = 0x02 };
enum { THRESHOLD_AT = 16, THRESHOLD_COUNT_AT = THRESHOLD_AT + 4, PERCENT_MAX = 100 };

struct mode_page {
    uint8_t page, subpage, bytes;     /* bytes: all of it, with its header */
    uint8_t defaults[PAGE_MAX_BYTES]; /* without what follows from mode and cache */
    uint8_t changeable[PAGE_MAX_BYTES];
};

static const struct mode_page mode_pages[] = {
    /* what cannot be read is found elsewhere and written again (AWRE, ARRE) */
    {PAGE_ERRORS, 0, 12, {PAGE_ERRORS, 10, 0xc0}, {[7] = ERRORS_LBPERE}},
    {PAGE_CACHING, 0, 20, {PAGE_CACHING, 18}, {0}},
    /* GLTSD; unrestricted reordering; busy time-out without limit */
    {PAGE_CONTROL,
     0,
     12,
     {PAGE_CONTROL, 10, 0x02, 0x10, 0, 0x40 /* TAS: others are told */, 0, 0, 0xff, 0xff},
     {[2] = CONTROL_D_SENSE, [4] = CONTROL_SWP}},
    {PAGE_CONTROL, 1, 32, {PAGE_CONTROL | SUBPAGE_FORMAT, 1, 0, 28}, {0}},
    {PAGE_POWER, 0, 40, {PAGE_POWER, 38}, {0}}, /* no timers */
    /* exceptions are told to who asks with REQUEST SENSE */
    {PAGE_EXCEPTIONS, 0, 12, {PAGE_EXCEPTIONS, 10, 0, 6}, {0}},
    /* logical block provisioning: one threshold, of what is in use */
    {PAGE_EXCEPTIONS,
     2,
     24,
     {PAGE_EXCEPTIONS | SUBPAGE_FORMAT, 2, 0, 20, [THRESHOLD_AT] = THRESHOLD_INCREASING, THRESHOLD_USED},
     {[THRESHOLD_AT] = THRESHOLD_ENABLED | THRESHOLD_PERCENT, [THRESHOLD_COUNT_AT] = 0xff, 0xff, 0xff, 0xff}},
};

static uint32_t page_header_bytes(const struct mode_page *page)
{
    return page->subpage != 0 ? 4 : 2;
}

struct scsi_mode scsi_mode_default(uint8_t soft_threshold)
{
    return (struct scsi_mode){.threshold_reports = true,
                              .threshold_enabled = soft_threshold > 0,
                              .threshold_percent = true,
                              .threshold_count = soft_threshold};
}

bool scsi_mode_equal(const struct scsi_mode *a, const struct scsi_mode *b)
{
    return a->software_write_protect == b->software_write_protect && a->descriptor_sense == b->descriptor_sense &&
           a->threshold_reports == b->threshold_reports && a->threshold_enabled == b->threshold_enabled &&
           a->threshold_percent == b->threshold_percent && a->threshold_count == b->threshold_count;
}

static bool is_page(const struct mode_page *row, uint8_t page, uint8_t subpage)
{
    return row->page == page && row->subpage == subpage;
}

static void page_follow_state(uint8_t *out, const struct mode_page *page, const struct scsi_mode_view *view,
                              const struct scsi_mode *mode)
{
    if (is_page(page, PAGE_CACHING, 0)) {
        out[2] |= view->write_cache ? CACHING_WCE : 0;
    } else if (is_page(page, PAGE_ERRORS, 0)) {
        out[7] |= mode->threshold_reports ? ERRORS_LBPERE : 0;
    } else if (is_page(page, PAGE_CONTROL, 0)) {
        out[2] |= mode->descriptor_sense ? CONTROL_D_SENSE : 0;
        out[4] |= mode->software_write_protect ? CONTROL_SWP : 0;
    } else if (is_page(page, PAGE_EXCEPTIONS, 2)) {
        out[THRESHOLD_AT] |= (uint8_t)((mode->threshold_enabled ? THRESHOLD_ENABLED : 0) |
                                       (mode->threshold_percent ? THRESHOLD_PERCENT : 0));
        put_be32(out + THRESHOLD_COUNT_AT, mode->threshold_count);
    }
}

static void page_build(uint8_t *out, const struct mode_page *page, const struct scsi_mode_view *view,
                       enum scsi_mode_control control)
{
    memcpy(out, page->defaults, page->bytes);
    if (control == MODE_CHANGEABLE)
        memcpy(out + page_header_bytes(page), page->changeable + page_header_bytes(page),
               page->bytes - page_header_bytes(page));
    else
        page_follow_state(out, page, view, control == MODE_DEFAULT ? &view->as_created : &view->mode);
}

static bool page_wanted(const struct mode_page *row, uint8_t page, uint8_t subpage)
{
    return (page == MODE_ALL_PAGES || page == row->page) && (subpage == MODE_ALL_SUBPAGES || subpage == row->subpage);
}

uint32_t scsi_mode_pages_build(uint8_t *out, const struct scsi_mode_view *view, enum scsi_mode_control control,
                               uint8_t page, uint8_t subpage)
{
    uint32_t len = 0;
    if (page == MODE_ALL_PAGES && subpage != 0 && subpage != MODE_ALL_SUBPAGES)
        return 0;
    for (unsigned i = 0; i < ARRAY_LENGTH(mode_pages); i++) {
        if (!page_wanted(&mode_pages[i], page, subpage))
            continue;
        ASSERT(len + mode_pages[i].bytes <= MODE_PAGES_MAX);
        page_build(out + len, &mode_pages[i], view, control);
        len += mode_pages[i].bytes;
    }
    return len;
}

/* --- MODE SELECT --- */

static bool refuse(struct scsi_sense *why, const struct scsi_sense *sense)
{
    *why = *sense;
    return false;
}

/* A block descriptor may only say what is so already (or 0: leave it). SBC-3 6.5.2. */
static bool descriptor_agrees(const uint8_t *at, uint32_t len, const struct scsi_mode_view *view)
{
    if (len == 0)
        return true;
    uint64_t blocks = len == 8 ? get_be32(at) : get_be64(at);
    uint32_t block = len == 8 ? get_be24(at + 5) : get_be32(at + 12);
    bool no_change = blocks == 0 || blocks == (len == 8 ? (uint64_t)UINT32_MAX : UINT64_MAX);
    return (block == 0 || block == view->block_bytes) && (no_change || blocks == view->blocks);
}

/* At least 4 bytes are at `at`: every page has them. */
static const struct mode_page *page_find(const uint8_t *at, uint32_t *bytes)
{
    bool sub = (at[0] & SUBPAGE_FORMAT) != 0;
    uint8_t subpage = sub ? at[1] : 0;
    *bytes = sub ? 4u + get_be16(at + 2) : 2u + at[1];
    for (unsigned i = 0; i < ARRAY_LENGTH(mode_pages); i++)
        if (mode_pages[i].page == (at[0] & 0x3f) && mode_pages[i].subpage == subpage)
            return &mode_pages[i];
    return NULL;
}

/* Bits that cannot be changed must be as they are: SPC-4 6.9. */
static bool page_agrees(const uint8_t *at, const struct mode_page *page, const struct scsi_mode_view *view)
{
    uint8_t now[PAGE_MAX_BYTES];
    page_build(now, page, view, MODE_CURRENT);
    for (uint32_t i = page_header_bytes(page); i < page->bytes; i++)
        if ((at[i] ^ now[i]) & ~page->changeable[i])
            return false;
    return true;
}

/* Only bits that can be changed differ. False: a value that cannot be. */
static bool page_take(const uint8_t *at, const struct mode_page *page, struct scsi_mode *out)
{
    if (is_page(page, PAGE_ERRORS, 0)) {
        out->threshold_reports = (at[7] & ERRORS_LBPERE) != 0;
    } else if (is_page(page, PAGE_CONTROL, 0)) {
        out->descriptor_sense = (at[2] & CONTROL_D_SENSE) != 0;
        out->software_write_protect = (at[4] & CONTROL_SWP) != 0;
    } else if (is_page(page, PAGE_EXCEPTIONS, 2)) {
        out->threshold_enabled = (at[THRESHOLD_AT] & THRESHOLD_ENABLED) != 0;
        out->threshold_percent = (at[THRESHOLD_AT] & THRESHOLD_PERCENT) != 0;
        out->threshold_count = get_be32(at + THRESHOLD_COUNT_AT);
        return !out->threshold_percent || out->threshold_count <= PERCENT_MAX;
    }
    return true;
}

static bool pages_parse(const uint8_t *at, uint32_t left, const struct scsi_mode_view *view, struct scsi_mode *out,
                        struct scsi_sense *why)
{
    while (left > 0) {
        uint32_t bytes = 0;
        if (left < 4)
            return refuse(why, &sense_list_length);
        const struct mode_page *page = page_find(at, &bytes);
        if (page == NULL || bytes != page->bytes)
            return refuse(why, &sense_list_field);
        if (bytes > left)
            return refuse(why, &sense_list_length);
        if (!page_agrees(at, page, view) || !page_take(at, page, out))
            return refuse(why, &sense_list_field);
        at += bytes;
        left -= bytes;
    }
    return true;
}

bool scsi_mode_select_parse(const uint8_t *list, uint32_t len, bool ten, const struct scsi_mode_view *view,
                            struct scsi_mode *out, struct scsi_sense *why)
{
    uint32_t header = ten ? 8 : 4;
    *out = view->mode;
    if (len == 0)
        return true;
    if (len < header)
        return refuse(why, &sense_list_length);
    uint32_t descriptor = ten ? get_be16(list + 6) : list[3];
    bool long_descriptor = ten && (list[4] & 1) != 0;
    if (descriptor != 0 && descriptor != (long_descriptor ? 16 : 8))
        return refuse(why, &sense_list_field);
    if (descriptor > len - header)
        return refuse(why, &sense_list_length);
    if (!descriptor_agrees(list + header, descriptor, view))
        return refuse(why, &sense_list_field);
    return pages_parse(list + header + descriptor, len - header - descriptor, view, out, why);
}
