/*
 * Plans how `quipu copy` fills a table from the source's table of the same name: which columns it
 * writes, their types, and the statements for copying and for checking. Used only by
 * postgres_table_target.c.
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_TABLE_PLAN_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_TABLE_PLAN_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "base/buffer.h"
#include "base/status.h"
#include "ports/table_copy.h"

enum plan_type {
	PLAN_INT8,
	PLAN_INT4,
	PLAN_BOOL,
	PLAN_TIME, /* copied from a number: microseconds since 1970 */
	PLAN_TEXT,
	PLAN_BYTEA,
	PLAN_UUID, /* copied from a text */
	PLAN_TYPES
};

struct plan_column {
	char name[64];
	enum plan_type type;
	int source;        /* the index of the source's column, or -1 if there is none */
	int64_t otherwise; /* the value if the source has no such column */
};

struct table_plan {
	const char *table;
	struct plan_column columns[TABLE_COLUMNS_MAX];
	size_t column_count;
	char identity[64];    /* the identity column, if it is copied; otherwise "" */
	const char *copy_sql; /* COPY … FROM STDIN */
	const char *sum_sql;  /* returns the number of rows and the sum of their hashes */
	struct arena arena;
};

/* Looks up the target's table and plans its columns. `table` describes the source's table. If that
 * table cannot be copied, returns false with a sentence in `why`. Release the plan even then. */
QP_MUST_CHECK bool table_plan_init(struct table_plan *plan, PGconn *connection,
	const struct table_facts *table, char *why, size_t size);
void table_plan_release(struct table_plan *plan);

/* Returns the target's column to which this column of the source is copied, or NULL if the column
 * is not copied. */
const struct plan_column *table_plan_find(const struct table_plan *plan, size_t column);

/* Appends a row in the format of binary COPY. Returns false if a value does not fit its column. */
QP_MUST_CHECK bool table_plan_write(const struct table_plan *plan, const struct cell *cells,
	struct buffer *out, char *why, size_t size);

#endif
