/*
 * The operator's commands on what could not be delivered:
 *
 *   quipu dlq list [--limit N]               dead letters of all kinds
 *   quipu dlq show KIND/ID                   one of them with its event
 *   quipu dlq replay KIND/ID…                try them again
 *   quipu dlq discard KIND/ID… --why TEXT    give them up, for the record
 *   quipu outbox resend [KIND] --since TIME  publish events again that have been published, of
 *                                            entitlements or, with dialog-outbox, of dialogs
 *
 * They speak to a running server over HTTP (cli/client), which does and records what they ask. What
 * they tell goes to standard output, what went wrong to standard error. Main thread.
 */
#ifndef QUIPU_CLI_DEAD_LETTER_COMMAND_H
#define QUIPU_CLI_DEAD_LETTER_COMMAND_H

#include "cli/options.h"

/* The flags of their own, for options_read(). */
extern const char *const dlq_flags[];
extern const char *const outbox_flags[];

/* Return what main() returns: 0, 1 where something asked for was not done, 2 for a wrong use. */
int dlq_run(const struct settings *settings, const struct operands *operands);
int outbox_run(const struct settings *settings, const struct operands *operands);

#endif
