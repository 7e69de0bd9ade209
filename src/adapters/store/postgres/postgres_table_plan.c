/*
 * Reads the target's columns from PostgreSQL's catalog and matches them with the source's columns
 * by name, so that a migration that adds the same column to SQLite and PostgreSQL requires no
 * change here. Only columns that the source lacks are listed here, in `made_up`.
 */
#include "adapters/store/postgres/postgres_table_plan.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The microseconds from 1970 to 2000, where PostgreSQL's timestamps begin. */
#define EPOCH_US INT64_C(946684800000000)

/* Columns that the source does not have, and the value that the copy writes to each. */
static const struct {
	const char *table;
	const char *column;
	int64_t value;
} made_up[] = {
	{"messages", "in_conversation", 1},
};

static const char *const type_names[PLAN_TYPES] = {
	[PLAN_INT8] = "int8",
	[PLAN_INT4] = "int4",
	[PLAN_BOOL] = "bool",
	[PLAN_TIME] = "timestamptz",
	[PLAN_TEXT] = "text",
	[PLAN_BYTEA] = "bytea",
	[PLAN_UUID] = "uuid",
};

/* ---- matching ---------------------------------------------------------------------------- */

static int find_source(const struct table_facts *table, const char *column)
{
	for (size_t i = 0; i < table->column_count; i++) {
		if (strcmp(table->columns[i], column) == 0)
			return (int)i;
	}
	return -1;
}

static const int64_t *find_made_up(const char *table, const char *column)
{
	for (size_t i = 0; i < sizeof(made_up) / sizeof(made_up[0]); i++) {
		if (strcmp(made_up[i].table, table) == 0 && strcmp(made_up[i].column, column) == 0)
			return &made_up[i].value;
	}
	return NULL;
}

static enum plan_type find_type(const char *name)
{
	int type = 0;

	while (type < PLAN_TYPES && strcmp(type_names[type], name) != 0)
		type++;
	return (enum plan_type)type;
}

/* A column of the target's table, as PostgreSQL's catalog describes it. */
struct found {
	const char *column;
	const char *type;
	bool is_always; /* PostgreSQL generates all values, so none can be copied */
	bool is_identity;
	bool is_required; /* NOT NULL without a default */
};

static struct found read_found(const PGresult *result, int row)
{
	return (struct found){
		.column = PQgetvalue(result, row, 0),
		.type = PQgetvalue(result, row, 1),
		.is_always = *PQgetvalue(result, row, 2) == 't',
		.is_identity = *PQgetvalue(result, row, 3) == 't',
		.is_required = *PQgetvalue(result, row, 4) == 't',
	};
}

static void add_column(
	struct table_plan *plan, const struct found *found, int source, const int64_t *value)
{
	struct plan_column *column = &plan->columns[plan->column_count++];

	snprintf(column->name, sizeof(column->name), "%s", found->column);
	column->type = find_type(found->type);
	column->source = source;
	column->otherwise = value ? *value : 0;
	if (found->is_identity)
		snprintf(plan->identity, sizeof(plan->identity), "%s", found->column);
}

static bool match(struct table_plan *plan, const struct table_facts *table,
	const struct found *found, char *why, size_t size)
{
	int source = find_source(table, found->column);
	const int64_t *value = find_made_up(table->name, found->column);

	if (found->is_always)
		return true;
	if (source < 0 && !value && !found->is_required)
		return true;
	if ((source < 0 && !value) || find_type(found->type) == PLAN_TYPES ||
		plan->column_count == TABLE_COLUMNS_MAX) {
		snprintf(why, size, "this version cannot copy the column %s.%s (%s)", table->name,
			found->column, found->type);
		return false;
	}
	add_column(plan, found, source, value);
	return true;
}

/* clang-format off */
static const char catalog_sql[] =
	"SELECT a.attname, t.typname, a.attidentity = 'a' OR a.attgenerated <> '', a.attidentity <> '', "
	" a.attnotnull AND NOT a.atthasdef "
	"FROM pg_attribute a "
	"JOIN pg_type t ON t.oid = a.atttypid "
	"WHERE a.attrelid = to_regclass(quote_ident($1)) AND a.attnum > 0 AND NOT a.attisdropped "
	"ORDER BY a.attnum";
