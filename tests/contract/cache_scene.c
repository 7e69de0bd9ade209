#include "cache_scene.h"

#include <stdlib.h>

int cache_scene_setup(void **state)
{
	struct scene *scene = qp_calloc(1, sizeof(*scene));
	struct cache *cache;

	cache_fixture_open(&scene->fixture, cache_fixture_url());
	cache = scene->fixture.cache;
	scene->user = cache_fixture_user(&scene->fixture, "a");
	scene->a = cache->ops->open_session(cache);
	scene->b = cache->ops->open_session(cache);
	scene->writer = cache->ops->open_session(cache);
	*state = scene;
	return 0;
}

int cache_scene_teardown(void **state)
{
	struct scene *scene = *state;

	scene->a->ops->close(scene->a);
	scene->b->ops->close(scene->b);
	scene->writer->ops->close(scene->writer);
	cache_fixture_close(&scene->fixture);
	free(scene);
	return 0;
}

void cache_scene_assert_version(struct scene *scene, int64_t version)
{
	struct cached_counter counter = counter_fixture_get(scene->a, scene->user);

	assert_true(counter_fixture_is(&counter, version));
}

void cache_scene_assert_list_version(struct scene *scene, int64_t version)
{
	struct cached_counter list = counter_fixture_get_list(scene->a, scene->user);

	assert_true(counter_fixture_is(&list, version));
}

struct cached_counter cache_scene_miss(struct scene *scene)
{
	struct cached_counter missed = counter_fixture_get(scene->a, scene->user);

	assert_true(!missed.hit && missed.lease != 0);
	return missed;
}

struct cached_counter cache_scene_miss_list(struct scene *scene)
{
	struct cached_counter missed = counter_fixture_get_list(scene->a, scene->user);

	assert_true(!missed.hit && missed.lease != 0);
	return missed;
}

void cache_scene_know(struct scene *scene, int64_t version)
{
	counter_fixture_know(scene->b, scene->user, version);
}

void cache_scene_refresh(struct scene *scene, int64_t version)
{
	counter_fixture_refresh(scene->writer, scene->user, version);
}

void cache_scene_pass_s(struct scene *scene, int64_t seconds)
{
	counter_fixture_pass_s(&scene->fixture, scene->user, seconds);
}
