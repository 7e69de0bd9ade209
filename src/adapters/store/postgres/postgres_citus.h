/* Declarations shared by the files that contain the statements for Citus. See postgres_citus.c for
 * how these statements differ from the plain ones, and why. */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_CITUS_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_CITUS_H

#include "adapters/store/postgres/postgres_dialect.h"

extern const struct pg_statements pg_citus_entitlements;
extern const struct pg_statements pg_citus_facts;
extern const struct pg_statements pg_citus_erasers;

/* clang-format off */
#define CITUS_SHARDS(column, keys) "AND " column " = ANY (" keys "::text[]) "

#define CITUS_FROM_US(expression) \
	"timezone('UTC', timestamp 'epoch' + " expression " * interval '1 microsecond')"
#define CITUS_TO_US(expression) \
	"(extract(epoch from " expression " - timestamptz 'epoch') * 1000000)::int8"

#define CITUS_CLOCK "clock AS MATERIALIZED (SELECT quipu_now() AS now)"
#define CITUS_NOW "(SELECT now FROM clock)"
/* clang-format on */

#endif
