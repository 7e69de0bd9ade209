/*
 * Opens a store on the engine under test, with the schema of all services. Tests that look behind
 * the repositories use SQL (engine_count(), engine_execute()), so that the program is not trusted
 * to check itself.
 */
#include "engine.h"

#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "adapters/store/postgres/postgres_store.h"
#include "adapters/store/sqlite/sqlite_store.h"
#include "adapters/store/tracing/tracing_store.h"
#include "base/log.h"
#include "base/random.h"
#include "base/uuid.h"
#include "manual_clock.h"
#include "waiting.h"

static const char *const components[] = {"common", "counters", "counts", "dialogs", "entitlements",
	"gateway", "notifications", "pots", NULL};

/* ---- time -------------------------------------------------------------------------------- */

static struct manual_clock sqlite_clock;

void engine_advance_us(int64_t step_us)
{
	manual_clock_pass(&sqlite_clock, step_us * NS_PER_US);
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

bool engine_is_a_server(void)
{
	return !is_sqlite();
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

	if (!path)
		return;
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		char name[320];

		snprintf(name, sizeof(name), "%s%s", path, endings[i]);
		unlink(name);
	}
	*strrchr(path, '/') = '\0';
	rmdir(path);
	free(path);
}

static struct store *new_plain_store(const char *path)
{
	if (is_sqlite())
		return sqlite_store_new("contract", path, components, &sqlite_clock.base);
	return postgres_store_new("contract", store_url(), components);
}

/* A suite that passes through the wrapper shows that it forwards everything. */
static bool is_traced(void)
{
	const char *trace = getenv("QUIPU_CONTRACT_TRACE");

	return trace && strcmp(trace, "1") == 0;
}

static struct store *new_store(const char *path)
{
	struct store *store = new_plain_store(path);

	return is_traced() ? tracing_store_new(store) : store;
}

/* ---- a test's store and sessions --------------------------------------------------------- */

void engine_start(struct store *store)
{
	char why[512] = "";

	assert_false(store->ops->is_up(store));
	if (!store->ops->start(store, why, sizeof(why)))
		fail_msg("%s", why);
	WAIT_UNTIL(store->ops->is_up(store));
}

struct store *engine_other_store(struct engine *engine)
{
	if (is_sqlite() && !engine->other_path)
		engine->other_path = new_path();
	return new_store(engine->other_path);
}

/* On a cluster, tables are spread over its nodes before the first test writes to them. */
static void distribute(struct store *store)
{
	char why[512] = "";

	if (getenv("QUIPU_CONTRACT_DISTRIBUTE") &&
		!store_distribute(store, false, NULL, why, sizeof(why)))
		fail_msg("%s", why);
}

bool engine_is_a_cluster(void)
{
	return getenv("QUIPU_CONTRACT_DISTRIBUTE") != NULL;
}

static void open_store(struct engine *engine)
{
	engine->store = new_store(engine->path);
	engine_start(engine->store);
	distribute(engine->store);
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

	log_configure(is_traced() ? LOG_DEBUG : LOG_ERROR, LOG_TEXT);
	if (!sqlite_clock.base.wall_us)
		manual_clock_init_running(&sqlite_clock);
	dice_init(&dice);
	snprintf(engine->prefix, sizeof(engine->prefix), "%08x/", (unsigned)dice_next(&dice));
	arena_init(&engine->arena, 64 * 1024);
	engine->path = is_sqlite() ? new_path() : NULL;
	open_store(engine);
	engine->counts = engine->store->repositories->counts;
	engine->limits = engine->store->repositories->limits;
	engine->sent = engine->store->repositories->sent;
	engine->entitlements = engine->store->repositories->entitlements;
	engine->notifications = engine->store->repositories->notifications;
	engine->outbound = engine->store->repositories->outbound;
	engine->outbox = engine->store->repositories->entitlement_outbox;
	engine->dialog_outbox = engine->store->repositories->dialog_outbox;
	engine->messages = engine->store->repositories->messages;
	engine->counters = engine->store->repositories->counters;
	engine->pots = engine->store->repositories->pots;
	*state = engine;
	return 0;
}

