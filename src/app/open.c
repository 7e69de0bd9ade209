#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adapters/bus/kafka/kafka_bus.h"
#include "adapters/bus/local/local_bus.h"
#include "adapters/bus/nats/nats_bus.h"
#include "adapters/bus/rabbitmq/rabbitmq_bus.h"
#include "adapters/cache/memory/memory_cache.h"
#include "adapters/cache/redis/redis_cache.h"
#include "adapters/store/postgres/postgres_store.h"
#include "adapters/store/sqlite/sqlite_store.h"
#include "app/app.h"
#include "base/clock.h"

/* One process a data folder: the lock goes when the process goes, however it goes. */
static bool lock_data_folder(struct app *app, char *why)
{
	const char *data = app->settings.data;
	char path[PATH_MAX];

	if (app->data_lock >= 0)
		return true;
	if (mkdir(data, 0700) != 0 && errno != EEXIST) {
		snprintf(why, OPTIONS_WHY_SIZE, "cannot make the data folder %s: %s", data,
			strerror(errno));
		return false;
	}
	snprintf(path, sizeof(path), "%s/lock", data);
	app->data_lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (app->data_lock >= 0 && flock(app->data_lock, LOCK_EX | LOCK_NB) == 0)
		return true;
	if (app->data_lock >= 0 && errno == EWOULDBLOCK)
		snprintf(why, OPTIONS_WHY_SIZE,
			"the data folder %s is in use by another quipu; stop it, or choose another "
			"with --data",
			data);
	else
		snprintf(why, OPTIONS_WHY_SIZE, "cannot lock the data folder %s: %s", data,
			strerror(errno));
	return false;
}

/* The path of a file in the data folder, which is made and locked; lives as long as the program.
 * NULL: `why`. */
static const char *data_file(struct app *app, const char *name, char *why)
{
	char *path = arena_alloc(&app->arena, PATH_MAX);
	int len = snprintf(path, PATH_MAX, "%s/%s", app->settings.data, name);

	if (len >= PATH_MAX) {
		snprintf(why, OPTIONS_WHY_SIZE, "the path of the data folder is too long");
		return NULL;
	}
	return lock_data_folder(app, why) ? path : NULL;
}

struct store *app_open_store(struct app *app, const struct store_plan *plan, char *why)
{
	struct store *store;

	if (url_is_postgres(plan->url)) {
		store = postgres_store_new(plan->name, plan->url, plan->components);
	} else {
		const char *path = data_file(app, plan->file, why);

		if (!path)
			return NULL;
		store = sqlite_store_new(plan->name, path, plan->components, &clock_system);
	}
	system_add_store(&app->system, store);
	return store->ops->start(store, why, OPTIONS_WHY_SIZE) ? store : NULL;
}

static bool bus_is_up(void *thing)
{
	struct bus *bus = thing;

	return bus->ops->is_up(bus);
}

static const struct {
	const char *scheme;
	struct bus *(*make)(const char *name, const char *url, const struct bus_channel *channels,
		size_t channel_count);
} bus_engines[] = {
	{"kafka://", kafka_bus_new},
	{"nats://", nats_bus_new},
	{"tls://", nats_bus_new},
	{"amqp://", rabbitmq_bus_new},
	{"amqps://", rabbitmq_bus_new},
};

#define BUS_ENGINES (sizeof(bus_engines) / sizeof(bus_engines[0]))

/* BUS_ENGINES: none. */
static size_t find_bus_engine(const char *url)
{
	size_t i = 0;

	while (i < BUS_ENGINES && !url_has_scheme(url, bus_engines[i].scheme))
		i++;
	return i;
}

bool bus_url_is_known(const char *url)
{
	return find_bus_engine(url) < BUS_ENGINES;
}

static struct bus *make_bus(struct app *app, const struct bus_plan *plan, char *why)
{
	size_t engine = find_bus_engine(plan->url);
	const char *path;

	if (engine < BUS_ENGINES)
		return bus_engines[engine].make(
			plan->name, plan->url, plan->channels, plan->channel_count);
	path = data_file(app, plan->file, why);
	return path ? local_bus_new(plan->name, path, plan->channels, plan->channel_count) : NULL;
}

struct bus *app_open_bus(struct app *app, const struct bus_plan *plan, char *why)
{
	struct bus *bus = make_bus(app, plan, why);
	struct dependency dependency = {
		.is_up = bus_is_up, .thing = bus, .is_optional = plan->is_optional};

	if (!bus)
		return NULL;
	assert(app->bus_count < APP_BUSES_MAX);
	app->buses[app->bus_count++] = bus;
	dependency.name = bus->name;
	dependency.engine = bus->engine;
	dependency.is_optional = plan->is_optional;
	system_add_dependency(&app->system, &dependency);
	return bus->ops->start(bus, why, OPTIONS_WHY_SIZE) ? bus : NULL;
}

static bool cache_is_up(void *thing)
{
	struct cache *cache = thing;

	return cache->ops->is_up(cache);
}

bool app_open_cache(struct app *app, char *why)
{
	const struct settings *settings = &app->settings;
	struct dependency dependency = {.is_up = cache_is_up, .is_optional = true};
	struct cache *cache;

	if (app->cache || strcmp(settings->cache, "none") == 0 ||
		(strcmp(settings->cache, "auto") == 0 && cache_is_shared(app)))
		return true;
	cache = url_is_redis(settings->cache) ? redis_cache_new("cache", settings->cache)
					      : memory_cache_new("cache", &clock_system);
	app->cache = cache;
	dependency.name = cache->name;
	dependency.engine = cache->engine;
	dependency.thing = cache;
	system_add_dependency(&app->system, &dependency);
	return cache->ops->start(cache, why, OPTIONS_WHY_SIZE);
}

bool app_open_stores(struct app *app, char *why)
{
	const struct module *module = NULL;

	app_add_routes(app); /* which makes the modules */
	while ((module = module_next(app, module))) {
		if (!module->open_stores(app, why))
			return false;
	}
	return true;
}

void app_close(struct app *app)
{
	if (app->cache)
		app->cache->ops->free(app->cache);
	for (size_t i = 0; i < app->bus_count; i++)
		app->buses[i]->ops->free(app->buses[i]);
	for (size_t i = 0; i < app->system.store_count; i++)
		app->system.stores[i]->ops->free(app->system.stores[i]);
	if (app->data_lock >= 0)
		close(app->data_lock);
}
