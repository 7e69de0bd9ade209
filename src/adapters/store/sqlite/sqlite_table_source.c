/*
 * Reads the tables of one SQLite file for `quipu copy`. The names of tables and columns come from
 * the file's own schema, so a migration that adds a table requires no change here. Tables are
 * listed in the order of their creation, so each table comes after the tables to which it refers.
 */
#include "adapters/store/sqlite/sqlite_table_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/shared/sqlite_connection.h"
#include "base/arena.h"
#include "base/buffer.h"
#include "ports/migration.h"

#define TABLES_MAX 32
#define KEYS "idempotency_keys" /* every file has this table */

static const char pragmas[] = "PRAGMA query_only = ON; PRAGMA trusted_schema = OFF;";

/* clang-format off */
static const char components_sql[] =
	"SELECT component, max(version) "
	"FROM schema_migrations "
	"GROUP BY component "
	"ORDER BY component <> 'common', component";

static const char tables_sql[] =
	"SELECT name "
	"FROM sqlite_master "
	"WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name <> 'schema_migrations' "
	"ORDER BY rowid";

static const char columns_sql[] = "SELECT name, pk FROM pragma_table_info(?1) ORDER BY cid";
/* clang-format on */

struct source_table {
	struct table_facts table;
	const char *order; /* the columns of the primary key, for ORDER BY */
	const char *where; /* the condition for the rows to read */
};

struct table_source {
	struct sqlite_connection connection;
	const char *path;
	struct arena arena;
	const char *components[SOURCE_COMPONENTS_MAX + 1];
	struct source_table tables[TABLES_MAX];
	size_t table_count;
	int other_count;       /* number of attached files */
	sqlite3_stmt *reading; /* NULL if no table is being read */
	size_t width;          /* number of columns of the table that is being read */
};

static bool failed(struct table_source *source, int rc, char *why, size_t size)
{
	char words[SQLITE_WORDS_SIZE];

	sqlite_connection_explain(&source->connection, rc, words);
	snprintf(why, size, "%s cannot be read: %s", source->path, words);
	return false;
}

static const char *keep(struct table_source *source, const unsigned char *text)
{
	size_t len = strlen((const char *)text) + 1;
	char *copy = arena_alloc(&source->arena, len);

	return memcpy(copy, text, len);
}

/* Returns the first column of the query's first row, or 0 if there is no row or the query fails,
 * e.g. because the file has no table sqlite_sequence. */
static int64_t number(struct table_source *source, const char *sql)
{
	sqlite3_stmt *stmt = NULL;
	int64_t value = 0;

	if (sqlite3_prepare_v2(source->connection.db, sql, -1, &stmt, NULL) == SQLITE_OK &&
		sqlite3_step(stmt) == SQLITE_ROW)
		value = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	return value;
}

/* ---- the schema -------------------------------------------------------------------------- */

static int known_version(const char *component)
{
	int newest = 0;

	for (size_t i = 0; i < migration_count; i++) {
		if (strcmp(migrations[i].engine, "sqlite") == 0 &&
			strcmp(migrations[i].component, component) == 0)
			newest = migrations[i].version;
	}
	return newest;
}

static bool check_version(const struct table_source *source, const char *component, int version,
	char *why, size_t size)
{
	int known = known_version(component);

	if (version > known)
		snprintf(why, size,
			"%s was written by a newer quipu: its schema \"%s\" has version %d, but "
			"this quipu supports only versions up to %d; copy it with the newer quipu",
			source->path, component, version, known);
	else if (version < known)
		snprintf(why, size,
			"%s was written by an older quipu: its schema \"%s\" has version %d, but "
			"this quipu needs %d; bring it up to date first, with quipu migrate --data",
			source->path, component, version, known);
	return version == known;
}

static bool read_components(struct table_source *source, char *why, size_t size)
{
	sqlite3_stmt *stmt = NULL;
	size_t count = 0;
	bool fits = true;
	int rc = sqlite_connection_statement(&source->connection, components_sql, &stmt);

	if (rc != SQLITE_OK)
		return failed(source, rc, why, size);
	while (fits && count < SOURCE_COMPONENTS_MAX && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const char *component = keep(source, sqlite3_column_text(stmt, 0));

		source->components[count++] = component;
		fits = check_version(source, component, sqlite3_column_int(stmt, 1), why, size);
	}
	sqlite3_reset(stmt);
	if (!fits)
		return false;
	return rc == SQLITE_DONE || failed(source, rc, why, size);
}

