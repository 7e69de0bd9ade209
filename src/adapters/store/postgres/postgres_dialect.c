/*
 * The two dialects need different settings for two reasons.
 *
 * Plans: plain PostgreSQL uses one plan of a prepared statement for arrays of any size, because
 * PG_LOCK_SETTINGS determine the plan. On Citus, the values of the parameters decide which nodes
 * take part, so Citus must know these values and plans every execution anew.
 *
 * Locks: with our settings, Citus changes the shards of a statement one after another, always in
 * the same order. It locks the rows of a shard in the order of their ids, as plain PostgreSQL does.
 * By default Citus would change shards in parallel, and two batches could wait for each other.
 */
#include "adapters/store/postgres/postgres_dialect.h"

static const struct pg_statements *const no_tables[] = {NULL};

const struct pg_dialect pg_dialect_plain = {
	.name = "PostgreSQL",
	.settings = "SET plan_cache_mode = force_generic_plan",
	.commits_alone = true,
	.tables = no_tables,
};

const struct pg_dialect *pg_dialect_of(const PGresult *result)
{
	return PQntuples(result) > 0 ? &pg_dialect_citus : &pg_dialect_plain;
}

static const char *find_in(const struct pg_statements *table, const char *name)
{
	for (size_t i = 0; i < table->count; i++) {
		if (strcmp(table->all[i].name, name) == 0)
			return table->all[i].sql;
	}
	return NULL;
}

const char *pg_dialect_sql(const struct pg_dialect *dialect, const struct pg_statement *statement)
{
	for (const struct pg_statements *const *table = dialect->tables; *table; table++) {
		const char *sql = find_in(*table, statement->name);

		if (sql)
			return sql;
	}
	return statement->sql;
}
