/*
 * A run of bytes that somebody else owns. Slices are passed by value, are not terminated, and are
 * never freed: they live as long as the arena or the literal they point into.
 */
#ifndef QUIPU_BASE_SLICE_H
#define QUIPU_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct slice {
	const char *data;
	size_t len;
};

/* A slice over a string literal, also in static initializers. */
#define SLICE(literal)                                                                             \
	{                                                                                          \
		.data = (literal), .len = sizeof(literal) - 1                                      \
	}

static inline struct slice slice_of(const char *text)
{
	return (struct slice){.data = text, .len = strlen(text)};
}

static inline struct slice slice_make(const void *data, size_t len)
{
	return (struct slice){.data = data, .len = len};
}

static inline bool slice_equal(struct slice a, struct slice b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline bool slice_is(struct slice a, const char *text)
{
	return slice_equal(a, slice_of(text));
}

/* Byte order, the order in which every process locks rows (COLLATE "C"). */
int slice_compare(struct slice a, struct slice b);

/* Equality where upper and lower case ASCII letters are the same. */
bool slice_equal_nocase(struct slice a, struct slice b);
bool slice_is_nocase(struct slice a, const char *text);

bool slice_starts_with(struct slice a, const char *prefix);

/* Without spaces and tabs at both ends. */
struct slice slice_trim(struct slice a);

/*
 * Cuts the part before the first `separator` off `rest` and returns it. `rest` moves behind the
 * separator, or becomes {NULL, 0} when there was none: loop while rest.data is not NULL.
 */
struct slice slice_cut(struct slice *rest, char separator);

#endif
