/*
 * The table of commands: all that is supported is a row, and what is not a row is refused with 5/20/00.
 *
 * From a row come: dispatch, the check of reserved CDB bits, the answer of REPORT SUPPORTED OPERATION CODES, and what
 * is allowed while a unit attention is pending or the LU is reserved. A row that is neither COMMAND_READS nor
 * COMMAND_HARMLESS conflicts with every persistent reservation that shuts the nexus out. Rows are in ascending order of
 * opcode and service action, so that they are found by halving.
 */
#ifndef TARGET_SCSI_COMMAND_TABLE_H
#define TARGET_SCSI_COMMAND_TABLE_H

#include "target/scsi/scsi.h"

enum {
    COMMAND_ANY_TIME = 1,        /* neither reports nor clears a pending unit attention (SAM-5 5.14.1) */
    COMMAND_WITHOUT_LU = 2,      /* answers for a LUN that does not exist */
    COMMAND_ANY_RESERVATION = 4, /* allowed when another nexus holds an SPC-2 reservation (SPC-2 5.5.1) */
    COMMAND_WRITES = 8,          /* changes the medium: refused when it is read-only, and ordered (order.h) */
    COMMAND_ATOMIC = 16,         /* needs its blocks for itself */
    COMMAND_EXACT = 32,          /* the transport must bring exactly what the CDB says */
    COMMAND_UNMAPS = 64,         /* exists only where the device discards */
    COMMAND_READS = 128,         /* allowed under a persistent reservation that excludes writing only (SPC-4 5.12.1) */
    COMMAND_HARMLESS = 256,      /* allowed under any */
    COMMAND_PERSISTENT = 512,    /* conflicts with any SPC-2 reservation, one's own included (SPC-2 5.5.1) */
    COMMAND_WHOLE = 1024,        /* exists only where the device promises writes that are whole */
    COMMAND_COPIES = 2048, /* reads here and writes there: what it may do is looked at piece by piece (copy_move.h) */
    COMMAND_MEDIUM = 4096, /* needs the medium: not while it is ejected */
    COMMAND_REMOVABLE = 8192, /* exists only where the medium is removable */
};

enum { OPCODE_START_STOP = 0x1b, CDB_START = 0x01 };      /* byte 4 */
enum { OPCODE_PREVENT_ALLOW = 0x1e, CDB_PREVENT = 0x01 }; /* the same */
enum { OPCODE_SANITIZE = 0x48 };
enum { CDB_CONTROL_NACA = 0x04, CDB_ACTION_MASK = 0x1f };

struct scsi_command {
    uint8_t opcode;
    uint8_t action; /* service action, if has_action */
    bool has_action;
    uint8_t cdb_len;
    uint16_t flags;
    uint8_t length_at, length_bytes; /* where ALLOCATION LENGTH or PARAMETER LIST LENGTH stands; 0: none */
    enum scsi_direction direction;   /* when there are data at all */
    const char *name;
    /* Checks the CDB and sets data_len, page_off, lba, blocks; false: refused. NULL: no data, nothing to check. */
    bool (*parse)(struct scsi_task *);
    void (*run)(struct scsi_task *); /* task.h tells when it is called */
    uint8_t usage[SCSI_CDB_MAX];     /* a bit that is looked at, or ignored on purpose, is 1 (SPC-4 6.35.3) */
    uint16_t patience_s;             /* RECOMMENDED COMMAND TIMEOUT (SPC-4 6.35.4) */
};

/* The row for a CDB at this LU (NULL: none), or NULL. */
const struct scsi_command *scsi_command_find(const uint8_t cdb[SCSI_CDB_MAX], const struct scsi_lu *lu);

/* Is it an opcode with service actions, of which there are some? */
bool scsi_opcode_has_actions(uint8_t opcode);
/* All rows, whatever the LU; and whether a row exists at an LU. */
const struct scsi_command *scsi_commands(unsigned *count);
bool scsi_command_supported(const struct scsi_command *command, const struct scsi_lu *lu);

/* What an initiator may ask for in parameter data, and send in parameter lists: more is cut, or refused. */
enum { SCSI_REPLY_MAX = 4096, SCSI_LIST_MAX = 65535 };

/* For `parse`: data_len is the length field of the row, at most SCSI_REPLY_MAX (IN); refused beyond SCSI_LIST_MAX. */
bool scsi_parse_reply(struct scsi_task *task);
bool scsi_parse_list(struct scsi_task *task);
/* lba and blocks from where READ(6, 10, 12, 16) and their kin have them; refused if not on the medium. */
bool scsi_parse_range(struct scsi_task *task);

