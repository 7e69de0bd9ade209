/*
 * The operator's commands for events that could not be delivered:
 *
 *   quipu dlq list [--limit N]               list dead letters of all kinds
 *   quipu dlq show KIND/ID                   show a dead letter with its event
 *   quipu dlq replay KIND/ID…                deliver dead letters again
 *   quipu dlq replay KIND --all              the same for all of a kind, page by page
 *   quipu dlq discard KIND/ID… --why TEXT    discard dead letters, and record the reason
 *
 * --json prints one object per line instead of text.
 *
 * The commands call a running server over HTTP (cli/client), which does the work and records it.
 * Results go to standard output, failures to standard error. Main thread only.
 */
#ifndef QUIPU_CLI_DEAD_LETTER_COMMAND_H
#define QUIPU_CLI_DEAD_LETTER_COMMAND_H

#include "cli/options.h"

/* The command's own flags, for options_read(). */
extern const char *const dlq_flags[];

/* Returns the exit status: 0, 1 if something was not done, or 2 for wrong arguments. */
int dlq_run(const struct settings *settings, const struct operands *operands);

#endif
