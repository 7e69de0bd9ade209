/* A reader and a writer of counters, on a Redis of their own that a test may do anything to. */
#ifndef QUIPU_CONTRACT_COUNTER_SCENE_H
#define QUIPU_CONTRACT_COUNTER_SCENE_H

#include "counter_fixture.h"

struct scene {
	struct cache_fixture fixture;
	struct slice user;
	struct cache_session *reader, *writer;
};

/* cmocka's: *state is a struct scene. With a state before, Redis is to hang. */
int counter_scene_setup(void **state);
int counter_scene_teardown(void **state);

#define FAULT_TEST(test)                                                                           \
	cmocka_unit_test_setup_teardown(test, counter_scene_setup, counter_scene_teardown)
#define HANGING_TEST(test)                                                                         \
	cmocka_unit_test_prestate_setup_teardown(                                                  \
		test, counter_scene_setup, counter_scene_teardown, &(bool){true})

void counter_scene_come_back(struct scene *scene);
void counter_scene_go_away(struct scene *scene);

/* Has a counter and a list of version 1. */
void counter_scene_know(struct scene *scene, struct slice user);
bool counter_scene_has_keys(struct scene *scene, struct slice user);
enum status counter_scene_try_refresh(struct scene *scene, struct slice user, int64_t version);

/* The user of that number. */
struct slice counter_scene_numbered(struct scene *scene, int i);

/* The tests of redis_foreign_counters.c. Returns how many have failed. */
int redis_foreign_counter_tests(void);

#endif
