/* Prints what may come from a server that is not trusted. Thread-safe. */
#ifndef QUIPU_CLI_REPORT_H
#define QUIPU_CLI_REPORT_H

#include "base/json.h"
#include "base/status.h"

/*
 * Reports to the user that a command failed: prints "quipu: …" and a line break to standard error.
 * Escapes control characters. Returns `code`, so that a command can end with
 * `return report_failure(EXIT_FAILURE, …)`.
 */
int report_failure(int code, const char *format, ...) QP_PRINTF(2, 3);

/*
 * Returns an object or array as JSON text, which the caller must free. JSON allows control
 * characters that a terminal might obey; if `value` has any, all characters that are not ASCII are
 * escaped. `flags` are those of json_dumps().
 */
char *report_json(const json_t *value, size_t flags);

#endif
