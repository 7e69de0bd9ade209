/*
 * quipu keys new ID [--scopes LIST]: makes an API key. The line for the file of --api-keys goes to
 * standard output, which so can be appended to it; the key itself, which is kept nowhere, to
 * standard error. Main thread.
 */
#ifndef QUIPU_CLI_API_KEY_COMMAND_H
#define QUIPU_CLI_API_KEY_COMMAND_H

#include "cli/options.h"

/* The flags of its own, for options_read(). */
extern const char *const keys_flags[];

/* Returns what main() returns: 0, 1 where the line could not be written, 2 for a wrong use. */
int keys_run(const struct operands *operands);

#endif
