#include "idempotency_fixture.h"

struct idempotency_record idempotency_fixture_record(
	struct engine *engine, const char *scope, const char *key)
{
	struct idempotency_record record = {
		.scope = engine_name(engine, scope),
		.key = slice_of(key),
	};
	struct answer answer = {.http_status = 201, .content_type = SLICE("application/json")};

	answer.location = slice_of("/api/v1/internal/counts/a");
	answer.body = slice_of("{\"itemId\":\"a\",\"value\":1}");
	record.answer = answer;
	memset(record.fingerprint, 7, sizeof(record.fingerprint));
	return record;
}

/* What somebody who asks knows: everything but the answer. */
struct idempotency_record idempotency_fixture_question(const struct idempotency_record *record)
{
	struct idempotency_record question = *record;

	question.answer = (struct answer){0};
	return question;
}

enum status idempotency_fixture_put(
	struct session *session, const struct idempotency_record *records, size_t count)
{
	return session->ops->idempotency_put(session, records, count, HOUR_US);
}

void idempotency_fixture_put_and_commit(
	struct session *session, const struct idempotency_record *record)
{
	engine_begin(session);
	assert_int_equal(idempotency_fixture_put(session, record, 1), STATUS_OK);
	engine_commit(session);
}

struct idempotency_record idempotency_fixture_look_up(
	struct engine *engine, struct session *session, const struct idempotency_record *record)
{
	struct idempotency_record question = idempotency_fixture_question(record);

	engine_begin(session);
	assert_int_equal(
		session->ops->idempotency_find(session, &engine->arena, &question, 1), STATUS_OK);
	session->ops->rollback(session);
	return question;
}

bool idempotency_fixture_is_known(struct engine *engine, const struct idempotency_record *record)
{
	return idempotency_fixture_look_up(engine, engine->session, record).found;
}
