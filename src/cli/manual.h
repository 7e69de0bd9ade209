/*
 * The pages of quipu help. All of them are generated from the option table (cli/options) and the
 * lists of commands and flags in manual.c, so that every page describes exactly the options that
 * exist:
 *
 *   quipu help [COMMAND]      help for the terminal
 *   quipu help man            the man page, quipu(1)
 *   quipu help bash           completion for bash
 *   quipu help configuration  docs/CONFIGURATION.md
 *
 * Main thread only.
 */
#ifndef QUIPU_CLI_MANUAL_H
#define QUIPU_CLI_MANUAL_H

#include "cli/options.h"

/* Prints the help of one command. Returns the exit status: 0 on success, or 2 if there is no such
 * command. */
int manual_help(const char *command);

/* Returns "; did you mean …?" in a static buffer or, if no command resembles `word`, "; see quipu
 * help". */
const char *manual_guess(const char *word);

/* Some commands require a verb: `quipu dlq`, for example, requires `list` or another verb. If
 * `command` requires a verb, and `word` is not such a verb but resembles one, returns the verb that
 * it resembles. Otherwise returns NULL. */
const char *manual_meant_verb(const char *command, const char *word);

/* Prints a page of the manual. Returns the exit status: 0 on success, or 2 if there is no such
 * page. */
int manual_run(const struct settings *settings, const struct operands *operands);

#endif
