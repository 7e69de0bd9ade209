/* What every unit test includes: cmocka with the headers it wants, and slices compared with
 * text. */
#ifndef QUIPU_TESTS_CHECK_H
#define QUIPU_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/slice.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static inline void check_slice(
	struct slice actual, const char *expected, const char *file, int line)
{
	if (slice_is(actual, expected))
		return;
	print_error("\"%.*s\" is not \"%s\"\n", (int)actual.len, actual.data ? actual.data : "",
		expected);
	_fail(file, line);
}

static inline bool has_text(struct slice whole, const char *part)
{
	return memmem(whole.data, whole.len, part, strlen(part)) != NULL;
}

static inline void check_contains(struct slice whole, const char *part, const char *file, int line)
{
	if (has_text(whole, part))
		return;
	print_error("no \"%s\" in \"%.*s\"\n", part, (int)whole.len, whole.data);
	_fail(file, line);
}

/* For threads other than the main one, where cmocka's assertions would jump to another stack. */
static inline void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "does not hold: %s\n", what);
	abort();
}

/* cmocka's skip() with a reason, which the report of a run shows. */
static inline void check_skip(const char *reason, const char *file, int line)
{
	print_message("skipped because %s\n", reason);
	_skip(file, line);
}

#define skip_because(reason) check_skip((reason), __FILE__, __LINE__)
#define assert_contains(whole, part) check_contains((whole), (part), __FILE__, __LINE__)
#define assert_slice(actual, expected) check_slice((actual), (expected), __FILE__, __LINE__)

#endif
