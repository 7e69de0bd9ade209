/* Translates PostgreSQL's error codes (SQLSTATE) into the status of a batch. */
#include "adapters/store/postgres/postgres_internal.h"

static bool state_is(const char *state, const char *const *wanted)
{
	for (; *wanted; wanted++) {
		if (strncmp(state, *wanted, strlen(*wanted)) == 0)
			return true;
	}
	return false;
}

bool pg_is_farewell(const char *state, const PGresult *result)
{
	static const char *const farewells[] = {
		"57P01", "57P02", "57P03", "57P05", "08", "25P03", NULL};
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

	return state_is(state, farewells) && (!severity || strcmp(severity, "ERROR") != 0);
}

bool pg_is_lost_link(const char *state)
{
	static const char *const lost[] = {"08", NULL};

	return state_is(state, lost);
}

enum status pg_status_of_state(const char *state)
{
	/* The batch may succeed if it runs again: a deadlock, a serialization failure, or a
	 * prepared statement that a connection pooler has lost. */
	static const char *const by_chance[] = {"40P01", "40001", "26000", NULL};
	static const char *const locked[] = {"55P03", NULL};
	/*
	 * The batch is fine, but the server cannot run it now. Possible reasons: an operator
	 * cancelled it; a resource ran out; a file cannot be written; the server is a read-only
	 * standby; a node of the cluster is down; an internal error occurred; or the database, a
	 * table, a privilege or a login is missing.
	 */
	static const char *const unavailable[] = {
		"57", "53", "58", "25006", "3D", "42P01", "42501", "28", "XX", "08", NULL};

	if (state_is(state, by_chance))
		return STATUS_RERUN;
	if (state_is(state, locked))
		return STATUS_LOCK_BUSY;
	if (state_is(state, unavailable))
		return STATUS_STORE_UNAVAILABLE;
	return STATUS_POISON;
}