/* The commands, by file. command_inquiry.c, command_report.c */
bool scsi_inquiry_parse(struct scsi_task *task);
void scsi_inquiry_run(struct scsi_task *task);
void scsi_report_luns_run(struct scsi_task *task);
bool scsi_report_luns_parse(struct scsi_task *task);
bool scsi_report_opcodes_parse(struct scsi_task *task);
void scsi_report_opcodes_run(struct scsi_task *task);
void scsi_request_sense_run(struct scsi_task *task);
void scsi_read_capacity10_run(struct scsi_task *task);
void scsi_read_capacity16_run(struct scsi_task *task);
bool scsi_lba_status_parse(struct scsi_task *task);
void scsi_lba_status_run(struct scsi_task *task);
/* command_unit.c */
bool scsi_test_unit_ready_parse(struct scsi_task *task);
bool scsi_send_diagnostic_parse(struct scsi_task *task);
void scsi_good_run(struct scsi_task *task);
void scsi_reserve_run(struct scsi_task *task);
void scsi_release_run(struct scsi_task *task);
/* command_medium.c */
bool scsi_start_stop_parse(struct scsi_task *task);
void scsi_start_stop_run(struct scsi_task *task);
void scsi_prevent_allow_run(struct scsi_task *task);
/* command_log.c, command_state.c */
bool scsi_log_sense_parse(struct scsi_task *task);
void scsi_log_sense_run(struct scsi_task *task);
bool scsi_report_port_groups_parse(struct scsi_task *task);
void scsi_report_port_groups_run(struct scsi_task *task);
bool scsi_report_functions_parse(struct scsi_task *task);
void scsi_report_functions_run(struct scsi_task *task);
void scsi_report_timestamp_run(struct scsi_task *task);
bool scsi_report_identifying_parse(struct scsi_task *task);
void scsi_report_identifying_run(struct scsi_task *task);
void scsi_defects10_run(struct scsi_task *task);
void scsi_defects12_run(struct scsi_task *task);
/* command_persist_in.c, command_persist_out.c */
bool scsi_persist_in_parse(struct scsi_task *task);
void scsi_read_keys_run(struct scsi_task *task);
void scsi_read_reservation_run(struct scsi_task *task);
void scsi_report_capabilities_run(struct scsi_task *task);
void scsi_read_full_status_run(struct scsi_task *task);
bool scsi_persist_out_parse(struct scsi_task *task);
void scsi_persist_out_run(struct scsi_task *task);
/* command_mode.c */
bool scsi_mode_sense_parse(struct scsi_task *task);
void scsi_mode_sense_run(struct scsi_task *task);
bool scsi_mode_select_check(struct scsi_task *task);
void scsi_mode_select_run(struct scsi_task *task);
/* command_block.c */
bool scsi_transfer_parse(struct scsi_task *task);
void scsi_read_run(struct scsi_task *task);
void scsi_write_run(struct scsi_task *task);
void scsi_flush_run(struct scsi_task *task);
void scsi_prefetch_run(struct scsi_task *task);
/* command_verify.c */
bool scsi_verify_parse(struct scsi_task *task);
void scsi_verify_run(struct scsi_task *task);
bool scsi_write_verify_parse(struct scsi_task *task);
void scsi_write_verify_run(struct scsi_task *task);
bool scsi_compare_write_parse(struct scsi_task *task);
void scsi_compare_write_run(struct scsi_task *task);
/* command_whole.c */
void scsi_orwrite_run(struct scsi_task *task);
bool scsi_write_atomic_parse(struct scsi_task *task);
/* command_sanitize.c */
bool scsi_sanitize_parse(struct scsi_task *task);
void scsi_sanitize_overwrite_run(struct scsi_task *task);
void scsi_sanitize_erase_run(struct scsi_task *task);
void scsi_sanitize_exit_run(struct scsi_task *task);
/* command_copy.c, command_copy_result.c */
bool scsi_copy_parse(struct scsi_task *task);
void scsi_copy_run(struct scsi_task *task);
bool scsi_copy_status_parse(struct scsi_task *task);
void scsi_copy_status_run(struct scsi_task *task);
void scsi_copy_failed_run(struct scsi_task *task);
bool scsi_copy_status4_parse(struct scsi_task *task);
void scsi_copy_status4_run(struct scsi_task *task);
void scsi_copy_parameters_run(struct scsi_task *task);
/* command_token.c */
bool scsi_token_parse(struct scsi_task *task);
void scsi_populate_token_run(struct scsi_task *task);
void scsi_use_token_run(struct scsi_task *task);
void scsi_token_information_run(struct scsi_task *task);
/* command_provision.c */
bool scsi_write_same_parse(struct scsi_task *task);
void scsi_write_same_run(struct scsi_task *task);
bool scsi_unmap_parse(struct scsi_task *task);
void scsi_unmap_run(struct scsi_task *task);

#endif
