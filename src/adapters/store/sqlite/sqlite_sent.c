/* The ids of sent messages in SQLite. */
#include "adapters/store/sqlite/sqlite_repositories.h"

#include "adapters/store/sqlite/sqlite_internal.h"

static const char find_sql[] = "SELECT 1 FROM sent_messages WHERE message_id = ?1";

/* clang-format off */
static const char sweep_sql[] =
	"DELETE FROM sent_messages "
	"WHERE message_id IN ("
	"  SELECT message_id "
	"  FROM sent_messages "
	"  WHERE sent_at < ?1 LIMIT ?2)";
/* clang-format on */

static enum status find(const struct sent_repository *repository, struct session *base,
	struct sent_message *messages, size_t count)
{
	struct sqlite_query query = sqlite_query_open(sqlite_session_of(base), find_sql);

	for (size_t i = 0; i < count; i++) {
		sqlite_query_start(&query, SQLITE_VALUES(sqlite_text(messages[i].message_id)));
		messages[i].known = sqlite_query_next(&query);
	}
	return sqlite_query_close(&query);
}

static enum status sweep(const struct sent_repository *repository, struct session *base,
	int64_t age_us, size_t limit, size_t *deleted)
{
	return sqlite_sweep_age(base, sweep_sql, age_us, limit, deleted);
}

static const struct sent_repository_ops ops = {.find = find, .sweep = sweep};

const struct sent_repository sqlite_sent_repository = {.ops = &ops};
