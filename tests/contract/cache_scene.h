/* Two readers and a writer of counters, in any order that a test wants. */
#ifndef QUIPU_CONTRACT_CACHE_SCENE_H
#define QUIPU_CONTRACT_CACHE_SCENE_H

#include "counter_fixture.h"

#define NUMBER_MAX 999999999999999LL

/* Two readers and a writer, and the user that they care about. */
struct scene {
	struct cache_fixture fixture;
	struct slice user;
	struct cache_session *a, *b, *writer;
};

/* cmocka's: *state is a struct scene. */
int cache_scene_setup(void **state);
int cache_scene_teardown(void **state);

#define COUNTER_TEST(test)                                                                         \
	cmocka_unit_test_setup_teardown(test, cache_scene_setup, cache_scene_teardown)

void cache_scene_assert_version(struct scene *scene, int64_t version);
void cache_scene_assert_list_version(struct scene *scene, int64_t version);

/* Reader `a` misses, and gets the lease. */
struct cached_counter cache_scene_miss(struct scene *scene);
struct cached_counter cache_scene_miss_list(struct scene *scene);

/* Reader `b` makes it. */
void cache_scene_know(struct scene *scene, int64_t version);
void cache_scene_refresh(struct scene *scene, int64_t version);
void cache_scene_pass_s(struct scene *scene, int64_t seconds);

#endif
