#include "base/json.h"

#include <stdio.h>
#include <string.h>

/* Runs before the parser, because jansson's own limit of 2048 levels cannot be changed. */
static bool too_deep(struct slice text)
{
	bool in_string = false;
	int depth = 0;

	for (size_t i = 0; i < text.len; i++) {
		char c = text.data[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == '{' || c == '[') {
			if (++depth > JSON_DEPTH_MAX)
				return true;
		} else if (c == '}' || c == ']') {
			depth--;
		}
	}
	return false;
}

/* jansson adds what it found there, which is the client's and may be anything. */
static void explain(const json_error_t *error, char *why)
{
	const char *near = strstr(error->text, " near ");
	int len = (int)(near ? (size_t)(near - error->text) : strlen(error->text));

	snprintf(why, JSON_WHY_SIZE, "the body is not valid JSON: %.*s at line %d, column %d", len,
		error->text, error->line, error->column);
}

json_t *json_parse_object(struct slice text, char *why)
{
	json_error_t error;
	json_t *value;

	/* jansson takes one behind a number for the end of the text. */
	if (text.len > 0 && memchr(text.data, '\0', text.len)) {
		snprintf(why, JSON_WHY_SIZE, "the body is not valid JSON: it contains a NUL byte");
		return NULL;
	}
	if (too_deep(text)) {
		snprintf(why, JSON_WHY_SIZE, "the JSON is nested deeper than %d", JSON_DEPTH_MAX);
		return NULL;
	}
	value = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, &error);
	if (!value) {
		explain(&error, why);
		return NULL;
	}
	if (!json_is_object(value)) {
		json_decref(value);
		snprintf(why, JSON_WHY_SIZE, "the body must be a JSON object");
		return NULL;
	}
	return value;
}
