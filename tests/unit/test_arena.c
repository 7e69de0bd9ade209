/* Memory handed out piece by piece: aligned, never shared, kept across a reset. */
#include "check.h"

#include <stdalign.h>

#include "base/arena.h"

#define FIRST_SIZE 256

static int set_up(void **state)
{
	static struct arena arena;

	arena_init(&arena, FIRST_SIZE);
	*state = &arena;
	return 0;
}

static int tear_down(void **state)
{
	arena_release(*state);
	return 0;
}

static void every_piece_is_aligned_for_any_type(void **state)
{
	for (size_t size = 0; size < 100; size++)
		assert_int_equal((uintptr_t)arena_alloc(*state, size) % alignof(max_align_t), 0);
}

static void no_two_pieces_share_a_byte(void **state)
{
	enum { PIECES = 200 };
	unsigned char *pieces[PIECES];

	for (size_t i = 0; i < PIECES; i++) {
		pieces[i] = arena_alloc(*state, i + 1);
		memset(pieces[i], (int)i, i + 1);
	}
	for (size_t i = 0; i < PIECES; i++) {
		for (size_t at = 0; at <= i; at++)
			assert_int_equal(pieces[i][at], i);
	}
}

static void a_piece_may_be_larger_than_any_chunk(void **state)
{
	char *small = arena_alloc(*state, 8);
	char *large = arena_alloc(*state, 100 * FIRST_SIZE);

	memset(small, 's', 8);
	memset(large, 'l', 100 * FIRST_SIZE);
	assert_memory_equal(small, "ssssssss", 8);
}

static void cleared_memory_is_zero_also_where_it_was_used_before(void **state)
{
	static const char zeros[64];

	memset(arena_alloc(*state, sizeof(zeros)), 'x', sizeof(zeros));
	arena_reset(*state);
	assert_memory_equal(arena_array(*state, char, sizeof(zeros)), zeros, sizeof(zeros));
}

static void the_last_piece_grows_where_it_lies(void **state)
{
	char *piece = arena_alloc(*state, 10);
	char *grown;

	memcpy(piece, "0123456789", 10);
	grown = arena_grow(*state, piece, 10, 100);
	assert_ptr_equal(grown, piece);
	assert_memory_equal(grown, "0123456789", 10);
	assert_true((char *)arena_alloc(*state, 1) >= grown + 100);
}

static void the_last_piece_grows_to_the_end_of_its_chunk(void **state)
{
	char *piece = arena_alloc(*state, FIRST_SIZE / 2 + 16);

	assert_ptr_equal(arena_grow(*state, piece, FIRST_SIZE / 2 + 16, FIRST_SIZE), piece);
}

static void a_piece_with_another_behind_it_moves_to_grow(void **state)
{
	char *piece = arena_alloc(*state, 10);
	char *other = arena_alloc(*state, 10);
	char *grown;

	memcpy(piece, "0123456789", 10);
	memcpy(other, "abcdefghij", 10);
	grown = arena_grow(*state, piece, 10, 100);
	assert_ptr_not_equal(grown, piece);
	memset(grown + 10, 'x', 90);
	assert_memory_equal(grown, "0123456789", 10);
	assert_memory_equal(other, "abcdefghij", 10);
}

static void a_piece_moves_where_its_chunk_is_full(void **state)
{
	char *piece = arena_alloc(*state, FIRST_SIZE - 16);
	char *grown;

	memset(piece, 'p', FIRST_SIZE - 16);
	grown = arena_grow(*state, piece, FIRST_SIZE - 16, 4 * FIRST_SIZE);
	assert_ptr_not_equal(grown, piece);
	memset(grown + FIRST_SIZE - 16, 'q', 3 * FIRST_SIZE + 16);
	for (size_t i = 0; i < FIRST_SIZE - 16; i++)
		assert_int_equal(grown[i], 'p');
}

static void nothing_grows_into_a_new_piece(void **state)
{
	char *piece = arena_grow(*state, NULL, 0, 10);
	char *empty = arena_alloc(*state, 0);
	char *other = arena_alloc(*state, 10);
	char *grown = arena_grow(*state, empty, 0, 10);

	memset(piece, 'a', 10);
	memset(other, 'b', 10);
	memset(grown, 'c', 10);
	assert_memory_equal(piece, "aaaaaaaaaa", 10);
	assert_memory_equal(other, "bbbbbbbbbb", 10);
}

static void a_copy_is_its_own_and_ends_in_nul(void **state)
{
	char text[] = "text";
	struct slice copy = arena_copy(*state, slice_make(text, 3));
	struct slice empty = arena_copy(*state, (struct slice){0});

	text[0] = 'X';
	assert_slice(copy, "tex");
	assert_int_equal(copy.data[3], '\0');
	assert_int_equal(empty.len, 0);
	assert_int_equal(empty.data[0], '\0');
}

static void a_reset_hands_out_the_same_memory_again(void **state)
{
	void *first = arena_alloc(*state, 16);

	arena_alloc(*state, 10 * FIRST_SIZE);
	arena_alloc(*state, 10 * FIRST_SIZE);
	arena_reset(*state);
	assert_ptr_equal(arena_alloc(*state, 16), first);
	arena_reset(*state);
	assert_ptr_equal(arena_alloc(*state, FIRST_SIZE), first);
}

static void a_reset_keeps_no_more_than_the_first_size(void **state)
{
	struct arena *arena = *state;

	arena_alloc(arena, 10 * FIRST_SIZE);
	arena_reset(arena);
	assert_null(arena->current);
	memset(arena_alloc(arena, FIRST_SIZE), 'x', FIRST_SIZE);
}

static void an_arena_may_be_reset_or_released_at_any_time(void **state)
{
	arena_reset(*state);
	arena_release(*state);
	arena_release(*state);
	memset(arena_alloc(*state, 32), 'x', 32);
	arena_release(*state);
	memset(arena_alloc(*state, 32), 'x', 32);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_piece_is_aligned_for_any_type),
		TEST(no_two_pieces_share_a_byte),
		TEST(a_piece_may_be_larger_than_any_chunk),
		TEST(cleared_memory_is_zero_also_where_it_was_used_before),
		TEST(the_last_piece_grows_where_it_lies),
		TEST(the_last_piece_grows_to_the_end_of_its_chunk),
		TEST(a_piece_with_another_behind_it_moves_to_grow),
		TEST(a_piece_moves_where_its_chunk_is_full),
		TEST(nothing_grows_into_a_new_piece),
		TEST(a_copy_is_its_own_and_ends_in_nul),
		TEST(a_reset_hands_out_the_same_memory_again),
		TEST(a_reset_keeps_no_more_than_the_first_size),
		TEST(an_arena_may_be_reset_or_released_at_any_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
