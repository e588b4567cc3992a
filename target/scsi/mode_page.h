/*
 * Mode pages (SPC-4 7.5, SBC-3 6.5): a table of bytes, what of them follows the device, and what may be changed.
 *
 * Pure: builds the pages for MODE SENSE, and parses a MODE SELECT list, which comes from a peer and may be anything.
 * A list is checked whole before any of it counts.
 */
#ifndef TARGET_SCSI_MODE_PAGE_H
#define TARGET_SCSI_MODE_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "target/scsi/sense.h"

/* What MODE SELECT can change; shared by all nexuses of an LU. */
struct scsi_mode {
    bool software_write_protect; /* SWP */
    bool descriptor_sense;       /* D_SENSE */
    bool threshold_reports;      /* LBPERE */
    bool threshold_enabled, threshold_percent;
    uint32_t threshold_count; /* LBA mapping resources in use: percent of all, or LOG_MAPPING_UNITs */
};
/* As it was created. soft_threshold: percent; 0: none. */
struct scsi_mode scsi_mode_default(uint8_t soft_threshold);
bool scsi_mode_equal(const struct scsi_mode *a, const struct scsi_mode *b);

/* What the pages are made from. */
struct scsi_mode_view {
    struct scsi_mode mode, as_created;
    bool write_cache; /* WCE: what completed may be lost without a flush */
    uint32_t block_bytes;
    uint64_t blocks;
};

enum scsi_mode_control { MODE_CURRENT, MODE_CHANGEABLE, MODE_DEFAULT, MODE_SAVED };
enum { MODE_PAGES_MAX = 160, MODE_ALL_PAGES = 0x3f, MODE_ALL_SUBPAGES = 0xff };

/* The pages asked for, in ascending order; returns their bytes (at most MODE_PAGES_MAX), 0: no such page. */
uint32_t scsi_mode_pages_build(uint8_t *out, const struct scsi_mode_view *view, enum scsi_mode_control control,
                               uint8_t page, uint8_t subpage);

/* A parameter list of MODE SELECT(6) or (10, `ten`): true and the new state, or false and why. */
bool scsi_mode_select_parse(const uint8_t *list, uint32_t len, bool ten, const struct scsi_mode_view *view,
                            struct scsi_mode *out, struct scsi_sense *why);

#endif
