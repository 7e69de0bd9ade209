/*
 * The program's log: one line an event on standard error, readable on a terminal, one JSON object a
 * line with --log-format json. Control characters are escaped in both. A line is one write(), so
 * lines of several threads never mix.
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
};

/* Before any thread starts. */
void log_configure(enum log_level least, enum log_format format);

/* Whether lines of this level are written; for what is costly to prepare. Any thread. */
bool log_enabled(enum log_level level);

/* `part` is the part of the program that speaks: "http", "store", … Any thread; may block on the
 * terminal or pipe behind standard error. */
void log_line(enum log_level level, const char *part, const char *format, ...) QP_PRINTF(3, 4);

/* The same with named values, e.g. the request id. */
void log_line_with(enum log_level level, const char *part, const struct log_field *fields,
	size_t field_count, const char *format, ...) QP_PRINTF(5, 6);

/* false: `name` is none of debug, info, warn, error. */
bool log_level_parse(struct slice name, enum log_level *level);

#endif
