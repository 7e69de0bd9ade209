/* Records operators' actions in SQLite, and lists them. */
#include "adapters/store/sqlite/sqlite_internal.h"

/* clang-format off */
static const char record_sql[] =
	"INSERT INTO operator_actions (at, who, action, target, detail) "
	"VALUES (?1, ?2, ?3, ?4, ?5)";

static const char list_sql[] =
	"SELECT id, at, who, action, target, detail FROM operator_actions "
	"WHERE (at, id) < (?1, ?2) ORDER BY at DESC, id DESC LIMIT ?3";
/* clang-format on */

enum status sqlite_record_action(
	struct sqlite_session *session, const struct operator_record *record)
{
	struct sqlite_query query = sqlite_query_open(session, record_sql);

	sqlite_query_change_one(
		&query, SQLITE_VALUES(sqlite_int(sqlite_now_us(session)), sqlite_text(record->who),
				sqlite_text(record->action), sqlite_text(record->target),
				sqlite_text(record->detail)));
	return sqlite_query_close(&query);
}

static struct operator_record record_of(const struct sqlite_query *query, struct arena *arena)
{
	return (struct operator_record){
		.id = sqlite_query_int(query, 0),
		.at_us = sqlite_query_int(query, 1),
		.who = sqlite_query_keep(query, arena, 2),
		.action = sqlite_query_keep(query, arena, 3),
		.target = sqlite_query_keep(query, arena, 4),
		.detail = sqlite_query_keep(query, arena, 5),
	};
}

enum status sqlite_list_actions(struct session *base, struct arena *arena, struct row_page *page,
	struct operator_record *records)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);
	struct sqlite_query query;

	if (status != STATUS_OK)
		return status;
	page->count = 0;
	page->now_us = sqlite_now_us(session);
	query = sqlite_query_open(session, list_sql);
	sqlite_query_start(
		&query, SQLITE_VALUES(sqlite_int(page->after_number), sqlite_int(page->after_minor),
				sqlite_int((int64_t)page->limit)));
	while (sqlite_query_next(&query))
		records[page->count++] = record_of(&query, arena);
	status = sqlite_query_close(&query);
	return status == STATUS_OK ? sqlite_snapshot_end(session) : status;
}
