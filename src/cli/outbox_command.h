/*
 * quipu outbox resend [KIND] --since TIME [--json]: publishes events of entitlements (or, with
 * dialog-outbox, of dialogs) once more. Calls a running server. Main thread only.
 */
#ifndef QUIPU_CLI_OUTBOX_COMMAND_H
#define QUIPU_CLI_OUTBOX_COMMAND_H

#include "cli/options.h"

/* The command's own flags, for options_read(). */
extern const char *const outbox_flags[];

/* Returns the exit status: 0 on success, 1 if the events were not resent, or 2 if the arguments are
 * wrong. */
int outbox_run(const struct settings *settings, const struct operands *operands);

#endif