/* Sets the columns of a table and the order of its rows. */
static int read_columns(struct table_source *source, struct source_table *one)
{
	struct buffer order = buffer_make(&source->arena, 64);
	struct table_facts *table = &one->table;
	sqlite3_stmt *stmt;
	int rc = sqlite_connection_statement(&source->connection, columns_sql, &stmt);

	if (rc == SQLITE_OK)
		rc = sqlite3_bind_text(stmt, 1, table->name, -1, SQLITE_STATIC);
	if (rc != SQLITE_OK)
		return rc;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && table->column_count < TABLE_COLUMNS_MAX) {
		const char *name = keep(source, sqlite3_column_text(stmt, 0));

		table->columns[table->column_count++] = name;
		if (sqlite3_column_int(stmt, 1) > 0)
			buffer_format(&order, "%s\"%s\"", order.len > 0 ? ", " : "", name);
	}
	buffer_char(&order, '\0');
	one->order = order.data;
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return rc == SQLITE_DONE ? SQLITE_OK : SQLITE_TOOBIG;
}

static void count_rows(struct table_source *source, struct source_table *one)
{
	struct buffer sql = buffer_make(&source->arena, 512);

	buffer_format(&sql, "SELECT count(*) FROM main.\"%s\" AS mine WHERE %s", one->table.name,
		one->where);
	buffer_char(&sql, '\0');
	one->table.rows = number(source, sql.data);
}

static void read_size(struct table_source *source, struct source_table *one)
{
	char sql[256];

	one->where = "true";
	count_rows(source, one);
	snprintf(sql, sizeof(sql), "SELECT seq FROM sqlite_sequence WHERE name = '%s'",
		one->table.name);
	one->table.last_id = number(source, sql);
}

