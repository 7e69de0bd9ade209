/* Records operators' actions in PostgreSQL, and lists them. */
#include "adapters/store/postgres/postgres_internal.h"

/* clang-format off */
static const struct pg_statement record_statement = {
	"quipu_actions_record",
	"INSERT INTO operator_actions (at, who, action, target, detail) "
	"VALUES (quipu_now(), $1::text, $2::text, $3::text, $4::text)",
};

static const struct pg_statement list_statement = {
	"quipu_actions_list",
	"SELECT id, " PG_TO_US("at") ", who, action, target, detail FROM operator_actions "
	"WHERE (at, id) < (" PG_FROM_US("$1::int8") ", $2::int8) "
	"ORDER BY at DESC, id DESC LIMIT $3::int8",
};
/* clang-format on */

enum status pg_record_action(struct pg_session *session, const struct operator_record *record)
{
	const struct pg_param params[] = {pg_param_text(record->who), pg_param_text(record->action),
		pg_param_text(record->target), pg_param_text(record->detail)};

	pg_need_two_phases(session);
	return pg_run(session, &record_statement, params, 4);
}

static struct operator_record record_of(const PGresult *result, int row, struct arena *arena)
{
	return (struct operator_record){
		.id = pg_int8(result, row, 0),
		.at_us = pg_int8(result, row, 1),
		.who = pg_keep(arena, result, row, 2),
		.action = pg_keep(arena, result, row, 3),
		.target = pg_keep(arena, result, row, 4),
		.detail = pg_keep(arena, result, row, 5),
	};
}

enum status pg_list_actions(struct session *base, struct arena *arena, struct row_page *page,
	struct operator_record *records)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[3] = {pg_param_int8(session, page->after_number),
		pg_param_int8(session, page->after_minor)};
	enum status status = pg_list_rows(session, &list_statement, params, 2, page);

	for (size_t i = 0; status == STATUS_OK && i < page->count; i++)
		records[i] = record_of(session->results[0], (int)i, arena);
	return status;
}
