/*
 * Opens the data folder, stores, buses and the cache. Engines of stores and buses are looked up in
 * the tables of engines.h by the scheme of their URL, so this file names none of these engines.
 *
 * The data folder is created and locked when the first engine with a file needs it. Every store,
 * bus and cache is registered before it is started, so that app_close() frees it even if its start
 * fails.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adapters/cache/memory/memory_cache.h"
#include "adapters/cache/redis/redis_cache.h"
#include "adapters/store/tracing/tracing_store.h"
#include "app/app.h"
#include "base/clock.h"

/* The kernel releases the lock when the process ends, even if it crashes. */
bool app_lock_data(struct app *app, char *why)
{
	const char *data = app->settings.data;
	char path[PATH_MAX];

	if (app->data_lock >= 0)
		return true;
	if (mkdir(data, 0700) != 0 && errno != EEXIST) {
		snprintf(why, OPTIONS_WHY_SIZE, "cannot create the data folder %s: %s", data,
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

/* Creates and locks the data folder. Returns the path of the file `name` in that folder; the text
 * stays valid until the program ends. On failure, or if the data was moved to another store,
 * returns NULL with the reason in `why`. */
static const char *data_file(struct app *app, const char *name, char *why)
{
	char *path = arena_alloc(&app->arena, PATH_MAX);
	int len = snprintf(path, PATH_MAX, "%s/%s", app->settings.data, name);
	struct moved moved;

	if (len >= PATH_MAX) {
		snprintf(why, OPTIONS_WHY_SIZE, "the path of the data folder is too long");
		return NULL;
	}
	if (!app_lock_data(app, why))
		return NULL;
	if (!moved_read(app->settings.data, &moved))
		return path;
	moved_explain(app->settings.data, &moved, why);
	return NULL;
}

/* ---- engines ----------------------------------------------------------------------------- */

static bool url_fits(const char *url, const char *scheme)
{
	bool is_whole = scheme[strlen(scheme) - 1] == ':';

	return is_whole ? strcmp(url, scheme) == 0 : url_has_scheme(url, scheme);
}

const struct store_engine *store_engine_find(const char *url)
{
	const struct store_engine *engine = store_engines;

	while (engine->scheme && !url_fits(url, engine->scheme))
		engine++;
	return engine->scheme ? engine : NULL;
}

const struct bus_engine *bus_engine_find(const char *url)
{
	const struct bus_engine *engine = bus_engines;

	while (engine->scheme && !url_fits(url, engine->scheme))
		engine++;
	return engine->scheme ? engine : NULL;
}

/* ---- stores, buses, cache ---------------------------------------------------------------- */

struct store *app_open_store(struct app *app, const struct store_plan *plan, char *why)
{
	const struct store_engine *engine = store_engine_find(plan->url);
	const char *path = NULL;
	struct store *store;

	assert(engine); /* app_check() has checked the URL */
	if (engine->has_file && !(path = data_file(app, plan->file, why)))
		return NULL;
	store = engine->create(plan, path);
	if (app->settings.trace_store)
		store = tracing_store_new(store);
	app->store_urls[app->health.store_count] = plan->url;
	health_add_store(&app->health, store);
	return store->ops->start(store, why, OPTIONS_WHY_SIZE) ? store : NULL;
}

static bool bus_is_up(void *thing)
{
	struct bus *bus = thing;

	return bus->ops->is_up(bus);
}

static struct bus *create_bus(struct app *app, const struct bus_plan *plan, char *why)
{
	const struct bus_engine *engine = bus_engine_find(plan->url);
	const char *path = NULL;

	assert(engine);
	if (engine->has_file && !(path = data_file(app, plan->file, why)))
		return NULL;
	return engine->create(plan, path);
}

struct bus *app_open_bus(struct app *app, const struct bus_plan *plan, char *why)
{
	struct bus *bus = create_bus(app, plan, why);
	struct dependency dependency = {
		.is_up = bus_is_up, .thing = bus, .is_optional = plan->is_optional};

	if (!bus)
		return NULL;
	assert(app->bus_count < APP_BUSES_MAX);
	app->buses[app->bus_count++] = bus;
	dependency.name = bus->name;
	dependency.engine = bus->engine;
	dependency.latency = &bus->latency;
	health_add_dependency(&app->health, &dependency);
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
	dependency.latency = &cache->latency;
	health_add_dependency(&app->health, &dependency);
	return cache->ops->start(cache, why, OPTIONS_WHY_SIZE);
}

bool app_open_stores(struct app *app, char *why)
{
	const struct module *module = NULL;

	app_add_routes(app); /* creates the modules' structs */
	while ((module = module_next(app, module))) {
		if (!module->open_stores(app, why))
			return false;
	}
	return true;
}

static bool has_url_before(const struct app *app, size_t index)
{
	for (size_t i = 0; i < index; i++) {
		if (strcmp(app->store_urls[i], app->store_urls[index]) == 0)
			return true;
	}
	return false;
}

bool app_distribute_stores(struct app *app, bool dry_run, FILE *out, char *why)
{
	for (size_t i = 0; i < app->health.store_count; i++) {
		struct store *store = app->health.stores[i];

		if (!has_url_before(app, i) &&
			!store_distribute(store, dry_run, out, why, OPTIONS_WHY_SIZE))
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
	for (size_t i = 0; i < app->health.store_count; i++)
		app->health.stores[i]->ops->free(app->health.stores[i]);
	if (app->data_lock >= 0)
		close(app->data_lock);
}
