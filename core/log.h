/*
 * Log lines for people, and a flight recorder for the dead.
 *
 * A log line says what happened, to whom, and so what; one line per event that a person would act on. The data path
 * never logs: it counts, and leaves 32-byte notes in the flight recorder, a ring per thread that is printed when an
 * assertion fails or an operator asks.
 *
 * The roof (daemon/, tests/) installs a sink once at start, before a second thread exists. Any thread may log.
 */
#ifndef CORE_LOG_H
#define CORE_LOG_H

#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_NOTICE, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

typedef void (*log_sink)(enum log_level level, const char *line);

/* Where lines go, and the last level that is let through. Default: standard error, LOG_LEVEL_NOTICE. */
void log_setup(log_sink sink, enum log_level threshold);

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)  log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)   log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_notice(...) log_write(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...)   log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)  log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

const char *log_level_name(enum log_level level);

/* Leave a note in this thread's ring: `what` must be a string literal; a and b are any two numbers. */
void flight_note(const char *what, uint64_t a, uint64_t b);

/* Print this thread's ring, oldest first, one line a note, through `print`. */
void flight_dump(void (*print)(const char *line));

/* Text into a fixed buffer, cut at its end; always terminated. For layers that may not use stdio. */
void text_format(char *out, uint64_t out_len, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
