#include "adapters/store/postgres/postgres_repositories.h"

#include <assert.h>

#include "adapters/store/postgres/postgres_internal.h"

static const struct pg_statement find_statement = {
	"quipu_sent_find",
	"SELECT w.n FROM unnest($1::text[]) WITH ORDINALITY AS w(message_id, n) "
	"JOIN sent_messages s ON s.message_id = w.message_id",
};

static const struct pg_statement put_statement = {
	"quipu_sent_put",
	"INSERT INTO sent_messages (message_id, sent_at) "
	"SELECT message_id, (SELECT quipu_now()) FROM unnest($1::text[]) AS w(message_id) "
	"ON CONFLICT (message_id) DO NOTHING",
};

static const struct pg_statement sweep_statement = {
	"quipu_sent_sweep",
	"DELETE FROM sent_messages WHERE message_id IN ("
	"SELECT message_id FROM sent_messages "
	"WHERE sent_at < (SELECT quipu_now()) - $1::int8 * interval '1 microsecond' "
	"ORDER BY message_id LIMIT $2::int8 FOR UPDATE SKIP LOCKED) RETURNING 1",
};

static struct pg_param id_param(struct pg_session *session, const struct sent_message *messages,
	size_t count, bool unknown_only)
{
	size_t wanted = 0;

	for (size_t i = 0; i < count; i++)
		wanted += !unknown_only || !messages[i].known;

	struct pg_array ids = pg_array_of(session, PG_OID_TEXT, wanted);

	for (size_t i = 0; i < count; i++) {
		if (!unknown_only || !messages[i].known)
			pg_array_text(&ids, messages[i].message_id);
	}
	return pg_param_array(&ids);
}

static enum status find(const struct sent_repository *repository, struct session *base,
	struct sent_message *messages, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param ids = id_param(session, messages, count, false);
	enum status status = pg_run(session, &find_statement, &ids, 1);

	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < count; i++)
		messages[i].known = false;
	for (int row = 0; row < PQntuples(session->results[0]); row++) {
		size_t n = (size_t)pg_int8(session->results[0], row, 0);

		assert(n >= 1 && n <= count);
		messages[n - 1].known = true;
	}
	return STATUS_OK;
}

static enum status put(const struct sent_repository *repository, struct session *base,
	const struct sent_message *messages, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param ids = id_param(session, messages, count, true);

	return pg_run(session, &put_statement, &ids, 1);
}

static enum status sweep(const struct sent_repository *repository, struct session *base,
	int64_t age_us, size_t limit, size_t *deleted)
{
	return pg_sweep(base, &sweep_statement, age_us, limit, deleted);
}

static const struct sent_repository_ops ops = {.find = find, .put = put, .sweep = sweep};

const struct sent_repository postgres_sent_repository = {.ops = &ops};