/* clang-format on */

/* Returns false, with a reason in `why`, if the table in PostgreSQL lacks a column that the table
 * to be copied has. */
static bool check_complete(
	const PGresult *result, const struct table_facts *table, char *why, size_t size)
{
	for (size_t i = 0; i < table->column_count; i++) {
		int row = 0;

		while (row < PQntuples(result) &&
			strcmp(PQgetvalue(result, row, 0), table->columns[i]) != 0)
			row++;
		if (row == PQntuples(result)) {
			snprintf(why, size, "PostgreSQL's schema has no column %s.%s", table->name,
				table->columns[i]);
			return false;
		}
	}
	return true;
}

static bool match_all(struct table_plan *plan, const PGresult *result,
	const struct table_facts *table, char *why, size_t size)
{
	for (int row = 0; row < PQntuples(result); row++) {
		struct found found = read_found(result, row);

		if (!match(plan, table, &found, why, size))
			return false;
	}
	return check_complete(result, table, why, size);
}

/* ---- statements -------------------------------------------------------------------------- */

static const char *write_copy(struct table_plan *plan)
{
	struct buffer sql = buffer_make(&plan->arena, 512);

	buffer_format(&sql, "COPY \"%s\" (", plan->table);
	for (size_t i = 0; i < plan->column_count; i++)
		buffer_format(&sql, "%s\"%s\"", i > 0 ? ", " : "", plan->columns[i].name);
	buffer_text(&sql, ") FROM STDIN (FORMAT binary)");
	buffer_char(&sql, '\0');
	return sql.data;
}

/* Appends SQL that writes a column in the form in which app/copy.c hashes it: "5:hello", or "-" for
 * NULL. */
static void write_term(struct buffer *sql, const struct plan_column *column)
{
	char text[160];

	switch (column->type) {
	case PLAN_BOOL:
		snprintf(text, sizeof(text), "\"%s\"::int::text", column->name);
		break;
	case PLAN_TIME:
		snprintf(text, sizeof(text), "(extract(epoch from \"%s\") * 1000000)::int8::text",
			column->name);
		break;
	case PLAN_BYTEA:
		snprintf(text, sizeof(text), "encode(\"%s\", 'hex')", column->name);
		break;
	default:
		snprintf(text, sizeof(text), "\"%s\"::text", column->name);
	}
	buffer_format(sql, " || coalesce(octet_length(convert_to(%s, 'UTF8')) || ':' || %s, '-')",
		text, text);
}

static const char *write_sum(struct table_plan *plan)
{
	struct buffer sql = buffer_make(&plan->arena, 4096);

	/* Hash the columns in the order that they have in the source. */
	buffer_text(&sql, "SELECT count(*), coalesce(sum(('x' || left(encode(sha256(convert_to(''");
	for (int source = 0; source < TABLE_COLUMNS_MAX; source++) {
		for (size_t i = 0; i < plan->column_count; i++) {
			if (plan->columns[i].source == source)
				write_term(&sql, &plan->columns[i]);
		}
	}
	buffer_format(&sql,
		", 'UTF8')), 'hex'), 15))::bit(60)::int8) %% 9223372036854775808, 0) FROM \"%s\"",
		plan->table);
	buffer_char(&sql, '\0');
	return sql.data;
}

bool table_plan_init(struct table_plan *plan, PGconn *connection, const struct table_facts *table,
	char *why, size_t size)
{
	PGresult *result =
		PQexecParams(connection, catalog_sql, 1, NULL, &table->name, NULL, NULL, 0);
	bool fits = PQresultStatus(result) == PGRES_TUPLES_OK;

	memset(plan, 0, sizeof(*plan));
	plan->table = table->name;
	arena_init(&plan->arena, 16 * 1024);
	if (!fits)
		snprintf(why, size, "PostgreSQL says: %s", PQerrorMessage(connection));
	else if (PQntuples(result) == 0)
		snprintf(why, size, "PostgreSQL's schema has no table %s", table->name);
	else
		fits = match_all(plan, result, table, why, size);
	fits = fits && PQntuples(result) > 0;
	PQclear(result);
	if (fits) {
		plan->copy_sql = write_copy(plan);
		plan->sum_sql = write_sum(plan);
	}
	return fits;
}