static bool read_tables(struct table_source *source, char *why, size_t size)
{
	sqlite3_stmt *stmt;
	int rc = sqlite_connection_statement(&source->connection, tables_sql, &stmt);

	if (rc != SQLITE_OK)
		return failed(source, rc, why, size);
	while (source->table_count < TABLES_MAX && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		source->tables[source->table_count++].table.name =
			keep(source, sqlite3_column_text(stmt, 0));
	sqlite3_reset(stmt);
	for (size_t i = 0; i < source->table_count && rc == SQLITE_DONE; i++) {
		int columns = read_columns(source, &source->tables[i]);

		read_size(source, &source->tables[i]);
		if (columns != SQLITE_OK)
			rc = columns;
	}
	return rc == SQLITE_DONE || failed(source, rc, why, size);
}

struct table_source *table_source_open(const char *path, char *why, size_t size)
{
	struct table_source *source = qp_calloc(1, sizeof(*source));
	int rc = sqlite_connection_open(&source->connection, path, SQLITE_OPEN_READWRITE, pragmas);

	arena_init(&source->arena, 16 * 1024);
	source->path = keep(source, (const unsigned char *)path);
	if (rc != SQLITE_OK)
		sqlite_connection_explain_open(&source->connection, path, rc, why, size);
	else if (read_components(source, why, size) && read_tables(source, why, size))
		return source;
	table_source_close(source);
	return NULL;
}

void table_source_close(struct table_source *source)
{
	table_source_end(source);
	if (source->connection.db)
		/* makes sqlite_connection_close() also delete the -wal file */
		sqlite_connection_checkpoint_on_close(&source->connection);
	sqlite_connection_close(&source->connection);
	arena_release(&source->arena);
	free(source);
}

size_t table_source_count(const struct table_source *source)
{
	return source->table_count;
}

const struct table_facts *table_source_at(const struct table_source *source, size_t index)
{
	return &source->tables[index].table;
}

const char *table_source_component(const struct table_source *source, size_t index)
{
	return source->components[index];
}

/* ---- keys in several files --------------------------------------------------------------- */

static int attach(struct table_source *source, const char *path)
{
	char sql[64];
	sqlite3_stmt *stmt;
	int rc;

	snprintf(sql, sizeof(sql), "ATTACH ?1 AS other%d", source->other_count);
	rc = sqlite3_prepare_v2(source->connection.db, sql, -1, &stmt, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_bind_text(stmt, 1, path, -1, SQLITE_STATIC);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/*
 * Compares the keys of `source` with those in the file that was attached last, and leaves out each
 * key that expires later in the attached file. `later` is the SQL operator between the expiry in
 * the attached file and the expiry in `source`: ">", or ">=" to also leave out keys that expire at
 * the same time in both files.
 */
static void narrow(struct table_source *source, struct source_table *keys, const char *later)
{
	struct buffer where = buffer_make(&source->arena, 512);

	buffer_format(&where,
		"%s AND NOT EXISTS (SELECT 1 FROM other%d." KEYS " AS theirs "
		"WHERE theirs.scope = mine.scope AND theirs.key = mine.key "
		"AND theirs.expires_at %s mine.expires_at)",
		keys->where, source->other_count++, later);
	buffer_char(&where, '\0');
	keys->where = where.data;
}

static struct source_table *keys_of(struct table_source *source)
{
	for (size_t i = 0; i < source->table_count; i++) {
		if (strcmp(source->tables[i].table.name, KEYS) == 0)
			return &source->tables[i];
	}
	return NULL;
}

/* Compares the keys of the source at `at` with those of every other source that has keys to copy.
 * Another source that has already left out all its keys is skipped: each of its keys is copied from
 * some source in which the key expires at the same time or later. */
bool table_source_share_keys(struct table_source *const *sources, size_t count, size_t at,
	int64_t *left_out, char *why, size_t size)
{
	struct source_table *keys = keys_of(sources[at]);
	int64_t before = keys ? keys->table.rows : 0;

	for (size_t i = 0; i < count && before > 0; i++) {
		const struct source_table *theirs = keys_of(sources[i]);
		int rc;

		if (i == at || !theirs || theirs->table.rows == 0)
			continue;
		rc = attach(sources[at], sources[i]->path);
		if (rc != SQLITE_OK)
			return failed(sources[at], rc, why, size);
		narrow(sources[at], keys, at < i ? ">" : ">=");
	}
	if (before > 0)
		count_rows(sources[at], keys);
	*left_out = before > 0 ? before - keys->table.rows : 0;
	return true;
}

/* ---- rows -------------------------------------------------------------------------------- */

bool table_source_begin(struct table_source *source, const struct table_facts *table, int64_t skip,
	char *why, size_t size)
{
	const struct source_table *one = (const struct source_table *)table;
	struct buffer sql = buffer_make(&source->arena, 512);
	int rc;

	buffer_text(&sql, "SELECT ");
	for (size_t i = 0; i < table->column_count; i++)
		buffer_format(&sql, "%s\"%s\"", i > 0 ? ", " : "", table->columns[i]);
	buffer_format(&sql, " FROM main.\"%s\" AS mine WHERE %s ORDER BY %s LIMIT -1 OFFSET %lld",
		table->name, one->where, one->order, (long long)skip);
	buffer_char(&sql, '\0');
	rc = sqlite3_prepare_v2(source->connection.db, sql.data, -1, &source->reading, NULL);
	source->width = table->column_count;
	return rc == SQLITE_OK || failed(source, rc, why, size);
}

/* Returns false for a floating-point number, which none of our tables contains. */
static bool read_cell(sqlite3_stmt *stmt, int column, struct cell *cell)
{
	int type = sqlite3_column_type(stmt, column);

	*cell = (struct cell){.kind = CELL_NULL};
	if (type == SQLITE_INTEGER) {
		cell->kind = CELL_INTEGER;
		cell->integer = sqlite3_column_int64(stmt, column);
	} else if (type == SQLITE_TEXT || type == SQLITE_BLOB) {
		const void *data = sqlite3_column_blob(stmt, column);

		cell->kind = type == SQLITE_TEXT ? CELL_TEXT : CELL_BLOB;
		cell->bytes =
			slice_make(data ? data : "", (size_t)sqlite3_column_bytes(stmt, column));
	}
	return type != SQLITE_FLOAT;
}

enum table_step table_source_next(
	struct table_source *source, struct cell *cells, char *why, size_t size)
{
	int rc = sqlite3_step(source->reading);

	for (size_t i = 0; rc == SQLITE_ROW && i < source->width; i++) {
		if (!read_cell(source->reading, (int)i, &cells[i]))
			rc = SQLITE_MISMATCH;
	}
	if (rc == SQLITE_ROW)
		return TABLE_ROW;
	if (rc == SQLITE_DONE)
		return TABLE_END;
	failed(source, rc, why, size);
	return TABLE_FAILED;
}

void table_source_end(struct table_source *source)
{
	sqlite3_finalize(source->reading);
	source->reading = NULL;
}
