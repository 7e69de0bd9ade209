#include "counter_scene.h"

#include <stdio.h>
#include <stdlib.h>

#include "redis_server.h"
#include "waiting.h"

/* After which a Redis that hangs is given up; one that answers is faster. */
#define TIMEOUT_MS 3000

int counter_scene_setup(void **state)
{
	struct scene *scene = qp_calloc(1, sizeof(*scene));
	struct cache *cache;

	redis_server_start();
	cache_fixture_set_timeout_ms(*state ? TIMEOUT_MS : HANG_MS);
	cache_fixture_open(&scene->fixture, redis_server_url());
	cache = scene->fixture.cache;
	scene->user = cache_fixture_user(&scene->fixture, "a");
	scene->reader = cache->ops->open_session(cache);
	scene->writer = cache->ops->open_session(cache);
	*state = scene;
	return 0;
}

int counter_scene_teardown(void **state)
{
	struct scene *scene = *state;

	scene->reader->ops->close(scene->reader);
	scene->writer->ops->close(scene->writer);
	cache_fixture_close(&scene->fixture);
	free(scene);
	redis_server_remove();
	return 0;
}

void counter_scene_come_back(struct scene *scene)
{
	redis_server_start();
	cache_fixture_wait_until_up(scene->fixture.cache);
}

void counter_scene_go_away(struct scene *scene)
{
	redis_server_kill();
	cache_fixture_wait_until_away(scene->fixture.cache);
}

void counter_scene_know(struct scene *scene, struct slice user)
{
	struct cached_counter list;

	counter_fixture_know(scene->reader, user, 1);
	list = counter_fixture_get_list(scene->reader, user);
	assert_true(list.lease != 0);
	counter_fixture_fill(scene->reader, &list, 1);
}

bool counter_scene_has_keys(struct scene *scene, struct slice user)
{
	struct cache_fixture *fixture = &scene->fixture;

	return counter_fixture_ttl_ms(fixture, COUNTER_KEY, user) != -2 ||
	       counter_fixture_ttl_ms(fixture, LEASE_KEY, user) != -2 ||
	       counter_fixture_ttl_ms(fixture, LIST_KEY, user) != -2;
}

enum status counter_scene_try_refresh(struct scene *scene, struct slice user, int64_t version)
{
	struct cached_counter counter = counter_fixture_value(user, version);

	return scene->writer->ops->counter_refresh(scene->writer, &counter, 1);
}

struct slice counter_scene_numbered(struct scene *scene, int i)
{
	char name[16];

	snprintf(name, sizeof(name), "%d", i);
	return cache_fixture_user(&scene->fixture, name);
}
