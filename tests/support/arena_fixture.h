/* Tests whose state is an arena. */
#ifndef QUIPU_TESTS_ARENA_FIXTURE_H
#define QUIPU_TESTS_ARENA_FIXTURE_H

#include "base/arena.h"
#include "check.h"

static inline int arena_set_up(void **state)
{
	static struct arena arena;

	arena_init(&arena, 1024);
	*state = &arena;
	return 0;
}

static inline int arena_tear_down(void **state)
{
	arena_release(*state);
	return 0;
}

#define cmocka_arena_test(test) cmocka_unit_test_setup_teardown(test, arena_set_up, arena_tear_down)

#endif
