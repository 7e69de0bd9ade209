/*
 * Contains the tables and the SQL of the local bus. The offset of a message is the id of its row
 * and is never reused. Messages are looked up by offset, or by channel and offset through the index
 * messages_by_channel.
 *
 * A group's progress consists of a position, up to which every message is acknowledged or skipped,
 * and of a row for each later offset that is already acknowledged. Therefore a restart does not
 * lose the acknowledgements of messages that come after an unacknowledged one.
 */
#include <stdio.h>

#include "adapters/bus/local/local_internal.h"

#define SCHEMA_VERSION 1
#define KEEP_US (7LL * 24 * 3600 * 1000000)

static const char schema_sql[] =
	"BEGIN IMMEDIATE;"
	"CREATE TABLE channels (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;"
	"CREATE TABLE messages (offset INTEGER PRIMARY KEY AUTOINCREMENT,"
	" channel INTEGER NOT NULL REFERENCES channels, published_at INTEGER NOT NULL,"
	" subject BLOB NOT NULL, key BLOB NOT NULL, id BLOB NOT NULL, headers BLOB NOT NULL,"
	" value BLOB NOT NULL) STRICT;"
	"CREATE INDEX messages_by_channel ON messages (channel, offset);"
	"CREATE TABLE groups (id INTEGER PRIMARY KEY, channel INTEGER NOT NULL REFERENCES channels,"
	" name TEXT NOT NULL, position INTEGER NOT NULL, UNIQUE (channel, name)) STRICT;"
	"CREATE TABLE acknowledged (group_id INTEGER NOT NULL REFERENCES groups,"
	" offset INTEGER NOT NULL, PRIMARY KEY (group_id, offset)) STRICT, WITHOUT ROWID;"
	"PRAGMA user_version = 1;"
	"COMMIT";

static const char version_sql[] = "PRAGMA user_version";
static const char channel_add_sql[] = "INSERT OR IGNORE INTO channels (name) VALUES (?1)";
static const char channel_id_sql[] = "SELECT id FROM channels WHERE name = ?1";

static const char add_sql[] =
	"INSERT INTO messages (channel, published_at, subject, key, id, headers, value) "
	"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
static const char read_sql[] =
	"SELECT subject, key, id, headers, value FROM messages WHERE offset = ?1";
static const char scan_sql[] =
	"SELECT offset, key, subject FROM messages m WHERE channel = ?1 AND offset > ?2 "
	"AND NOT EXISTS (SELECT 1 FROM acknowledged WHERE group_id = ?3 AND offset = m.offset) "
	"ORDER BY offset LIMIT ?4";

static const char join_sql[] =
	"INSERT OR IGNORE INTO groups (channel, name, position) VALUES (?1, ?2, 0)";
static const char group_sql[] = "SELECT id, position FROM groups WHERE channel = ?1 AND name = ?2";
static const char move_sql[] = "UPDATE groups SET position = max(position, ?2) WHERE id = ?1";
static const char forget_sql[] = "DELETE FROM acknowledged WHERE group_id = ?1 AND offset <= ?2";
static const char mark_sql[] =
	"INSERT OR IGNORE INTO acknowledged (group_id, offset) VALUES (?1, ?2)";

/* In a channel without groups, min() is NULL and the comparison is never true, so nothing is
 * deleted. */
static const char trim_sql[] =
	"DELETE FROM messages WHERE offset IN (SELECT offset FROM messages WHERE channel = ?1 "
	"AND offset <= (SELECT min(position) FROM groups WHERE channel = ?1) "
	"ORDER BY offset LIMIT ?2)";
static const char expire_sql[] =
	"DELETE FROM messages WHERE offset IN (SELECT offset FROM messages WHERE channel = ?1 "
	"AND NOT EXISTS (SELECT 1 FROM groups WHERE channel = ?1) ORDER BY offset LIMIT ?2) "
	"AND published_at < ?3";

/* ---- schema and channels ----------------------------------------------------------------- */

