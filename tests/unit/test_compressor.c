/* Which clients want gzip, and what they get. */
#include "check.h"

#include <stdlib.h>

#include "http/compressor.h"

static void gzip_is_sent_to_clients_that_prefer_it(void **state)
{
	static const struct {
		const char *accepted;
		bool wanted;
	} cases[] = {
		{"gzip", true},
		{"GZIP", true},
		{"x-gzip", true},
		{"gzip, deflate, br", true},
		{"br;q=1.0, gzip;q=0.8, *;q=0.1", true},
		{"*", true},
		{"gzip;q=0.001", true},
		{"gzip ; q=1", true},
		{"identity;q=0.5, gzip;q=0.5", true},
		{"identity;q=0, gzip", true},
		{"", false},
		{"identity", false},
		{"deflate, br", false},
		{"gzip;q=0", false},
		{"gzip;q=0.000", false},
		{"gzip;Q=0", false},
		{"gzip;q=0, *", false},
		{"*;q=0", false},
		{"identity, gzip;q=0.5", false},
		{"gzipped", false},
		{",,;,", false},
		{"gzip;q=0.x", false},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		if (compressor_is_wanted(slice_of(cases[i].accepted)) != cases[i].wanted)
			fail_msg("\"%s\"", cases[i].accepted);
	}
	assert_false(compressor_is_wanted((struct slice){0}));
}

static void a_body_becomes_shorter_again_and_again(void **state)
{
	struct compressor *compressor = compressor_new();
	static char text[100000];
	struct arena arena;

	(void)state;
	arena_init(&arena, 4096);
	memset(text, 'x', sizeof(text));
	for (int i = 0; i < 3; i++) {
		struct slice body = slice_make(text, sizeof(text));
		struct slice short_body = compressor_gzip(compressor, &arena, body);

		assert_non_null(short_body.data);
		assert_true(short_body.len > 20 && short_body.len < 1000);
		assert_memory_equal(short_body.data, "\x1f\x8b", 2);
	}
	arena_release(&arena);
	compressor_free(compressor);
}

static void a_body_that_would_not_become_shorter_stays_as_it_is(void **state)
{
	struct compressor *compressor = compressor_new();
	char text[2000];
	struct arena arena;

	(void)state;
	arena_init(&arena, 4096);
	srand(1);
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (char)rand();
	assert_null(compressor_gzip(compressor, &arena, slice_make(text, sizeof(text))).data);
	assert_null(compressor_gzip(compressor, &arena, slice_of("short")).data);
	memset(text, 'x', sizeof(text));
	assert_non_null(compressor_gzip(compressor, &arena, slice_make(text, sizeof(text))).data);
	arena_release(&arena);
	compressor_free(compressor);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gzip_is_sent_to_clients_that_prefer_it),
		cmocka_unit_test(a_body_becomes_shorter_again_and_again),
		cmocka_unit_test(a_body_that_would_not_become_shorter_stays_as_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
