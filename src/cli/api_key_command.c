#include "cli/api_key_command.h"

#include <stdlib.h>
#include <string.h>

#include "access/api_keys.h"

#define SCOPES_DEFAULT "external"

const char *const keys_flags[] = {"scopes", NULL};

static int fail(int code, const char *why)
{
	fprintf(stderr, "quipu: %s\n", why);
	return code;
}

/* The key is shown only once its line is safely out. */
static int print_key(const struct new_key *key)
{
	if (puts(key->line) < 0 || fflush(stdout) != 0)
		return fail(EXIT_FAILURE, "the line for the file of keys could not be written; "
					  "no key was made");
	fprintf(stderr,
		"This is the key for the client, shown only now; the line for the file has its "
		"hash alone:\n%s\n",
		key->shown);
	return EXIT_SUCCESS;
}

int keys_run(const struct operands *operands)
{
	const char *scopes = operands_flag(operands, "scopes");
	char why[KEYS_WHY_SIZE];
	struct new_key key;

	if (operands->word_count != 2 || strcmp(operands->words[0], "new") != 0)
		return fail(EXIT_USAGE, "this is used as: quipu keys new ID [--scopes LIST]");
	if (!key_make(operands->words[1], scopes ? scopes : SCOPES_DEFAULT, &key, why))
		return fail(EXIT_USAGE, why);
	return print_key(&key);
}
