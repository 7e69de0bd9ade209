/*
 * jansson refuses a whole text because of one number that it cannot hold. So a first pass over the
 * text looks for such numbers; it also measures how deep the text is nested. If there are such
 * numbers, a second pass replaces them before jansson sees the text. Each replacement is a real of
 * the same length, so positions in error messages stay right.
 */
#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"

/* Every integer of up to 18 characters is within int64. */
#define SAFE_DIGITS 18

#define EVENT_DEPTH_MAX 2048
#define HUGE_SPELLING "1e308"

struct survey {
	int depth;
	bool has_wide_number; /* there may be a number that jansson cannot hold */
};

static bool is_number_char(char c)
{
	return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

static bool begins_number(char c)
{
	return (c >= '0' && c <= '9') || c == '-';
}

/* Returns the characters at the start of `text` that can be part of a number. Together they need
 * not be a valid number. */
static struct slice number_at(struct slice text)
{
	size_t len = 0;

	while (len < text.len && is_number_char(text.data[len]))
		len++;
	return slice_make(text.data, len);
}

static struct slice from(struct slice text, size_t at)
{
	return slice_make(text.data + at, text.len - at);
}

/* Returns the position just after the closing quote of the string that contains position `at`. */
static size_t skip_string(struct slice text, size_t at)
{
	while (at < text.len && text.data[at] != '"')
		at += text.data[at] == '\\' ? 2 : 1;
	return at + 1;
}

static bool is_wide(struct slice number)
{
	return number.len > SAFE_DIGITS || memchr(number.data, 'e', number.len) ||
	       memchr(number.data, 'E', number.len);
}

static struct survey survey(struct slice text)
{
	struct survey found = {0};
	int depth = 0;
	size_t at = 0;

	while (at < text.len) {
		char c = text.data[at++];

		if (c == '"') {
			at = skip_string(text, at);
		} else if (c == '{' || c == '[') {
			if (++depth > found.depth)
				found.depth = depth;
		} else if (c == '}' || c == ']') {
			depth--;
		} else if (begins_number(c)) {
			struct slice number = number_at(from(text, at - 1));

			found.has_wide_number |= is_wide(number);
			at += number.len - 1;
		}
	}
	return found;
}

/* Returns how many digits `text` begins with. */
static size_t count_digits(struct slice text)
{
	size_t count = 0;

	while (count < text.len && text.data[count] >= '0' && text.data[count] <= '9')
		count++;
	return count;
}

/* Returns whether `number` is valid in the grammar of JSON. Only such a number may be replaced. */
static bool is_number(struct slice number, bool *is_integer)
{
	struct slice rest = number;
	size_t digits;

	if (rest.len > 0 && rest.data[0] == '-')
		rest = from(rest, 1);
	digits = count_digits(rest);
	if (digits == 0 || (digits > 1 && rest.data[0] == '0'))
		return false;
	rest = from(rest, digits);
	*is_integer = rest.len == 0;
	if (rest.len > 0 && rest.data[0] == '.') {
		digits = count_digits(from(rest, 1));
		if (digits == 0)
			return false;
		rest = from(rest, 1 + digits);
	}
	if (rest.len > 0 && (rest.data[0] == 'e' || rest.data[0] == 'E')) {
		size_t sign = rest.len > 1 && (rest.data[1] == '+' || rest.data[1] == '-');

		digits = count_digits(from(rest, 1 + sign));
		if (digits == 0)
			return false;
		rest = from(rest, 1 + sign + digits);
	}
	return rest.len == 0;
}

/* If jansson cannot hold the number at `text`, overwrites it with an approximation of the same
 * length that jansson can hold. */
static void narrow(char *text, size_t len)
{
	struct slice number = slice_make(text, len);
	size_t sign = text[0] == '-';
	bool is_integer;
	int64_t value;

	if (!is_number(number, &is_integer) || (is_integer && text_to_int(number, &value)))
		return;
	if (isinf(strtod(text, NULL))) {
		memset(text + sign, ' ', len - sign);
		memcpy(text + sign, HUGE_SPELLING, strlen(HUGE_SPELLING));
	} else if (is_integer) {
		memcpy(text + len - 2, "e2", 2);
	}
}

/* Replaces all numbers in `text` that jansson cannot hold. `text` must end with a NUL. */
static void narrow_all(char *text, size_t len)
{
	struct slice all = slice_make(text, len);
	size_t at = 0;

	while (at < len) {
		size_t number = begins_number(text[at]) ? number_at(from(all, at)).len : 0;

		if (text[at] == '"') {
			at = skip_string(all, at + 1);
		} else if (number > 0) {
			narrow(text + at, number);
			at += number;
		} else {
			at++;
		}
	}
}

/* Some of jansson's error texts, and the clearer texts that replace them. */
static const struct {
	const char *jansson, *ours;
} phrases[] = {
	{"'}' expected", "expected ',' or '}'"},
	{"']' expected", "expected ',' or ']'"},
	{"':' expected", "expected ':'"},
	{"string or '}' expected", "expected a name in quotes"},
	{"'[' or '{' expected", "expected '{'"},
	{"end of file expected", "expected the end of the text"},
	{"unexpected token", "expected a value"},
};

static struct slice rephrase(struct slice text)
{
	for (size_t i = 0; i < sizeof(phrases) / sizeof(phrases[0]); i++) {
		if (slice_is(text, phrases[i].jansson))
			return slice_of(phrases[i].ours);
	}
	return text;
}

/* Returns how many UTF-8 characters `quoted` has between its single quotes. */
static int quoted_len(const char *quoted)
{
	const char *end = quoted + strlen(quoted) - 1;
	int len = 0;

	for (const char *p = quoted + 1; p < end; p++)
		len += (*p & 0xc0) != 0x80; /* not a continuation byte */
	return len;
}

/*
 * Writes jansson's error to `why`. Leaves out the token that jansson quotes after "near", because
 * the token comes from the client and may contain anything. jansson reports the column of the
 * token's last character. This function reports the column of the first character, unless the token
 * is too long for jansson to quote.
 */
static void explain(const json_error_t *error, char *why)
{
	static const char near[] = " near ";
	const char *place = strstr(error->text, near);
	size_t len = place ? (size_t)(place - error->text) : strlen(error->text);
	struct slice what = rephrase(slice_make(error->text, len));
	bool is_end = place && strcmp(place, " near end of file") == 0;
	int column = error->column;

	if (place && !is_end)
		column -= quoted_len(place + strlen(near)) - 1;
	snprintf(why, JSON_WHY_SIZE, "the body is not valid JSON: %.*s%s at line %d, column %d",
		(int)what.len, what.data, is_end ? ", but the text ends" : "", error->line, column);
}

static json_t *load(struct slice text, bool has_wide_number, size_t flags, json_error_t *error)
{
	json_t *value;
	char *copy;

	if (!has_wide_number)
		return json_loadb(text.data, text.len, flags, error);
	copy = qp_malloc(text.len + 1);
	memcpy(copy, text.data, text.len);
	copy[text.len] = '\0';
	narrow_all(copy, text.len);
	value = json_loadb(copy, text.len, flags, error);
	free(copy);
	return value;
}

static json_t *parse(struct slice text, int depth_max, size_t flags, char *why)
{
	struct survey found = survey(text);
	json_error_t error;
	json_t *value;

	/* After a number, jansson takes a NUL for the end of the text and ignores the rest. */
	if (text.len > 0 && memchr(text.data, '\0', text.len)) {
		snprintf(why, JSON_WHY_SIZE, "the body is not valid JSON: it contains a NUL byte");
		return NULL;
	}
	if (found.depth > depth_max) {
		snprintf(why, JSON_WHY_SIZE, "the JSON is nested deeper than %d", depth_max);
		return NULL;
	}
	value = load(text, found.has_wide_number, flags, &error);
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

json_t *json_parse_object(struct slice text, char *why)
{
	return parse(text, JSON_DEPTH_MAX, JSON_REJECT_DUPLICATES, why);
}

json_t *json_parse_event(struct slice text, char *why)
{
	return parse(text, EVENT_DEPTH_MAX, JSON_ALLOW_NUL, why);
}
