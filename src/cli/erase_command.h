/*
 * quipu erase-user ID [--dry-run] erases a person from every service that the server runs, step by
 * step, or only counts what there is. Services of other servers are named, so that nobody takes
 * half of it for the whole. Run it again at any time: it goes on where it was interrupted. Main
 * thread.
 */
#ifndef QUIPU_CLI_ERASE_COMMAND_H
#define QUIPU_CLI_ERASE_COMMAND_H

#include "cli/options.h"

/* The command's own flags, for options_read(). */
extern const char *const erase_flags[];

/* Returns the exit status: 0, 1 if something was not done, or 2 for wrong arguments. */
int erase_run(const struct settings *settings, const struct operands *operands);

#endif