/* Sets `*number` to the first column of the first row, or to 0 if there is no row. */
static int read_number(sqlite3_stmt *stmt, int64_t *number)
{
	int rc = sqlite3_step(stmt);

	*number = rc == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int schema_version(struct local_file *file, int64_t *version)
{
	sqlite3_stmt *stmt;
	int rc = sqlite_connection_statement(&file->connection, version_sql, &stmt);

	return rc == SQLITE_OK ? read_number(stmt, version) : rc;
}

static int find_channel(struct local_file *file, struct local_channel *channel)
{
	sqlite3_stmt *add;
	sqlite3_stmt *find;
	int rc = sqlite_connection_statement(&file->connection, channel_add_sql, &add);

	if (rc == SQLITE_OK)
		rc = sqlite_connection_statement(&file->connection, channel_id_sql, &find);
	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_text(add, 1, channel->name, -1, SQLITE_STATIC);
	sqlite3_bind_text(find, 1, channel->name, -1, SQLITE_STATIC);
	rc = sqlite_statement_finish(add);
	return rc == SQLITE_OK ? read_number(find, &channel->id) : rc;
}

static int prepare(struct local_bus *bus, int64_t *version)
{
	struct local_file *file = &bus->file;
	int rc = schema_version(file, version);

	if (rc == SQLITE_OK && *version == 0)
		rc = sqlite3_exec(file->connection.db, schema_sql, NULL, NULL, NULL);
	if (*version > SCHEMA_VERSION)
		return rc;
	for (size_t i = 0; i < bus->channel_count && rc == SQLITE_OK; i++)
		rc = find_channel(file, &bus->channels[i]);
	return rc;
}

bool local_messages_prepare(struct local_bus *bus, char *why, size_t size)
{
	int64_t version = 0;
	int rc = prepare(bus, &version);
	char words[SQLITE_WORDS_SIZE];

	if (rc == SQLITE_OK && version > SCHEMA_VERSION) {
		snprintf(why, size, "%s was written by a newer quipu", bus->file.path);
		return false;
	}
	if (rc == SQLITE_OK)
		return true;
	sqlite_connection_explain(&bus->file.connection, rc, words);
	snprintf(why, size, "the tables of %s cannot be created: %s", bus->file.path, words);
	return false;
}

/* ---- headers: each is stored as the length and bytes of its name, then of its value -------- */

static void pack(struct buffer *out, struct slice bytes)
{
	uint32_t len = (uint32_t)bytes.len;

	buffer_bytes(out, &len, sizeof(len));
	buffer_add(out, bytes);
}

static struct slice pack_headers(struct arena *arena, const struct bus_message *message)
{
	struct buffer out = buffer_make(arena, 256);

	for (size_t i = 0; i < message->header_count; i++) {
		pack(&out, message->headers[i].name);
		pack(&out, message->headers[i].value);
	}
	return buffer_slice(&out);
}

static bool unpack(struct slice *rest, struct slice *bytes)
{
	uint32_t len;

	if (rest->len < sizeof(len))
		return false;
	memcpy(&len, rest->data, sizeof(len));
	if (rest->len - sizeof(len) < len)
		return false;
	*bytes = slice_make(rest->data + sizeof(len), len);
	*rest = slice_make(bytes->data + len, rest->len - sizeof(len) - len);
	return true;
}

static void unpack_headers(struct slice packed, struct bus_delivery *delivery)
{
	struct bus_header header;

	delivery->header_count = 0;
	while (delivery->header_count < BUS_HEADERS_MAX && unpack(&packed, &header.name) &&
		unpack(&packed, &header.value))
		delivery->headers[delivery->header_count++] = header;
}

/* ---- messages ---------------------------------------------------------------------------- */

/* If the slice is empty, binds an empty string, because the slice's data may then be a null
 * pointer, which SQLite would store as NULL. */
static void bind_blob(sqlite3_stmt *stmt, int index, struct slice bytes)
{
	sqlite3_bind_blob64(stmt, index, bytes.len ? bytes.data : "", bytes.len, SQLITE_STATIC);
}

int local_messages_add(struct local_bus *bus, const struct local_channel *channel,
	const struct bus_message *message)
{
	sqlite3_stmt *stmt;
	int rc = sqlite_connection_statement(&bus->file.connection, add_sql, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, channel->id);
	sqlite3_bind_int64(stmt, 2, clock_wall_us(&clock_system));
	bind_blob(stmt, 3, message->subject);
	bind_blob(stmt, 4, message->key);
	bind_blob(stmt, 5, message->id);
	bind_blob(stmt, 6, pack_headers(&bus->scratch, message));
	bind_blob(stmt, 7, message->value);
	return sqlite_statement_finish(stmt);
}

static struct slice column(sqlite3_stmt *stmt, int index)
{
	const void *data = sqlite3_column_blob(stmt, index);

	return slice_make(data, (size_t)sqlite3_column_bytes(stmt, index));
}

int local_messages_read(
	struct local_bus *bus, int64_t offset, struct arena *arena, struct bus_delivery *delivery)
{
	sqlite3_stmt *stmt;
	int rc = sqlite_connection_statement(&bus->file.connection, read_sql, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, offset);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		delivery->subject = arena_copy(arena, column(stmt, 0));
		delivery->key = arena_copy(arena, column(stmt, 1));
		delivery->id = arena_copy(arena, column(stmt, 2));
		unpack_headers(arena_copy(arena, column(stmt, 3)), delivery);
		delivery->value = arena_copy(arena, column(stmt, 4));
	}
	sqlite3_reset(stmt);
	return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

/* Appends the message in the current row to the group's window, or skips it if the group does not
 * want it. The caller holds the lock. */
static void append_or_skip(struct local_group *group, sqlite3_stmt *stmt)
{
	int64_t offset = sqlite3_column_int64(stmt, 0);

	if (bus_subjects_have(group->subjects, column(stmt, 2)))
		local_group_append(group, offset, column(stmt, 1));
	else
		local_group_skip(group, offset);
}

int local_messages_scan(
	struct local_bus *bus, struct local_group *group, size_t limit, size_t *found)
{
	sqlite3_stmt *stmt;
	int rc = sqlite_connection_statement(&bus->file.connection, scan_sql, &stmt);

	*found = 0;
	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, group->channel->id);
	sqlite3_bind_int64(stmt, 2, group->head);
	sqlite3_bind_int64(stmt, 3, group->id);
	sqlite3_bind_int64(stmt, 4, (int64_t)limit);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		pthread_mutex_lock(&bus->lock);
		append_or_skip(group, stmt);
		pthread_mutex_unlock(&bus->lock);
		++*found;
	}
	sqlite3_reset(stmt);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* ---- groups ------------------------------------------------------------------------------ */

