/* Counts the undelivered messages in the file of a bus that no process is using. */
#include <stdio.h>

#include "adapters/bus/local/local_internal.h"

static const char pragmas[] = "PRAGMA query_only = ON;";

/* clang-format off */
static const char unread_sql[] =
	"SELECT c.name, g.name, m.subject "
	"FROM messages m "
	"JOIN channels c ON c.id = m.channel "
	"JOIN groups g ON g.channel = m.channel "
	"WHERE m.offset > g.position AND NOT EXISTS ("
	" SELECT 1 FROM acknowledged a WHERE a.group_id = g.id AND a.offset = m.offset)";

static const char unclaimed_sql[] =
	"SELECT count(*) "
	"FROM messages m "
	"JOIN channels c ON c.id = m.channel "
	"WHERE c.name NOT LIKE '%.dlq' AND NOT EXISTS ("
	" SELECT 1 FROM groups g WHERE g.channel = m.channel)";
/* clang-format on */

/* Returns true if the group in this row wants the message in this row. */
static bool is_wanted(sqlite3_stmt *row, const struct bus_channel *channels, size_t count)
{
	struct slice name = slice_of((const char *)sqlite3_column_text(row, 0));
	const char *group = (const char *)sqlite3_column_text(row, 1);
	const struct bus_channel *channel = bus_channel_find(channels, count, name);
	const char *subjects = channel ? bus_group_subjects(channel, group) : NULL;
	const void *subject = sqlite3_column_blob(row, 2);

	return !subjects ||
	       bus_subjects_have(subjects,
		       slice_make(subject ? subject : "", (size_t)sqlite3_column_bytes(row, 2)));
}

static int count_waiting(struct sqlite_connection *connection, const struct bus_channel *channels,
	size_t channel_count, int64_t *waiting)
{
	sqlite3_stmt *stmt;
	int rc = sqlite_connection_statement(connection, unread_sql, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		*waiting += is_wanted(stmt, channels, channel_count);
	sqlite3_reset(stmt);
	if (rc != SQLITE_DONE)
		return rc;
	rc = sqlite_connection_statement(connection, unclaimed_sql, &stmt);
	if (rc != SQLITE_OK)
		return rc;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*waiting += sqlite3_column_int64(stmt, 0);
	sqlite3_reset(stmt);
	return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

bool local_bus_waiting(const char *path, const struct bus_channel *channels, size_t channel_count,
	int64_t *waiting, char *why, size_t size)
{
	struct sqlite_connection connection = {0};
	char words[SQLITE_WORDS_SIZE];
	int rc = sqlite_connection_open(&connection, path, SQLITE_OPEN_READWRITE, pragmas);

	*waiting = 0;
	if (rc == SQLITE_OK)
		rc = count_waiting(&connection, channels, channel_count, waiting);
	if (rc != SQLITE_OK) {
		sqlite_connection_explain(&connection, rc, words);
		snprintf(why, size, "%s cannot be read: %s", path, words);
	}
	if (connection.db)
		sqlite_connection_checkpoint_on_close(&connection); /* deletes the -wal file */
	sqlite_connection_close(&connection);
	return rc == SQLITE_OK;
}
