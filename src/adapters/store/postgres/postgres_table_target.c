/*
 * Writes the rows of `quipu copy` to PostgreSQL. Rows are sent as binary COPY, so no value needs
 * quoting and no number is rounded. Each batch is a transaction that also records the number of
 * copied rows, so an interrupted copy continues after the last committed batch and never writes a
 * row twice.
 */
#include "adapters/store/postgres/postgres_table_target.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/store/postgres/postgres_copy_lock.h"
#include "adapters/store/postgres/postgres_table_plan.h"
#include "base/arena.h"
#include "base/buffer.h"

#define SEND_SIZE (256 * 1024)

struct table_target {
	PGconn *connection;
	char copy_id[64];
	struct arena arena; /* holds `pending`, the rows of the batch that have not been sent yet */
	struct buffer pending;
	struct table_plan plan; /* of the chosen table */
	const char *file;
	const char *table;
};

static bool failed(const struct table_target *target, char *why, size_t size)
{
	snprintf(why, size, "PostgreSQL says: %s", PQerrorMessage(target->connection));
	for (size_t len = strlen(why); len > 0 && why[len - 1] == '\n'; len--)
		why[len - 1] = '\0';
	return false;
}

/* Runs a statement. Returns its result, which the caller clears, or NULL on failure. */
static PGresult *ask(struct table_target *target, const char *sql, const char *const *values,
	int count, char *why, size_t size)
{
	PGresult *result =
		PQexecParams(target->connection, sql, count, NULL, values, NULL, NULL, 0);
	ExecStatusType status = PQresultStatus(result);

	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
		return result;
	PQclear(result);
	failed(target, why, size);
	return NULL;
}

static bool run(struct table_target *target, const char *sql, char *why, size_t size)
{
	PGresult *result = PQexec(target->connection, sql);
	ExecStatusType status = PQresultStatus(result);

	PQclear(result);
	return status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || failed(target, why, size);
}

/* ---- opening ----------------------------------------------------------------------------- */

static const char settings_sql[] =
	"SET client_encoding = 'UTF8'; SET client_min_messages = warning; SET timezone = 'UTC'; "
	"SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout "
	"= 0";

static const char tables_sql[] =
	"CREATE TABLE IF NOT EXISTS quipu_copy (copy_id text PRIMARY KEY, source text NOT NULL, "
	"begun_at timestamptz NOT NULL DEFAULT now(), finished_at timestamptz); "
	"CREATE TABLE IF NOT EXISTS quipu_copy_tables (copy_id text REFERENCES quipu_copy, "
	"file text, name text, rows bigint NOT NULL, PRIMARY KEY (copy_id, file, name))";

struct table_target *table_target_open(const char *url, char *why, size_t size)
{
	struct table_target *target;

	if (!pg_url_check(url, why, size))
		return NULL;
	target = qp_calloc(1, sizeof(*target));
	arena_init(&target->arena, 2 * SEND_SIZE);
	target->connection = pg_dial(url);
	if (PQstatus(target->connection) != CONNECTION_OK)
		failed(target, why, size);
	else if (run(target, settings_sql, why, size))
		return target;
	table_target_close(target);
	return NULL;
}

void table_target_close(struct table_target *target)
{
	PQfinish(target->connection);
	table_plan_release(&target->plan);
	arena_release(&target->arena);
	free(target);
}

bool table_target_lock(struct table_target *target, char *why, size_t size)
{
	return pg_admit_copy(target->connection, why, size);
}

/* ---- beginning and resuming -------------------------------------------------------------- */

/* Sets `exists` to whether the table exists. Returns false with a reason in `why` if the query
 * fails. */
static bool has_table(
	struct table_target *target, const char *name, bool *exists, char *why, size_t size)
{
	PGresult *result =
		ask(target, "SELECT to_regclass(quote_ident($1)) IS NOT NULL", &name, 1, why, size);

	if (result)
		*exists = strcmp(PQgetvalue(result, 0, 0), "t") == 0;
	PQclear(result);
	return result != NULL;
}

