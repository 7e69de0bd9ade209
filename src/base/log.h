/*
 * The program logs to standard error. Each message is one line: plain text or, with --log-format
 * json, a JSON object. Both formats escape control characters. Each line is a single write(), so
 * that the lines of several threads do not mix.
 */
#ifndef QUIPU_BASE_LOG_H
#define QUIPU_BASE_LOG_H

#include "base/slice.h"
#include "base/status.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

struct log_field {
	const char *name;
	struct slice value;
	bool is_number; /* written without quotes in JSON */
};

/* Sets the lowest level that is logged and the format of all later lines. Thread-safe. */
void log_configure(enum log_level least, enum log_format format);

/*
 * Returns whether lines of this level are written. Check it before preparing an expensive line.
 * Thread-safe.
 */
bool log_enabled(enum log_level level);

/*
 * Writes a line. `part` names the part of the program that logs it: "http", "store", … The message
 * is cut at 2 KiB. Thread-safe; blocks while the terminal or pipe at standard error is full.
 */
void log_line(enum log_level level, const char *part, const char *format, ...) QP_PRINTF(3, 4);

/* Writes a line like log_line(), with named values after the message, e.g. the request id. Skips
 * empty values. */
void log_line_with(enum log_level level, const char *part, const struct log_field *fields,
	size_t field_count, const char *format, ...) QP_PRINTF(5, 6);

/* Parses debug, info, warn or error. Returns false, and leaves `*level` alone, for any other
 * name. */
bool log_level_parse(struct slice name, enum log_level *level);

#endif
