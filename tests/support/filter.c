/*
 * Lets one test of a program run alone: QUIPU_TEST_FILTER is a name, which may have * and ?.
 * Debian's cmocka reads no variable of its own for that.
 */
#include <stdlib.h>

#include "check.h"

__attribute__((constructor)) static void choose_tests(void)
{
	const char *pattern = getenv("QUIPU_TEST_FILTER");

	if (pattern)
		cmocka_set_test_filter(pattern);
}