bool table_target_find(struct table_target *target, const char *copy_id, bool *has_begun,
	bool *is_finished, char *why, size_t size)
{
	PGresult *result;
	bool has_copies;

	*has_begun = *is_finished = false;
	snprintf(target->copy_id, sizeof(target->copy_id), "%s", copy_id);
	if (!has_table(target, "quipu_copy", &has_copies, why, size))
		return false;
	if (!has_copies)
		return true;
	result = ask(target, "SELECT finished_at IS NOT NULL FROM quipu_copy WHERE copy_id = $1",
		&copy_id, 1, why, size);
	if (!result)
		return false;
	*has_begun = PQntuples(result) == 1;
	*is_finished = *has_begun && strcmp(PQgetvalue(result, 0, 0), "t") == 0;
	PQclear(result);
	return true;
}

bool table_target_is_free(struct table_target *target, char *why, size_t size)
{
	PGresult *others;
	bool has_copies, is_free;

	if (!has_table(target, "quipu_copy", &has_copies, why, size))
		return false;
	if (!has_copies)
		return true;
	others = ask(target, "SELECT source FROM quipu_copy WHERE finished_at IS NULL", NULL, 0,
		why, size);
	is_free = others && PQntuples(others) == 0;
	if (others && !is_free)
		snprintf(why, size,
			"a copy from %s to this database is not finished; finish it, or begin anew "
			"with an empty database",
			PQgetvalue(others, 0, 0));
	PQclear(others);
	return is_free;
}

bool table_target_prepare(
	struct table_target *target, const char *const *components, char *why, size_t size)
{
	return pg_migrate(target->connection, components, why, size) &&
	       run(target, settings_sql, why, size) && run(target, tables_sql, why, size);
}

bool table_target_begin(struct table_target *target, const char *source, char *why, size_t size)
{
	const char *values[] = {target->copy_id, source};
	PGresult *begun = ask(target, "INSERT INTO quipu_copy (copy_id, source) VALUES ($1, $2)",
		values, 2, why, size);

	PQclear(begun);
	return begun != NULL;
}

bool table_target_is_empty(
	struct table_target *target, const struct table_facts *table, char *why, size_t size)
{
	char sql[256];
	PGresult *result;
	bool exists, is_empty;

	if (!has_table(target, table->name, &exists, why, size))
		return false;
	if (!exists)
		return true;
	snprintf(sql, sizeof(sql), "SELECT EXISTS (SELECT 1 FROM \"%s\")", table->name);
	result = ask(target, sql, NULL, 0, why, size);
	is_empty = result && strcmp(PQgetvalue(result, 0, 0), "f") == 0;
	if (result && !is_empty)
		snprintf(why, size,
			"the table %s of the target has rows that are not from this copy; use an "
			"empty database",
			table->name);
	PQclear(result);
	return is_empty;
}

bool table_target_choose(struct table_target *target, const char *file,
	const struct table_facts *table, int64_t *rows, char *why, size_t size)
{
	const char *values[] = {target->copy_id, file, table->name};
	PGresult *result;

	table_plan_release(&target->plan);
	target->file = file;
	target->table = table->name;
	if (!table_plan_init(&target->plan, target->connection, table, why, size))
		return false;
	result = ask(target,
		"SELECT rows FROM quipu_copy_tables WHERE copy_id = $1 AND file = $2 AND name = $3",
		values, 3, why, size);
	if (!result)
		return false;
	*rows = PQntuples(result) == 1 ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : 0;
	PQclear(result);
	return true;
}

bool table_target_takes(const struct table_target *target, size_t column)
{
	return table_plan_find(&target->plan, column) != NULL;
}

bool table_target_has_uuid(const struct table_target *target, size_t column)
{
	const struct plan_column *found = table_plan_find(&target->plan, column);

	return found && found->type == PLAN_UUID;
}

/* ---- batches ----------------------------------------------------------------------------- */

static const char copy_head[] = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0"; /* sent with its final NUL */
static const char copy_tail[] = {'\377', '\377'};

bool table_target_open_batch(struct table_target *target, char *why, size_t size)
{
	PGresult *result;
	bool is_open;

	if (!run(target, "BEGIN", why, size))
		return false;
	result = PQexec(target->connection, target->plan.copy_sql);
	is_open = PQresultStatus(result) == PGRES_COPY_IN;
	PQclear(result);
	if (!is_open)
		return failed(target, why, size);
	arena_reset(&target->arena);
	target->pending = buffer_make(&target->arena, SEND_SIZE);
	buffer_bytes(&target->pending, copy_head, sizeof(copy_head));
	return true;
}

