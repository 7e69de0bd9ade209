#include "engine.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "adapters/postgres/postgres_counts.h"
#include "adapters/postgres/postgres_limits.h"
#include "adapters/postgres/postgres_pots.h"
#include "adapters/postgres/postgres_sent.h"
#include "adapters/postgres/postgres_store.h"
#include "adapters/sqlite/sqlite_counts.h"
#include "adapters/sqlite/sqlite_limits.h"
#include "adapters/sqlite/sqlite_pots.h"
#include "adapters/sqlite/sqlite_sent.h"
#include "adapters/sqlite/sqlite_store.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"

#define UP_TIMEOUT_MS 20000

static const char *const components[] = {"common", "counts", "gateway", "pots", NULL};

/* ---- time -------------------------------------------------------------------------------- */

static _Atomic int64_t advanced_us;

static int64_t wall_us(const struct clock *clock)
{
	(void)clock;
	return clock_wall_us(&clock_system) + advanced_us;
}

static int64_t steady_ns(const struct clock *clock)
{
	(void)clock;
	return clock_steady_ns(&clock_system);
}

static const struct clock clock_moved = {.wall_us = wall_us, .steady_ns = steady_ns};

void engine_advance_us(int64_t step_us)
{
	advanced_us += step_us;
}

/* ---- the two engines --------------------------------------------------------------------- */

static const char *store_url(void)
{
	const char *url = getenv("QUIPU_CONTRACT_STORE");

	return url && *url ? url : "sqlite:";
}

static bool is_sqlite(void)
{
	return strncmp(store_url(), "sqlite:", 7) == 0;
}

bool engine_time_is_ours(const struct engine *engine)
{
	return strcmp(engine->store->engine, "sqlite") == 0;
}

static char *new_path(void)
{
	const char *parent = getenv("TMPDIR");
	char folder[256];
	char path[300];

	snprintf(folder, sizeof(folder), "%s/quipu-contract-XXXXXX", parent ? parent : "/tmp");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/store.db", folder);
	return qp_strdup(path);
}

static void remove_files(char *path)
{
	static const char *const endings[] = {"", "-wal", "-shm"};

	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		char name[320];

		snprintf(name, sizeof(name), "%s%s", path, endings[i]);
		unlink(name);
	}
	*strrchr(path, '/') = '\0';
	rmdir(path);
}

static struct store *new_store(const struct engine *engine)
{
	if (is_sqlite())
		return sqlite_store_new("contract", engine->path, components, &clock_moved);
	return postgres_store_new("contract", store_url(), components);
}

static void wait_until_up(struct store *store)
{
	const struct timespec moment = {.tv_nsec = 10 * NS_PER_MS};

	for (int i = 0; i < UP_TIMEOUT_MS / 10 && !store->ops->is_up(store); i++)
		nanosleep(&moment, NULL);
	assert_true(store->ops->is_up(store));
}

/* ---- a test's store and sessions --------------------------------------------------------- */

static void open_store(struct engine *engine)
{
	char why[512] = "";

	engine->store = new_store(engine);
	assert_false(engine->store->ops->is_up(engine->store));
	if (!engine->store->ops->start(engine->store, why, sizeof(why)))
		fail_msg("%s", why);
	wait_until_up(engine->store);
	engine->session = engine_session(engine, SESSION_WRITE);
}

static void close_store(struct engine *engine)
{
	for (size_t i = 0; i < engine->session_count; i++)
		session_close(engine->sessions[i]);
	engine->session_count = 0;
	engine->store->ops->free(engine->store);
}

struct session *engine_session(struct engine *engine, enum session_kind kind)
{
	struct session *session = engine->store->ops->open_session(engine->store, kind);

	assert_true(engine->session_count < SESSIONS_MAX);
	engine->sessions[engine->session_count++] = session;
	return session;
}

void engine_restart(struct engine *engine)
{
	close_store(engine);
	open_store(engine);
}

int engine_setup(void **state)
{
	struct engine *engine = qp_calloc(1, sizeof(*engine));
	struct dice dice;

	log_configure(LOG_ERROR, LOG_TEXT);
	dice_init(&dice);
	snprintf(engine->prefix, sizeof(engine->prefix), "%08x/", (unsigned)dice_next(&dice));
	arena_init(&engine->arena, 64 * 1024);
	engine->path = is_sqlite() ? new_path() : NULL;
	engine->counts = is_sqlite() ? &sqlite_count_repository : &postgres_count_repository;
	engine->limits = is_sqlite() ? &sqlite_limit_repository : &postgres_limit_repository;
	engine->sent = is_sqlite() ? &sqlite_sent_repository : &postgres_sent_repository;
	engine->pots = is_sqlite() ? &sqlite_pot_repository : &postgres_pot_repository;
	open_store(engine);
	*state = engine;
	return 0;
}

int engine_teardown(void **state)
{
	struct engine *engine = *state;

	close_store(engine);
	if (engine->path)
		remove_files(engine->path);
	free(engine->path);
	arena_release(&engine->arena);
	free(engine);
	return 0;
}

/* ---- what tests say often ---------------------------------------------------------------- */

struct slice engine_name(struct engine *engine, const char *text)
{
	struct buffer name = buffer_make(&engine->arena, 32);

	buffer_text(&name, engine->prefix);
	buffer_text(&name, text);
	return buffer_slice(&name);
}

struct slice engine_long_name(struct engine *engine, char filler, size_t size)
{
	struct buffer name = buffer_make(&engine->arena, size);

	buffer_text(&name, engine->prefix);
	while (name.len < size)
		buffer_char(&name, filler);
	return buffer_slice(&name);
}

void engine_begin(struct session *session)
{
	assert_int_equal(session->ops->begin(session, LOCK_WAIT), STATUS_OK);
}

void engine_commit(struct session *session)
{
	assert_int_equal(session->ops->commit(session), STATUS_OK);
}

bool engine_is_collision(enum status status)
{
	return status == STATUS_RERUN || status == STATUS_LOCK_BUSY;
}
