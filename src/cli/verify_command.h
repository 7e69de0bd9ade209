/*
 * quipu verify [SERVICE] [--repair] [--json]: asks a running server to look at every row of a
 * service, or of all that run there, and names what contradicts the service's rules. With --repair,
 * of unread alone, each counter that differs is repaired. Main thread.
 */
#ifndef QUIPU_CLI_VERIFY_COMMAND_H
#define QUIPU_CLI_VERIFY_COMMAND_H

#include "cli/options.h"

/* The flags of its own, for options_read(). */
extern const char *const verify_flags[];

/* Returns what main() returns: 0, 1 where something differs or could not be asked for, 2 for a
 * wrong use. */
int verify_run(const struct settings *settings, const struct operands *operands);

#endif
