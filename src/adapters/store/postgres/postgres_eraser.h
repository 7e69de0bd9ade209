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

/* clang-format off */

/* SQL for the ids of events of entitlements that were not published, are about the person $1, and
 * may have lost their lines in the audit. $2 is the field user_id of the payload. The key alone does
 * not tell: the keys of the events of a user "a:b" begin like those of a user "a". */
#define PG_EVENTS_IN_STAGE(stage)                                                          \
	"UNION SELECT event_id FROM outbox_events WHERE stage = '" stage "' "              \
	"AND starts_with(aggregate_key, $1::text || ':') AND position($2::bytea IN payload) > 0 "
#define PG_UNPUBLISHED_EVENTS                                                              \
	PG_EVENTS_IN_STAGE("OPEN") PG_EVENTS_IN_STAGE("FAILED") PG_EVENTS_IN_STAGE("DISCARDED")

/* clang-format on */

extern const struct eraser_ops pg_eraser_ops;

extern const struct pg_eraser postgres_dialogs_eraser;
extern const struct pg_eraser postgres_counters_eraser;
extern const struct pg_eraser postgres_entitlements_eraser;
extern const struct pg_eraser postgres_notifications_eraser;
extern const struct pg_eraser postgres_limits_eraser;

#endif
