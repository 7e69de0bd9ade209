/*
 * Translates SQLite's result codes, and decides from them whether the store is up. Reads and writes
 * are tracked separately: on a full disk reads work and writes do not. Each change between working
 * and failing is logged once.
 */
#include "adapters/store/sqlite/sqlite_internal.h"
#include "base/log.h"

enum status sqlite_status(int rc)
{
	switch (sqlite_primary(rc)) {
	case SQLITE_FULL:
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN:
	case SQLITE_READONLY:
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_BUSY:
	case SQLITE_PERM:
	case SQLITE_NOMEM:
	case SQLITE_PROTOCOL:
		return STATUS_STORE_UNAVAILABLE;
	default:
		return STATUS_POISON;
	}
}

/*
 * COMMIT writes the pages to the WAL, marks the last page as the end of the transaction, and calls
 * fsync. If one of these steps fails, the transaction is not visible for now. But if the mark is in
 * the WAL, a recovery will find and apply the transaction. Even after SQLITE_FULL the WAL may
 * contain the mark: COMMIT may overwrite older frames of the WAL, and these frames may already
 * contain exactly the bytes that COMMIT could not write. Only SQLITE_BUSY and SQLITE_CONSTRAINT
 * prove that nothing was written, because SQLite returns them before the first write.
 */
enum status sqlite_commit_status(int rc)
{
	switch (sqlite_primary(rc)) {
	case SQLITE_BUSY:
		return STATUS_STORE_UNAVAILABLE;
	case SQLITE_CONSTRAINT:
		return STATUS_POISON;
	default:
		return STATUS_OUTCOME_UNKNOWN;
	}
}

static bool is_refusal_of_data(int rc)
{
	int primary = sqlite_primary(rc);

	return primary == SQLITE_CONSTRAINT || primary == SQLITE_MISMATCH ||
	       primary == SQLITE_TOOBIG;
}

void sqlite_store_failed(struct sqlite_store *store, enum session_kind kind, enum status status,
	int rc, const struct sqlite_connection *connection)
{
	int64_t now_ns = clock_steady_ns(store->clock);
	bool down = status == STATUS_STORE_UNAVAILABLE || status == STATUS_OUTCOME_UNKNOWN;
	char words[SQLITE_WORDS_SIZE];

	sqlite_connection_explain(connection, rc, words);
	if (down && atomic_exchange(&store->failed_at_ns[kind], now_ns ? now_ns : 1) == 0)
		log_line(LOG_ERROR, "store", "%s: SQLite cannot %s: %s (code %d)", store->base.name,
			kind == SESSION_WRITE ? "write" : "read", words, rc);
	if (status == STATUS_POISON && !is_refusal_of_data(rc))
		log_line(LOG_ERROR, "store", "%s: SQLite reported an error: %s (code %d)",
			store->base.name, words, rc);
}

void sqlite_store_worked(struct sqlite_store *store, enum session_kind kind)
{
	if (atomic_load_explicit(&store->failed_at_ns[kind], memory_order_relaxed) == 0 ||
		atomic_exchange(&store->failed_at_ns[kind], 0) == 0)
		return;
	log_line(LOG_INFO, "store", "%s: SQLite can %s again", store->base.name,
		kind == SESSION_WRITE ? "write" : "read");
}
