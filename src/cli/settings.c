/*
 * Settings are read in two steps. First, each source in turn stores its texts and its name in
 * `values`, and later sources override earlier ones. Then each text is parsed once and stored in
 * the settings. Therefore --print-config can name the source of every value, and an invalid text
 * does no harm if a later source overrides it.
 *
 * Flags are collected first because --config is one of them, but they are applied last.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "cli/config_file.h"
#include "cli/flags.h"
#include "cli/secrets.h"

static struct {
	const char *text;
	const char *source;
} values[OPTIONS_MAX];

/* copies of the values in the configuration file */
static char *file_texts[OPTIONS_MAX];

/* ---- sources ----------------------------------------------------------------------------- */

static void set_value(size_t index, const char *text, const char *source)
{
	values[index].text = text;
	values[index].source = source;
}

static void read_defaults(void)
{
	for (size_t i = 0; i < options_count(); i++)
		set_value(i, option_at(i)->standard, "default");
}

static void read_environment(void)
{
	for (size_t i = 0; i < options_count(); i++) {
		char name[64];
		const char *text;

		option_variable(option_at(i)->name, name, sizeof(name));
		text = getenv(name);
		if (text && *text)
			set_value(i, text, "environment");
	}
}

struct file_reading {
	const char *path;
	char *why;
};

static bool take_file_line(void *context, struct slice name, struct slice text)
{
	struct file_reading *reading = context;
	size_t index = option_find(name);

	if (index < options_count() && strcmp(values[index].source, "file") != 0) {
		free(file_texts[index]);
		file_texts[index] = qp_calloc(1, text.len + 1);
		memcpy(file_texts[index], text.data, text.len);
		set_value(index, file_texts[index], "file");
		return true;
	}
	if (index < options_count()) {
		snprintf(reading->why, OPTIONS_WHY_SIZE, "%s: \"%.*s\" is given twice",
			reading->path, (int)name.len, name.data);
		return false;
	}
	snprintf(reading->why, OPTIONS_WHY_SIZE, "%s: there is no option \"%.*s\"%s", reading->path,
		(int)name.len, name.data, option_guess(name));
	return false;
}

static bool read_file(const char *path, char *why)
{
	struct file_reading reading = {.path = path, .why = why};

	return !path || !*path || config_file_read(path, take_file_line, &reading, why);
}

/* ---- values ------------------------------------------------------------------------------ */

static bool read_flag_value(const char *text, bool *value)
{
	struct slice word = slice_of(text);

	*value = slice_is(word, "yes") || slice_is(word, "true") || slice_is(word, "1");
	return *value || slice_is(word, "no") || slice_is(word, "false") || slice_is(word, "0");
}

/* Refuses secrets in flags, because everyone on the machine can read the arguments of a process. */
static bool may_be_flag(size_t index, const char *text, char *why)
{
	char variable[64];

	if (option_at(index)->type != TYPE_URL || !secrets_in_url(text))
		return true;
	option_variable(option_at(index)->name, variable, sizeof(variable));
	snprintf(why, OPTIONS_WHY_SIZE,
		"--%s contains a password or another secret, which everyone on this machine could "
		"see; set the URL in the variable %s or in the file that --config names%s",
		option_at(index)->name, variable,
		strncmp(text, "postgres", 8) == 0 ? ", or only the password in a file that "
						    "PGPASSFILE names"
						  : "");
	return false;
}

static bool store_value(struct settings *settings, size_t index, char *why)
{
	const struct option *option = option_at(index);
	const char *text = values[index].text;
	void *field = (char *)settings + option->offset;
	int64_t *number = field;
	bool ok = true;

	switch (option->type) {
	case TYPE_TEXT:
	case TYPE_URL:
		*(const char **)field = text;
		break;
	case TYPE_FLAG:
		ok = read_flag_value(text, field);
		break;
	case TYPE_INT:
		ok = text_to_int(slice_of(text), number);
		ok = ok && *number >= option->least && *number <= option->most;
		break;
	case TYPE_DURATION:
		ok = text_to_duration_us(slice_of(text), number);
		ok = ok && *number >= option->least && *number <= option->most;
		break;
	}
	if (!ok && option->type == TYPE_INT)
		snprintf(why, OPTIONS_WHY_SIZE,
			"--%s must be a number from %lld to %lld, not \"%s\"", option->name,
			(long long)option->least, (long long)option->most, text);
	else if (!ok)
		snprintf(why, OPTIONS_WHY_SIZE, "--%s must be %s, not \"%s\"", option->name,
			option->type == TYPE_FLAG ? "yes or no" : "a time such as 500ms, 5s or 24h",
			text);
	return ok;
}

