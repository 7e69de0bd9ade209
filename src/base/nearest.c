/*
 * Counts the typing errors between two names: letters that were left out, added, replaced or
 * swapped with their neighbour. A name with more than a third of its letters wrong does not count
 * as similar.
 */
#include "base/nearest.h"

#define NAME_MAX_BYTES 64

static bool is_decoration(char c)
{
	return c == '_' || c == '-' || c == '[' || c == ']';
}

/* Writes `name` in lower case and without '_', '-' and brackets to `out`. Returns the length of the
 * result, or 0 if `name` is too long. */
static size_t fold(struct slice name, char *out)
{
	size_t len = 0;

	if (name.len > NAME_MAX_BYTES)
		return 0;
	for (size_t i = 0; i < name.len; i++) {
		char c = name.data[i];

		if (!is_decoration(c))
			out[len++] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
	}
	return len;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Returns the number of typing errors between `a` and `b`: their optimal string alignment
 * distance. */
static size_t count_errors(struct slice a, struct slice b)
{
	size_t rows[3][NAME_MAX_BYTES + 1];
	size_t *before = rows[0], *last = rows[1], *now = rows[2];

	for (size_t j = 0; j <= b.len; j++)
		last[j] = j;
	for (size_t i = 1; i <= a.len; i++) {
		size_t *oldest = before;

		now[0] = i;
		for (size_t j = 1; j <= b.len; j++) {
			bool same = a.data[i - 1] == b.data[j - 1];

			now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + !same);
			if (i > 1 && j > 1 && a.data[i - 1] == b.data[j - 2] &&
				a.data[i - 2] == b.data[j - 1])
				now[j] = least(now[j], before[j - 2] + 1);
		}
		before = last;
		last = now;
		now = oldest;
	}
	return last[b.len];
}

const char *nearest_name(struct slice word, const char *const *known)
{
	char folded_word[NAME_MAX_BYTES], folded_name[NAME_MAX_BYTES];
	struct slice meant = slice_make(folded_word, fold(word, folded_word));
	const char *nearest = NULL;
	size_t fewest = NAME_MAX_BYTES;

	if (meant.len == 0)
		return NULL;
	for (size_t i = 0; known && known[i]; i++) {
		struct slice name = slice_make(folded_name, fold(slice_of(known[i]), folded_name));
		size_t longer = name.len > meant.len ? name.len : meant.len;
		size_t errors = count_errors(meant, name);

		if (errors <= longer / 3 && errors < fewest) {
			fewest = errors;
			nearest = known[i];
		}
	}
	return nearest;
}
