#include "cli/api_key_command.h"

#include <stdlib.h>
#include <string.h>

#include "access/api_keys.h"
#include "cli/report.h"

#define SCOPES_DEFAULT "external"

const char *const keys_flags[] = {"scopes", OWN_SWITCH "json", NULL};

/* Prints the line for the key file and the key as one JSON object. Neither of the two texts
 * contains a character that JSON would escape. */
static int print_key_json(const struct new_key *key)
{
	if (printf("{\"line\":\"%s\",\"key\":\"%s\"}\n", key->line, key->shown) < 0 ||
		fflush(stdout) != 0)
		return report_failure(EXIT_FAILURE, "cannot write the key; no key was created");
	return EXIT_SUCCESS;
}

/* Prints the line for the key file, and then the key. If the line cannot be printed, does not print
 * the key, because the key is useless without the line. */
static int print_key(const struct new_key *key)
{
	if (puts(key->line) < 0 || fflush(stdout) != 0)
		return report_failure(
			EXIT_FAILURE, "cannot print the line for the key file; no key was created");
	fprintf(stderr,
		"Give the following API key to the client. The key is shown only now, because the "
		"key file stores only its hash:\n%s\n",
		key->shown);
	return EXIT_SUCCESS;
}

int keys_run(const struct settings *settings, const struct operands *operands)
{
	const char *scopes = operands_flag(operands, "scopes");
	char why[KEYS_WHY_SIZE];
	struct new_key key;

	(void)settings;
	if (operands->word_count != 2 || strcmp(operands->words[0], "new") != 0)
		return report_failure(EXIT_USAGE, "usage: quipu keys new ID [--scopes LIST]");
	if (!key_make(operands->words[1], scopes ? scopes : SCOPES_DEFAULT, &key, why))
		return report_failure(EXIT_USAGE, "%s", why);
	return operands_flag(operands, "json") ? print_key_json(&key) : print_key(&key);
}
