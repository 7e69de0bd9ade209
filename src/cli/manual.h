/*
 * How the program explains itself. Everything is written from the option table (cli/options) and
 * one list of commands, so that no page can tell of an option that is not there, or forget one:
 *
 *   quipu help                what a person reads on a terminal
 *   quipu help man            the man page, quipu(1)
 *   quipu help bash           completion for bash
 *   quipu help configuration  docs/CONFIGURATION.md
 *
 * Main thread.
 */
#ifndef QUIPU_CLI_MANUAL_H
#define QUIPU_CLI_MANUAL_H

#include "cli/options.h"

/* Returns what main() returns: 0, or 2 where there is no such page. */
int manual_run(const struct operands *operands);

#endif
