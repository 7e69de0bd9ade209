/*
 * The operator's commands for dead letters: events, notifications and messages that a service could
 * not process or deliver and no longer retries.
 *
 *   quipu dlq list [--limit N]               list dead letters of all kinds
 *   quipu dlq show KIND/ID                   show a dead letter with its payload
 *   quipu dlq replay KIND/ID…                deliver dead letters again
 *   quipu dlq replay KIND --all              deliver all dead letters of a kind again
 *   quipu dlq discard KIND/ID… --why TEXT    discard dead letters, and record the reason
 *
 * --json prints one object per line instead of text; `show` always prints indented JSON.
 *
 * The commands call a running server over HTTP (cli/client). The server carries out and records
 * each action. Results go to standard output, failures to standard error. Main thread only.
 */
#ifndef QUIPU_CLI_DEAD_LETTER_COMMAND_H
#define QUIPU_CLI_DEAD_LETTER_COMMAND_H

#include "cli/options.h"

/* The command's own flags, for options_read(). */
extern const char *const dlq_flags[];

/* Returns the exit status: 0 on success, 1 if the command failed for a letter or altogether, or 2
 * if the arguments are wrong. */
int dlq_run(const struct settings *settings, const struct operands *operands);

#endif