void table_plan_release(struct table_plan *plan)
{
	if (plan->table)
		arena_release(&plan->arena);
	memset(plan, 0, sizeof(*plan));
}

const struct plan_column *table_plan_find(const struct table_plan *plan, size_t column)
{
	for (size_t i = 0; i < plan->column_count; i++) {
		if (plan->columns[i].source == (int)column)
			return &plan->columns[i];
	}
	return NULL;
}

/* ---- rows -------------------------------------------------------------------------------- */

static void put_length(struct buffer *out, int32_t len)
{
	uint32_t bytes = htobe32((uint32_t)len);

	buffer_bytes(out, &bytes, sizeof(bytes));
}

static void put_int8(struct buffer *out, int64_t value)
{
	uint64_t bytes = htobe64((uint64_t)value);

	put_length(out, sizeof(bytes));
	buffer_bytes(out, &bytes, sizeof(bytes));
}

static bool put_int4(struct buffer *out, int64_t value)
{
	uint32_t bytes = htobe32((uint32_t)(int32_t)value);

	put_length(out, sizeof(bytes));
	buffer_bytes(out, &bytes, sizeof(bytes));
	return value >= INT32_MIN && value <= INT32_MAX;
}

static int hex_value(char c)
{
	const char *digits = "0123456789abcdef";
	const char *at = c ? strchr(digits, c | 0x20) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* Returns false if the text is not a UUID. */
static bool put_uuid(struct buffer *out, struct slice text)
{
	unsigned char bytes[16] = {0};
	size_t digits = 0;

	for (size_t i = 0; i < text.len; i++) {
		int value = hex_value(text.data[i]);

		if (text.data[i] == '-')
			continue;
		if (value < 0 || digits == 32)
			return false;
		bytes[digits / 2] = (unsigned char)(bytes[digits / 2] << 4 | value);
		digits++;
	}
	put_length(out, sizeof(bytes));
	buffer_bytes(out, bytes, sizeof(bytes));
	return digits == 32;
}

static bool put_integer(struct buffer *out, enum plan_type type, int64_t value)
{
	switch (type) {
	case PLAN_INT8:
		put_int8(out, value);
		return true;
	case PLAN_INT4:
		return put_int4(out, value);
	case PLAN_TIME:
		if (value < INT64_MIN + EPOCH_US)
			return false;
		put_int8(out, value - EPOCH_US);
		return true;
	case PLAN_BOOL:
		put_length(out, 1);
		buffer_char(out, value != 0);
		return value == 0 || value == 1;
	default:
		return false;
	}
}

static bool put_cell(struct buffer *out, enum plan_type type, const struct cell *cell)
{
	bool is_text = cell->kind == CELL_TEXT && type == PLAN_TEXT;
	bool is_blob = cell->kind == CELL_BLOB && type == PLAN_BYTEA;

	if (cell->kind == CELL_NULL) {
		put_length(out, -1);
		return true;
	}
	if (cell->kind == CELL_INTEGER)
		return put_integer(out, type, cell->integer);
	if (cell->kind == CELL_TEXT && type == PLAN_UUID)
		return put_uuid(out, cell->bytes);
	put_length(out, (int32_t)cell->bytes.len);
	buffer_add(out, cell->bytes);
	return is_text || is_blob;
}

bool table_plan_write(const struct table_plan *plan, const struct cell *cells, struct buffer *out,
	char *why, size_t size)
{
	uint16_t count = htobe16((uint16_t)plan->column_count);

	buffer_bytes(out, &count, sizeof(count));
	for (size_t i = 0; i < plan->column_count; i++) {
		const struct plan_column *column = &plan->columns[i];
		const struct cell made = {.kind = CELL_INTEGER, .integer = column->otherwise};
		const struct cell *cell = column->source < 0 ? &made : &cells[column->source];

		if (!put_cell(out, column->type, cell)) {
			snprintf(why, size, "a value of %s.%s does not fit the type %s",
				plan->table, column->name, type_names[column->type]);
			return false;
		}
	}
	return true;
}
