/*
 * quipu keys new ID [--scopes LIST] creates an API key. The line for the file that --api-keys names
 * is printed to standard output, so that the line can be appended to that file. The key itself is
 * stored nowhere; it is printed to standard error. With --json, the line and the key are both
 * printed to standard output. Main thread only.
 */
#ifndef QUIPU_CLI_API_KEY_COMMAND_H
#define QUIPU_CLI_API_KEY_COMMAND_H

#include "cli/options.h"

/* The command's own flags, for options_read(). */
extern const char *const keys_flags[];

/* Returns the exit status: 0 on success, 1 if the line cannot be written, or 2 if the arguments are
 * wrong. */
int keys_run(const struct settings *settings, const struct operands *operands);

#endif