static int read_group(struct local_bus *bus, struct local_group *group)
{
	sqlite3_stmt *stmt;
	int rc = sqlite_connection_statement(&bus->file.connection, group_sql, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, group->channel->id);
	sqlite3_bind_text(stmt, 2, group->name, -1, SQLITE_STATIC);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW && group->id == 0) {
		pthread_mutex_lock(&bus->lock);
		group->id = sqlite3_column_int64(stmt, 0);
		group->head = sqlite3_column_int64(stmt, 1);
		pthread_mutex_unlock(&bus->lock);
	}
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

int local_messages_join(struct local_bus *bus, struct local_group *group)
{
	sqlite3_stmt *stmt;
	int rc = sqlite_connection_statement(&bus->file.connection, join_sql, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, group->channel->id);
	sqlite3_bind_text(stmt, 2, group->name, -1, SQLITE_STATIC);
	rc = sqlite_statement_finish(stmt);
	return rc == SQLITE_OK ? read_group(bus, group) : rc;
}

static int run_with(struct local_bus *bus, const char *sql, int64_t first, int64_t second)
{
	sqlite3_stmt *stmt;
	int rc = sqlite_connection_statement(&bus->file.connection, sql, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, first);
	sqlite3_bind_int64(stmt, 2, second);
	return sqlite_statement_finish(stmt);
}

int local_messages_move(struct local_bus *bus, const struct local_group *group, int64_t position)
{
	int rc = run_with(bus, move_sql, group->id, position);

	return rc == SQLITE_OK ? run_with(bus, forget_sql, group->id, position) : rc;
}

int local_messages_mark(struct local_bus *bus, const struct local_group *group, int64_t offset)
{
	return run_with(bus, mark_sql, group->id, offset);
}

/* ---- retention --------------------------------------------------------------------------- */

int local_messages_trim(struct local_bus *bus, const struct local_channel *channel, int *deleted)
{
	int rc = run_with(bus, trim_sql, channel->id, LOCAL_TRIM_CHUNK);

	*deleted = rc == SQLITE_OK ? sqlite3_changes(bus->file.connection.db) : 0;
	return rc;
}

static int expire_channel(struct local_bus *bus, const struct local_channel *channel, int *deleted)
{
	sqlite3_stmt *stmt;
	int rc = sqlite_connection_statement(&bus->file.connection, expire_sql, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_int64(stmt, 1, channel->id);
	sqlite3_bind_int64(stmt, 2, LOCAL_TRIM_CHUNK);
	sqlite3_bind_int64(stmt, 3, clock_wall_us(&clock_system) - KEEP_US);
	rc = sqlite_statement_finish(stmt);
	if (rc == SQLITE_OK)
		*deleted += sqlite3_changes(bus->file.connection.db);
	return rc;
}

int local_messages_expire(struct local_bus *bus, int *deleted)
{
	int rc = SQLITE_OK;

	*deleted = 0;
	for (size_t i = 0; i < bus->channel_count && rc == SQLITE_OK; i++)
		rc = expire_channel(bus, &bus->channels[i], deleted);
	return rc;
}
