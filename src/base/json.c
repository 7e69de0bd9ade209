#include "base/json.h"

#include <stdio.h>

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

json_t *json_parse_object(struct slice text, char *why)
{
	json_error_t error;
	json_t *value;

	if (too_deep(text)) {
		snprintf(why, JSON_WHY_SIZE, "the JSON is nested deeper than %d", JSON_DEPTH_MAX);
		return NULL;
	}
	value = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, &error);
	if (!value) {
		snprintf(why, JSON_WHY_SIZE, "the body is not valid JSON: line %d, column %d",
			error.line, error.column);
		return NULL;
	}
	if (!json_is_object(value)) {
		json_decref(value);
		snprintf(why, JSON_WHY_SIZE, "the body must be a JSON object");
		return NULL;
	}
	return value;
}
