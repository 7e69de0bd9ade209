/* The ids of sent messages in PostgreSQL. */
#include "adapters/store/postgres/postgres_repositories.h"

#include "adapters/store/postgres/postgres_internal.h"

/* clang-format off */
static const struct pg_statement find_statement = {
	"quipu_sent_find",
	"SELECT w.n "
	"FROM unnest($1::text[]) WITH ORDINALITY AS w(message_id, n) "
	"JOIN sent_messages s ON s.message_id = w.message_id",
};

static const struct pg_statement sweep_statement = {
	"quipu_sent_sweep",
	"DELETE FROM sent_messages "
	"WHERE message_id IN ("
	"  SELECT message_id "
	"  FROM sent_messages "
	"  WHERE sent_at < (SELECT quipu_now()) - $1::int8 * interval '1 microsecond' "
	"  ORDER BY message_id LIMIT $2::int8 FOR UPDATE SKIP LOCKED) "
	"RETURNING 1",
};
/* clang-format on */

static enum status find(const struct sent_repository *repository, struct session *base,
	struct sent_message *messages, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param ids =
		pg_param_ids(session, &messages->message_id, sizeof(*messages), count);
	enum status status = pg_run(session, &find_statement, &ids, 1);

	if (status != STATUS_OK)
		return status;
	pg_flag_places(session->results[0], &messages->known, sizeof(*messages), count);
	return STATUS_OK;
}

static enum status sweep(const struct sent_repository *repository, struct session *base,
	int64_t age_us, size_t limit, size_t *deleted)
{
	return pg_sweep(base, &sweep_statement, age_us, limit, deleted);
}

static const struct sent_repository_ops ops = {.find = find, .sweep = sweep};

const struct sent_repository postgres_sent_repository = {.ops = &ops};
