/* Quipu reads INI files itself, because Debian's libinih cuts lines at 200 bytes, and a line with
 * the URL of a store may be longer. */
#include "cli/config_file.h"

#include <errno.h>
#include <stdio.h>

#include "cli/options.h"

enum line_form { LINE_SETTING, LINE_EMPTY, LINE_WRONG };

/* Cuts off a comment, which begins with a ; at the start of the line or after white space. */
static struct slice without_comment(struct slice line)
{
	for (size_t i = 0; i < line.len; i++) {
		bool is_first = i == 0 || line.data[i - 1] == ' ' || line.data[i - 1] == '\t';

		if (line.data[i] == ';' && is_first)
			return slice_make(line.data, i);
	}
	return line;
}

static enum line_form split(struct slice line, struct slice *name, struct slice *text)
{
	size_t at = 0;

	if (memchr(line.data, '\0', line.len))
		return LINE_WRONG;
	line = slice_trim(without_comment(line));
	if (line.len == 0 || line.data[0] == '#' || line.data[0] == '[')
		return LINE_EMPTY;
	while (at < line.len && line.data[at] != '=' && line.data[at] != ':')
		at++;
	if (at == line.len)
		return LINE_WRONG;
	*name = slice_trim(slice_make(line.data, at));
	*text = slice_trim(slice_make(line.data + at + 1, line.len - at - 1));
	return name->len > 0 ? LINE_SETTING : LINE_WRONG;
}

/* Reads a line without its line break. Returns the line's length, or CONFIG_LINE_MAX + 1 if the
 * line is longer than CONFIG_LINE_MAX. */
static size_t read_line(FILE *file, char *out)
{
	size_t len = 0;
	int c;

	while ((c = getc(file)) != EOF && c != '\n') {
		if (len > CONFIG_LINE_MAX)
			continue;
		if (len < CONFIG_LINE_MAX)
			out[len] = (char)c;
		len++;
	}
	return len;
}

static struct slice without_mark(struct slice line)
{
	static const char byte_order_mark[] = "\xef\xbb\xbf";

	if (!slice_starts_with(line, byte_order_mark))
		return line;
	return slice_make(line.data + 3, line.len - 3);
}

/* Calls `take` for each setting. Returns 0 on success, -1 if `take` refused a setting, or the
 * number of the first invalid line. */
static int read_lines(FILE *file, bool (*take)(void *context, struct slice name, struct slice text),
	void *context)
{
	static char line[CONFIG_LINE_MAX];

	for (int number = 1; !feof(file) && !ferror(file); number++) {
		size_t len = read_line(file, line);
		struct slice name, text, whole = slice_make(line, len);
		enum line_form form = LINE_WRONG;

		if (len <= CONFIG_LINE_MAX)
			form = split(number == 1 ? without_mark(whole) : whole, &name, &text);
		if (form == LINE_WRONG)
			return number;
		if (form == LINE_SETTING && !take(context, name, text))
			return -1;
	}
	return 0;
}

bool config_file_read(const char *path,
	bool (*take)(void *context, struct slice name, struct slice text), void *context, char *why)
{
	FILE *file = fopen(path, "re");
	int wrong;
	bool failed;

	if (!file) {
		snprintf(why, OPTIONS_WHY_SIZE, "cannot read the configuration file %s: %s", path,
			strerror(errno));
		return false;
	}
	wrong = read_lines(file, take, context);
	failed = ferror(file) != 0;
	fclose(file);
	if (wrong > 0)
		snprintf(why, OPTIONS_WHY_SIZE,
			"%s: line %d is not \"name = value\", or is longer than %d bytes", path,
			wrong, CONFIG_LINE_MAX);
	else if (failed)
		snprintf(why, OPTIONS_WHY_SIZE, "cannot read the configuration file %s", path);
	return wrong == 0 && !failed;
}
