/* Tables for people, from the JSON that corbeld answers. */
#ifndef DAEMON_CTL_PRINT_H
#define DAEMON_CTL_PRINT_H

#include <jansson.h>

/* The answer of /api/v1/power. */
void print_power(const json_t *power);
void print_status(const json_t *status);
void print_arrays(const json_t *status);
void print_sessions(const json_t *answer);
void print_volumes(const json_t *status);
void print_caches(const json_t *status);
void print_disks(const json_t *status);
void print_imports(const json_t *status);
/* A volume's scrub: results, and findings. */
void print_scrub(const json_t *scrub);
/* The steps of a plan, refused ones with their reason. */
void print_plan(const json_t *result);
/* What a reload took over, what it did not, and the config's mistakes (to standard error). */
void print_reload(const json_t *result);

#endif
