/*
 * quipu erase-user ID [--dry-run] erases a person from every service that the server runs, step by
 * step; with --dry-run it only counts the rows. If the server does not run one of the services that
 * keep data about persons, the command prints the name of that service, because that service may
 * still have data about the person. An interrupted command can simply be run again. Main thread
 * only.
 */
#ifndef QUIPU_CLI_ERASE_COMMAND_H
#define QUIPU_CLI_ERASE_COMMAND_H

#include "cli/options.h"

/* The command's own flags, for options_read(). */
extern const char *const erase_flags[];

/* Returns the exit status: 0 on success, 1 if a step failed, or 2 if the arguments are wrong. */
int erase_run(const struct settings *settings, const struct operands *operands);

#endif
