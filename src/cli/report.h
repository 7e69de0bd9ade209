/* Reports to the user that a command failed. Thread-safe. */
#ifndef QUIPU_CLI_REPORT_H
#define QUIPU_CLI_REPORT_H

#include "base/status.h"

/*
 * Prints "quipu: …" and a line break to standard error, and returns `code`, so that a command can
 * end with `return report_failure(EXIT_FAILURE, …)`. Escapes control characters, because parts of a
 * message may come from a server that is not trusted.
 */
int report_failure(int code, const char *format, ...) QP_PRINTF(2, 3);

#endif