static bool send_pending(struct table_target *target, char *why, size_t size)
{
	int sent =
		PQputCopyData(target->connection, target->pending.data, (int)target->pending.len);

	target->pending.len = 0;
	return sent == 1 || failed(target, why, size);
}

bool table_target_add(struct table_target *target, const struct cell *cells, char *why, size_t size)
{
	if (!table_plan_write(&target->plan, cells, &target->pending, why, size)) {
		PQputCopyEnd(target->connection, "a value cannot be converted");
		return false;
	}
	return target->pending.len < SEND_SIZE || send_pending(target, why, size);
}

/* Ends the COPY. If the server refused a row, returns false with the server's reason in `why`. */
static bool end_copy(struct table_target *target, char *why, size_t size)
{
	PGresult *result;
	bool done = true;

	buffer_bytes(&target->pending, copy_tail, sizeof(copy_tail));
	if (!send_pending(target, why, size))
		return false;
	if (PQputCopyEnd(target->connection, NULL) != 1)
		return failed(target, why, size);
	while ((result = PQgetResult(target->connection))) {
		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			done = failed(target, why, size);
		PQclear(result);
	}
	return done;
}

bool table_target_commit(struct table_target *target, int64_t rows, char *why, size_t size)
{
	char number[32];
	const char *values[] = {target->copy_id, target->file, target->table, number};
	PGresult *result;

	snprintf(number, sizeof(number), "%" PRId64, rows);
	if (!end_copy(target, why, size))
		return false;
	result = ask(target,
		"INSERT INTO quipu_copy_tables (copy_id, file, name, rows) VALUES ($1, $2, $3, $4) "
		"ON CONFLICT (copy_id, file, name) DO UPDATE SET rows = excluded.rows",
		values, 4, why, size);
	if (!result)
		return false;
	PQclear(result);
	return run(target, "COMMIT", why, size);
}

/* ---- at the end -------------------------------------------------------------------------- */

bool table_target_sum(struct table_target *target, struct table_sum *sum, char *why, size_t size)
{
	PGresult *result = ask(target, target->plan.sum_sql, NULL, 0, why, size);

	if (!result)
		return false;
	sum->rows = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	sum->hash = strtoull(PQgetvalue(result, 0, 1), NULL, 10);
	PQclear(result);
	return true;
}

bool table_target_advance(struct table_target *target, int64_t last_id, char *why, size_t size)
{
	char sql[512];
	const char *column = target->plan.identity;

	if (!*column)
		return true;
	snprintf(sql, sizeof(sql),
		"SELECT setval(pg_get_serial_sequence('\"%s\"', '%s'), n) FROM (SELECT "
		"greatest((SELECT max(\"%s\") FROM \"%s\"), %" PRId64
		") AS n) AS highest WHERE n > "
		"0",
		target->table, column, column, target->table, last_id);
	return run(target, sql, why, size);
}

/*
 * A copied audit line is in the default partition if there is no partition for its month. This
 * statement creates the missing partitions and moves the lines into them. Lines from before 2000,
 * or from more than a year in the future, stay in the default partition.
 */
static const char partitions_sql[] =
	"DO $$ DECLARE month timestamp; BEGIN "
	"IF to_regclass('entitlement_audit_default') IS NULL THEN RETURN; END IF; "
	"FOR month IN SELECT DISTINCT date_trunc('month', occurred_at AT TIME ZONE 'UTC') "
	"FROM entitlement_audit_default WHERE occurred_at >= '2000-01-01' "
	"AND occurred_at < now() + interval '1 year' LOOP "
	"PERFORM quipu_make_audit_month(month); END LOOP; END $$";

bool table_target_settle(struct table_target *target, char *why, size_t size)
{
	return run(target, partitions_sql, why, size);
}

bool table_target_finish(struct table_target *target, char *why, size_t size)
{
	const char *copy_id = target->copy_id;
	PGresult *result;

	if (!run(target, "ANALYZE", why, size))
		return false;
	result = ask(target, "UPDATE quipu_copy SET finished_at = now() WHERE copy_id = $1",
		&copy_id, 1, why, size);
	if (!result)
		return false;
	PQclear(result);
	return true;
}
