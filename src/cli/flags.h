/* Reads the arguments after a command. Main thread only. */
#ifndef QUIPU_CLI_FLAGS_H
#define QUIPU_CLI_FLAGS_H

#include "cli/option_table.h"

struct flags {
	struct settings *settings;      /* receives print_config, check_config, json */
	struct operands *operands;      /* NULL if the command takes no operands */
	const char *file;               /* the value of --config */
	const char *given[OPTIONS_MAX]; /* each option's value in the arguments, or NULL */
};

/* Fills `flags` and its operands from `count` arguments. On failure returns false and writes the
 * reason to `why` (OPTIONS_WHY_SIZE bytes). */
QP_MUST_CHECK bool flags_read(struct flags *flags, int count, char *const *arguments, char *why);

#endif
