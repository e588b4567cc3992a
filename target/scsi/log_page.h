/*
 * Log pages (SPC-4 7.3, SBC-3 6.4): a table of pages, each built from what an LU counts. Pure: values in, bytes out.
 *
 * What is not known is told as the standard says (a temperature as FFh, a date as blanks) or its parameter is left out.
 */
#ifndef TARGET_SCSI_LOG_PAGE_H
#define TARGET_SCSI_LOG_PAGE_H

#include <stdbool.h>
#include <stdint.h>

enum { LOG_PAGE_MAX = 512 };

/* What was done at an LU since it is served, by commands that ended GOOD. */
struct scsi_counters {
    uint64_t reads, writes;             /* commands */
    uint64_t read_blocks, wrote_blocks; /* to and from initiators */
    uint64_t read_ns, write_ns;         /* from command to status */
    uint64_t verified_bytes;
};

/* What the pages are made from. */
struct log_view {
    struct scsi_counters counters;
    uint32_t block_bytes;
    uint64_t read_errors, write_errors; /* of the device: not corrected */
    uint64_t served_minutes;
    bool mapping_known;         /* the two below are */
    uint64_t mapped, available; /* in units of LOG_MAPPING_UNIT bytes */
};
#define LOG_MAPPING_UNIT (1024 * 1024)

/* The page with its header, parameters from number `pointer` on; returns its bytes, 0: there is no such page. */
uint32_t log_page_build(uint8_t out[LOG_PAGE_MAX], const struct log_view *view, uint8_t page, uint8_t subpage,
                        uint16_t pointer);
#endif