int engine_teardown(void **state)
{
	struct engine *engine = *state;

	if (engine->shifted_us != 0)
		engine_shift_us(engine, -engine->shifted_us);
	close_store(engine);
	remove_files(engine->path);
	remove_files(engine->other_path);
	arena_release(&engine->arena);
	free(engine);
	return 0;
}

/* ---- past the ports ---------------------------------------------------------------------- */

static int64_t ask_sqlite(const struct engine *engine, const char *sql)
{
	sqlite3 *db;
	sqlite3_stmt *stmt;
	int64_t number = 0;

	assert_int_equal(sqlite3_open_v2(engine->path, &db, SQLITE_OPEN_READWRITE, NULL), 0);
	sqlite3_busy_timeout(db, HANG_MS);
	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	if (sqlite3_step(stmt) == SQLITE_ROW)
		number = sqlite3_column_int64(stmt, 0);
	if (sqlite3_finalize(stmt) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	sqlite3_close(db);
	return number;
}

static int64_t ask_postgres(const char *sql)
{
	PGconn *connection = PQconnectdb(store_url());
	PGresult *result = PQexec(connection, sql);
	ExecStatusType status = PQresultStatus(result);
	int64_t number = 0;

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		fail_msg("%s: %s", sql, PQerrorMessage(connection));
	if (PQntuples(result) > 0)
		number = atoll(PQgetvalue(result, 0, 0));
	PQclear(result);
	PQfinish(connection);
	return number;
}

static int64_t QP_PRINTF(3, 0)
	ask(struct engine *engine, const char *prefix, const char *format, va_list arguments)
{
	char sql[2048];
	int len = snprintf(sql, sizeof(sql), "%s", prefix);

	len += vsnprintf(sql + len, sizeof(sql) - (size_t)len, format, arguments);
	assert_true((size_t)len < sizeof(sql));
	return is_sqlite() ? ask_sqlite(engine, sql) : ask_postgres(sql);
}

int64_t engine_count(struct engine *engine, const char *format, ...)
{
	va_list arguments;
	int64_t count;

	va_start(arguments, format);
	count = ask(engine, "SELECT count(*) FROM ", format, arguments);
	va_end(arguments);
	return count;
}

void engine_execute(struct engine *engine, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	ask(engine, "", format, arguments);
	va_end(arguments);
}

void engine_shift_us(struct engine *engine, int64_t step_us)
{
	engine->shifted_us += step_us;
	if (is_sqlite()) {
		engine_advance_us(step_us);
		return;
	}
	engine_execute(engine,
		"DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET quipu.clock_offset = %%L', "
		"current_database(), '%lld microseconds'); END $$",
		(long long)engine->shifted_us);
	engine_restart(engine);
}

/* ---- what tests say often ---------------------------------------------------------------- */

struct slice engine_name(struct engine *engine, const char *text)
{
	struct buffer name = buffer_make(&engine->arena, 32);

	buffer_text(&name, engine->prefix);
	buffer_text(&name, text);
	return arena_copy(&engine->arena, buffer_slice(&name));
}

struct slice engine_long_name(struct engine *engine, char filler, size_t size)
{
	struct buffer name = buffer_make(&engine->arena, size);

	buffer_text(&name, engine->prefix);
	while (name.len < size)
		buffer_char(&name, filler);
	return buffer_slice(&name);
}

struct slice engine_uuid(struct engine *engine, const char *text)
{
	char uuid[UUID_SIZE];

	uuid_of_name(engine_name(engine, text), uuid);
	return arena_copy(&engine->arena, slice_of(uuid));
}

void engine_begin_mode(struct session *session, enum transaction_mode mode)
{
	assert_int_equal(session->ops->begin(session, mode), STATUS_OK);
}

void engine_begin(struct session *session)
{
	engine_begin_mode(session, TRANSACTION_WAIT);
}

void engine_commit(struct session *session)
{
	assert_int_equal(session->ops->commit(session), STATUS_OK);
}

bool engine_is_collision(enum status status)
{
	return status == STATUS_RERUN || status == STATUS_LOCK_BUSY;
}
