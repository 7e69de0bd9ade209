/* Erasers in PostgreSQL: one array of SQL statements per service. */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_ERASER_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_ERASER_H

#include "adapters/shared/erase_values.h"
#include "adapters/store/postgres/postgres_internal.h"

/* A statement; `values` has one character per parameter, see adapters/shared/erase_values.h. */
struct pg_erase_statement {
	struct pg_statement statement;
	const char *values;
};

/* How the rows of one place are counted and erased. The last statement of `erase` returns one row
 * for each row that it has changed. */
struct pg_erase_place {
	struct pg_erase_statement count;
	/* the list ends at the first statement without a name */
	struct pg_erase_statement erase[ERASE_STATEMENTS_MAX];
};

struct pg_eraser {
	struct eraser base;
	struct pg_erase_place places[ERASER_PLACES_MAX];
};

extern const struct eraser_ops pg_eraser_ops;

extern const struct pg_eraser postgres_dialogs_eraser;
extern const struct pg_eraser postgres_counters_eraser;
extern const struct pg_eraser postgres_entitlements_eraser;
extern const struct pg_eraser postgres_notifications_eraser;
extern const struct pg_eraser postgres_limits_eraser;

#endif
