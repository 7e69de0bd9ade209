/*
 * A slice points to a run of bytes, which it does not own. Slices are passed by value, have no
 * terminating NUL and are never freed: they are valid as long as the arena or literal that they
 * point into.
 * {NULL, 0} stands for "absent" where that differs from "empty".
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

/* An initializer for a slice of a string literal. It can also initialise static variables. */
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

/* Compares bytes. All processes lock rows in this order (COLLATE "C"). */
int slice_compare(struct slice a, struct slice b);

/* Compare without regard to the case of ASCII letters. */
bool slice_equal_nocase(struct slice a, struct slice b);
bool slice_is_nocase(struct slice a, const char *text);

bool slice_starts_with(struct slice a, const char *prefix);

/* Returns `a` without the spaces and tabs at both ends. */
struct slice slice_trim(struct slice a);

/*
 * Returns the part of `*rest` before the first `separator` and moves `*rest` past that separator.
 * If there is no separator, returns all of `*rest` and sets it to {NULL, 0}; so callers loop while
 * rest.data is not NULL.
 */
struct slice slice_cut(struct slice *rest, char separator);

#endif
