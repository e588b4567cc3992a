/* The table of keys, private to the config files: see daemon/config.h. */
#ifndef DAEMON_CONFIG_TABLE_H
#define DAEMON_CONFIG_TABLE_H

#include "daemon/config.h"

enum config_kind {
    KEY_TEXT,     /* struct config_text */
    KEY_SIZE,     /* uint64_t bytes, from a string with a unit */
    KEY_DURATION, /* uint64_t nanoseconds, from a string with a unit */
    KEY_NUMBER,   /* uint64_t, from an integer */
    KEY_BOOL,     /* bool */
    KEY_LEVEL,    /* enum raid_level */
    KEY_ROTATION, /* enum raid_rotation */
    KEY_POLICY,   /* int: enum sb_consistency, or -1 for "default" */
    KEY_INIT,     /* int: enum sb_init */
    KEY_STRINGS,  /* struct config_strings */
    KEY_NUMBERS,  /* struct config_numbers */
    KEY_GROUP,    /* a struct described by `group` */
    KEY_GROUPS,   /* struct config_list of such */
};

struct config_group;

struct config_key {
    const char *name;
    enum config_kind kind;
    size_t offset;        /* in the group's struct */
    const char *fallback; /* default, as text; NULL: the key is required */
    uint64_t min, max;    /* KEY_SIZE, KEY_DURATION (ns), KEY_NUMBER, each of KEY_NUMBERS */
    const struct config_group *group;
    bool alone; /* KEY_STRINGS: one string is a list as well; an empty one, none */
    const char *help;
};

/* A group's struct begins with `unsigned line`. */
struct config_group {
    size_t struct_size;
    const struct config_key *keys;
    unsigned count;
};

extern const struct config_group config_root;

void config_error(struct config_errors *errors, const char *path, unsigned line, const char *setting,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));

/* What spans keys. */
void config_check(const struct config *config, struct config_errors *errors);
void config_check_access(const struct config *config, struct config_errors *errors);
void config_check_nbd(const struct config *config, struct config_errors *errors);
void config_check_power(const struct config *config, struct config_errors *errors);

/* An address to listen on; `local`: it may be a Unix socket, or one of the service manager's, too. */
void config_check_address(const struct config *config, struct config_errors *errors, const struct config_text *address,
                          bool local);

#endif
