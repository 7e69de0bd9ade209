#include "base/slice.h"

#include <strings.h>

int slice_compare(struct slice a, struct slice b)
{
	size_t shorter = a.len < b.len ? a.len : b.len;
	int order = shorter == 0 ? 0 : memcmp(a.data, b.data, shorter);

	if (order != 0)
		return order;
	return (a.len > b.len) - (a.len < b.len);
}

bool slice_equal_nocase(struct slice a, struct slice b)
{
	return a.len == b.len && (a.len == 0 || strncasecmp(a.data, b.data, a.len) == 0);
}

bool slice_is_nocase(struct slice a, const char *text)
{
	return slice_equal_nocase(a, slice_of(text));
}

bool slice_starts_with(struct slice a, const char *prefix)
{
	size_t len = strlen(prefix);

	return a.len >= len && memcmp(a.data, prefix, len) == 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

struct slice slice_trim(struct slice a)
{
	while (a.len > 0 && is_blank(a.data[0])) {
		a.data++;
		a.len--;
	}
	while (a.len > 0 && is_blank(a.data[a.len - 1]))
		a.len--;
	return a;
}

struct slice slice_cut(struct slice *rest, char separator)
{
	const char *found = rest->len == 0 ? NULL : memchr(rest->data, separator, rest->len);
	struct slice head = *rest;

	if (!found) {
		*rest = (struct slice){0};
		return head;
	}
	head.len = (size_t)(found - head.data);
	rest->data = found + 1;
	rest->len -= head.len + 1;
	return head;
}
