/* Memory that nghttp2 allocates is counted for its connection to the byte, and small blocks are
 * used again. */
#include "check.h"

#include "http/http2_memory.h"

#define LARGE (POOL_UNIT * POOL_CLASSES + 1)

static struct http2_pool pool;
static struct http2_memory memory, other;
static nghttp2_mem functions, others;

static int set_up(void **state)
{
	(void)state;
	pool = (struct http2_pool){0};
	memory = other = (struct http2_memory){.pool = &pool};
	functions = http2_memory_functions(&memory);
	others = http2_memory_functions(&other);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	http2_pool_release(&pool);
	return 0;
}

static void everything_that_is_held_is_counted(void **state)
{
	void *small = functions.malloc(10, &memory);
	void *large = functions.malloc(LARGE, &memory);

	(void)state;
	assert_true(memory.bytes >= 10 + LARGE);
	assert_int_equal(other.bytes, 0);
	functions.free(large, &memory);
	assert_true(memory.bytes >= 10 && memory.bytes < LARGE);
	functions.free(small, &memory);
	functions.free(NULL, &memory);
	assert_int_equal(memory.bytes, 0);
}

static void a_block_of_one_connection_is_used_by_the_next(void **state)
{
	void *block;

	(void)state;
	functions.free(functions.malloc(100, &memory), &memory);
	block = others.malloc(120, &other);
	assert_int_equal(memory.bytes, 0);
	assert_true(other.bytes >= 120);
	others.free(block, &other);
	assert_int_equal(other.bytes, 0);
}

static void cleared_memory_is_clear_even_if_it_was_used(void **state)
{
	char *used = functions.malloc(64, &memory);

	(void)state;
	memset(used, 'x', 64);
	functions.free(used, &memory);
	used = functions.calloc(8, 8, &memory);
	for (size_t i = 0; i < 64; i++)
		assert_int_equal(used[i], 0);
	functions.free(used, &memory);
}

static void what_was_written_survives_a_new_size(void **state)
{
	char *text = functions.realloc(NULL, 5, &memory);

	(void)state;
	memcpy(text, "text", 5);
	for (size_t size = 10; size < 3 * LARGE; size *= 3) {
		text = functions.realloc(text, size, &memory);
		assert_string_equal(text, "text");
		assert_true(memory.bytes >= size);
	}
	functions.free(text, &memory);
	assert_int_equal(memory.bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			everything_that_is_held_is_counted, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_block_of_one_connection_is_used_by_the_next, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			cleared_memory_is_clear_even_if_it_was_used, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			what_was_written_survives_a_new_size, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