static bool check_words(const struct settings *settings, char *why)
{
	struct slice format = slice_of(settings->log_format);
	struct slice console = slice_of(settings->console);
	enum log_level level;

	if (!log_level_parse(slice_of(settings->log_level), &level)) {
		snprintf(why, OPTIONS_WHY_SIZE,
			"--log-level must be debug, info, warn or error, not \"%s\"",
			settings->log_level);
		return false;
	}
	if (!slice_is(format, "auto") && !slice_is(format, "text") && !slice_is(format, "json")) {
		snprintf(why, OPTIONS_WHY_SIZE,
			"--log-format must be text, json or auto, not \"%s\"",
			settings->log_format);
		return false;
	}
	if (!slice_is(console, "on") && !slice_is(console, "off")) {
		snprintf(why, OPTIONS_WHY_SIZE, "--console must be on or off, not \"%s\"",
			settings->console);
		return false;
	}
	return true;
}

bool options_read(struct settings *settings, struct operands *operands, int count,
	char *const *arguments, char *why)
{
	struct flags flags = {
		.settings = settings, .operands = operands, .file = getenv("QUIPU_CONFIG")};

	memset(settings, 0, sizeof(*settings));
	read_defaults();
	if (!flags_read(&flags, count, arguments, why) || !read_file(flags.file, why))
		return false;
	read_environment();
	for (size_t i = 0; i < options_count(); i++) {
		if (flags.given[i] && !may_be_flag(i, flags.given[i], why))
			return false;
		if (flags.given[i])
			set_value(i, flags.given[i], "flag");
		if (!store_value(settings, i, why))
			return false;
	}
	return check_words(settings, why);
}

/* ---- printing ---------------------------------------------------------------------------- */

static void print_value(FILE *out, size_t index)
{
	if (option_at(index)->type == TYPE_URL)
		secrets_print_url(out, values[index].text);
	else
		fputs(values[index].text, out);
}

static char *shown_value(size_t index)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		abort();
	print_value(out, index);
	fclose(out);
	return text;
}

/* Prints a line such as {"option":"lanes","value":"2","source":"flag"}. */
static void print_option_json(FILE *out, size_t index, struct arena *arena)
{
	struct buffer line = buffer_make(arena, 256), escaped = buffer_make(arena, 128);
	char *value = shown_value(index);
	struct slice text = slice_of(value);

	if (!text_is_utf8(text)) {
		text_escape_log(&escaped, text);
		text = buffer_slice(&escaped);
	}
	buffer_char(&line, '{');
	buffer_member(&line, "option", slice_of(option_at(index)->name));
	buffer_member(&line, "value", text);
	buffer_member(&line, "source", slice_of(values[index].source));
	buffer_text(&line, "}\n");
	fwrite(line.data, 1, line.len, out);
	free(value);
}

void options_print_json(FILE *out)
{
	struct arena arena;

	arena_init(&arena, 4096);
	for (size_t i = 0; i < options_count(); i++) {
		arena_reset(&arena);
		print_option_json(out, i, &arena);
	}
	arena_release(&arena);
}

void options_print(FILE *out)
{
	for (size_t i = 0; i < options_count(); i++) {
		fprintf(out, "%s = ", option_at(i)->name);
		print_value(out, i);
		fprintf(out, "  ; %s\n", values[i].source);
	}
}

void options_print_changed(FILE *out)
{
	const char *between = "";

	for (size_t i = 0; i < options_count(); i++) {
		if (strcmp(values[i].text, option_at(i)->standard) == 0)
			continue;
		fprintf(out, "%s--%s ", between, option_at(i)->name);
		print_value(out, i);
		fprintf(out, " (%s)", values[i].source);
		between = ", ";
	}
	fputs(*between ? "\n" : "all at their defaults\n", out);
}
