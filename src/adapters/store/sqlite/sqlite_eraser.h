/* Erasers in SQLite. Each service has an eraser: a list of places, with the SQL statements that
 * count and erase the rows of each place. */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_ERASER_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_ERASER_H

#include "adapters/shared/erase_values.h"
#include "adapters/store/sqlite/sqlite_internal.h"

/* A statement; `values` has one character per parameter, see adapters/shared/erase_values.h. */
struct sqlite_erase_statement {
	const char *sql;
	const char *values;
};

/* How the rows of one place are counted and erased. The number of erased rows is the number of rows
 * that the last statement of `erase` has changed. */
struct sqlite_erase_place {
	struct sqlite_erase_statement count;
	struct sqlite_erase_statement
		erase[ERASE_STATEMENTS_MAX]; /* the list ends at the first statement without SQL */
};

struct sqlite_eraser {
	struct eraser base;
	struct sqlite_erase_place places[ERASER_PLACES_MAX];
};

extern const struct eraser_ops sqlite_eraser_ops;

extern const struct sqlite_eraser sqlite_dialogs_eraser;
extern const struct sqlite_eraser sqlite_counters_eraser;
extern const struct sqlite_eraser sqlite_entitlements_eraser;
extern const struct sqlite_eraser sqlite_notifications_eraser;
extern const struct sqlite_eraser sqlite_limits_eraser;

#endif
