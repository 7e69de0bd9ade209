/*
 * quipu verify [SERVICE] [--repair] [--json] makes a running server check every row of one service,
 * or of all its services, and prints the rows that violate the service's rules. SERVICE may also be
 * `unread`, which stands for dialogs and counters together: the server then compares the counters
 * with the unread messages. Only `quipu verify unread` accepts --repair, which also repairs each
 * counter that differs. Main thread only.
 */
#ifndef QUIPU_CLI_VERIFY_COMMAND_H
#define QUIPU_CLI_VERIFY_COMMAND_H

#include "cli/options.h"

/* The command's own flags, for options_read(). */
extern const char *const verify_flags[];

/* Returns the exit status: 0 if nothing differs, 1 if something differs or could not be checked, 2
 * if the arguments are wrong. */
int verify_run(const struct settings *settings, const struct operands *operands);

#endif
