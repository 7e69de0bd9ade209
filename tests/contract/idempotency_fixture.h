/* Answers remembered under an Idempotency-Key, for the suites of ports/store.h. */
#ifndef QUIPU_CONTRACT_IDEMPOTENCY_FIXTURE_H
#define QUIPU_CONTRACT_IDEMPOTENCY_FIXTURE_H

#include "engine.h"

#define HOUR_US (3600LL * 1000000)

/* A 201 under this key; nobody else uses the scope. */
struct idempotency_record idempotency_fixture_record(
	struct engine *engine, const char *scope, const char *key);

/* What somebody who asks knows: everything but the answer. */
struct idempotency_record idempotency_fixture_question(const struct idempotency_record *record);

/* In a transaction, for an hour. */
enum status idempotency_fixture_put(
	struct session *session, const struct idempotency_record *records, size_t count);

void idempotency_fixture_put_and_commit(
	struct session *session, const struct idempotency_record *record);

/* The question with what the session finds, outside a transaction. */
struct idempotency_record idempotency_fixture_look_up(
	struct engine *engine, struct session *session, const struct idempotency_record *record);

bool idempotency_fixture_is_known(struct engine *engine, const struct idempotency_record *record);

#endif
