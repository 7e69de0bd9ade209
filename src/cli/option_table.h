/*
 * The rows of the option table, for the files that read options: flags.c and settings.c. All other
 * files use cli/options.h. Main thread only.
 */
#ifndef QUIPU_CLI_OPTION_TABLE_H
#define QUIPU_CLI_OPTION_TABLE_H

#include "cli/options.h"

#define OPTIONS_MAX 128

enum option_type { TYPE_TEXT, TYPE_URL, TYPE_INT, TYPE_DURATION, TYPE_FLAG };

struct option {
	const char *name;
	enum option_type type;
	size_t offset;        /* the offset of the option's member in struct settings */
	const char *standard; /* the default; "" if there is no default */
	int64_t least;        /* the range, for numbers and durations (in us) */
	int64_t most;
	const char *value_name; /* the placeholder for the value in the help; NULL for TYPE_FLAG */
	const char *help;
};

/* Returns a row of the table. `index` must be below options_count(). */
const struct option *option_at(size_t index);

/* Returns the index of the option with this name, or options_count() if no option has it. */
size_t option_find(struct slice name);

/* Returns "; did you mean …?" in a static buffer or, if no option resembles `name`, "; see quipu
 * help". */
const char *option_guess(struct slice name);

/* Writes the name of the option's environment variable: QUIPU_BATCH_MAX for batch-max. */
void option_variable(const char *option, char *out, size_t size);

#endif
