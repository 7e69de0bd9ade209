/*
 * Reads the arguments of a command: options, the command's own flags, and words. A flag is looked
 * up first among the flags that every command has (such as --config), then among the command's own
 * flags, then in the option table. This file only collects the values of options; settings.c
 * applies them last, because flags override all other sources.
 */
#include "cli/flags.h"

#include <assert.h>
#include <string.h>

#include "cli/guess.h"
#include "cli/secrets.h"

#define SHOWN_MAX 100 /* how many bytes of an unknown flag's name the error message shows */

/* Returns the flag's name without the prefix OWN_SWITCH, which marks flags without a value. */
static const char *flag_name(const char *flag)
{
	return *flag == OWN_SWITCH[0] ? flag + 1 : flag;
}

/* Returns where to store the value of one of the command's own flags, or NULL if there is no such
 * flag. */
static const char **find_own(struct operands *operands, struct slice name)
{
	for (size_t i = 0; operands && operands->flags[i]; i++) {
		assert(i < OWN_FLAGS_MAX);
		if (slice_is(name, flag_name(operands->flags[i])))
			return &operands->values[i];
	}
	return NULL;
}

static const char *const specials[] = {"print-config", "check-config", "config", "json"};

#define SPECIAL_COUNT (sizeof(specials) / sizeof(specials[0]))

/* Guesses which flag the user meant: one of the command's own flags, a flag that every command has,
 * or an option. */
static const char *guess_flag(const struct operands *operands, struct slice name)
{
	const char *names[OWN_FLAGS_MAX + SPECIAL_COUNT + OPTIONS_MAX + 1] = {NULL};
	size_t count = 0;

	for (size_t i = 0; operands && operands->flags[i]; i++)
		names[count++] = flag_name(operands->flags[i]);
	for (size_t i = 0; i < SPECIAL_COUNT; i++)
		names[count++] = specials[i];
	for (size_t i = 0; i < options_count(); i++)
		names[count++] = option_at(i)->name;
	return guess_name(name, names, "--");
}

/* Reads a flag that every command has and that is not in the option table. Sets `used_text` to true
 * if `text` was the flag's value. Returns false if `name` is no such flag. */
static bool take_special(struct flags *flags, struct slice name, const char *text, bool *used_text)
{
	*used_text = false;
	if (slice_is(name, "print-config")) {
		flags->settings->print_config = true;
	} else if (slice_is(name, "check-config")) {
		flags->settings->check_config = true;
	} else if (slice_is(name, "json") && !find_own(flags->operands, name)) {
		flags->settings->json = true;
	} else if (slice_is(name, "config")) {
		flags->file = text ? text : "";
		*used_text = true;
	} else {
		return false;
	}
	return true;
}

/* Reads an argument that does not begin with "--". Returns how many arguments were read: 1, or 0 on
 * failure. */
static int take_word(struct flags *flags, const char *word, char *why)
{
	if (flags->operands && word[0] != '-') {
		flags->operands->words[flags->operands->word_count++] = word;
		return 1;
	}
	snprintf(why, OPTIONS_WHY_SIZE, "\"%s\" is not understood; see quipu help",
		secrets_in_url(word) ? "***" : word);
	return 0;
}

/* Returns where to store the value of a flag, or NULL if there is no such flag. Sets `needs_value`
 * to false if the flag may be used without a value. */
static const char **find_flag(struct flags *flags, struct slice name, bool *needs_value)
{
	const char **own = find_own(flags->operands, name);
	size_t index = option_find(name);

	*needs_value = index == options_count() || option_at(index)->type != TYPE_FLAG;
	if (own) {
		*needs_value =
			*flags->operands->flags[own - flags->operands->values] != OWN_SWITCH[0];
		return own;
	}
	return index < options_count() ? &flags->given[index] : NULL;
}

/* Reads a flag with its value, or a word. Returns how many arguments were read, or 0 on failure. */
static int take_argument(struct flags *flags, int count, char *const *arguments, char *why)
{
	struct slice rest = slice_of(arguments[0]);
	struct slice name;
	const char *text, **value;
	bool joined, used_text, needs_value;

	if (!slice_starts_with(rest, "--"))
		return take_word(flags, arguments[0], why);
	rest = slice_make(rest.data + 2, rest.len - 2);
	name = slice_cut(&rest, '=');
	joined = rest.data != NULL;
	text = joined ? rest.data : count > 1 ? arguments[1] : NULL;
	if (take_special(flags, name, text, &used_text))
		return used_text && !joined ? 2 : 1;
	value = find_flag(flags, name, &needs_value);
	if (!value) {
		snprintf(why, OPTIONS_WHY_SIZE, "there is no option --%.*s%s",
			name.len < SHOWN_MAX ? (int)name.len : SHOWN_MAX, name.data,
			guess_flag(flags->operands, name));
		return 0;
	}
	if (!needs_value && !joined) {
		*value = "yes";
		return 1;
	}
	if (!text) {
		snprintf(why, OPTIONS_WHY_SIZE, "--%.*s needs a value", (int)name.len, name.data);
		return 0;
	}
	*value = text;
	return joined ? 1 : 2;
}

/* Sets settings->json if the command's own --json is used. A command without a --json of its own
 * accepts --json only together with --print-config or --check-config; without either, returns false
 * with the reason in `why`. */
static bool json_fits(struct flags *flags, char *why)
{
	struct settings *settings = flags->settings;
	const char **own = find_own(flags->operands, slice_of("json"));

	if (settings->json && !settings->print_config && !settings->check_config) {
		snprintf(why, OPTIONS_WHY_SIZE,
			"this command accepts --json only with --print-config or --check-config; "
			"see quipu help");
		return false;
	}
	settings->json = settings->json || (own && *own);
	return true;
}

bool flags_read(struct flags *flags, int count, char *const *arguments, char *why)
{
	for (int i = 0; i < count;) {
		int taken = take_argument(flags, count - i, arguments + i, why);

		if (taken == 0)
			return false;
		i += taken;
	}
	return json_fits(flags, why);
}

const char *operands_flag(const struct operands *operands, const char *name)
{
	for (size_t i = 0; operands->flags[i]; i++) {
		if (strcmp(flag_name(operands->flags[i]), name) == 0)
			return operands->values[i];
	}
	return NULL;
}
