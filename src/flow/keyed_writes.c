/*
 * The order of the steps in a transaction keeps a repeated request from being applied twice: its
 * Idempotency-Key is looked up before anything is decided, and the COMMIT that applies the change
 * also stores the answer under the Idempotency-Key. Records go to the store sorted by scope and
 * key, so that two processes lock them in the same order.
 */
#include "flow/keyed_writes.h"

#include <stdlib.h>

#include "base/uuid.h"

/* ---- the first transaction ---------------------------------------------------------------- */

static int compare_idempotency(const struct write *a, const struct write *b)
{
	int order = slice_compare(a->idempotency->scope, b->idempotency->scope);

	return order ? order : slice_compare(a->idempotency->key, b->idempotency->key);
}

static int compare_writes(const void *a, const void *b)
{
	const struct write *left = *(struct write *const *)a;
	const struct write *right = *(struct write *const *)b;
	int order = compare_idempotency(left, right);

	if (order != 0)
		return order;
	return (left->position > right->position) - (left->position < right->position);
}

static size_t collect_keyed(const struct write_batch *batch, struct write **keyed)
{
	size_t count = 0, kept = 0;

	for (size_t i = 0; i < batch->count; i++) {
		if (batch->writes[i]->idempotency)
			keyed[count++] = batch->writes[i];
	}
	qsort(keyed, count, sizeof(*keyed), compare_writes);
	for (size_t i = 0; i < count; i++) {
		if (kept > 0 && compare_idempotency(keyed[kept - 1], keyed[i]) == 0)
			keyed[i]->fate = WRITE_REPEATED;
		else
			keyed[kept++] = keyed[i];
	}
	return kept;
}

struct keyed_writes keyed_writes_of(const struct write_batch *batch)
{
	struct keyed_writes keyed = {
		.fresh = arena_array(batch->arena, struct write *, batch->count),
		.resumed = arena_array(batch->arena, struct write *, batch->count),
	};

	keyed.fresh_count = collect_keyed(batch, keyed.fresh);
	return keyed;
}

static struct answer copy_answer(struct arena *arena, const struct answer *from)
{
	return (struct answer){
		.http_status = from->http_status,
		.content_type = arena_copy(arena, from->content_type),
		.location = arena_copy(arena, from->location),
		.body = arena_copy(arena, from->body),
		.replayed = true,
	};
}

/* Assigns a new, unique owner to the pending Idempotency-Key of `write`. */
static void become_owner(struct write *write)
{
	char *owner = arena_alloc(write->command.arena, UUID_SIZE);

	uuid_random(owner);
	write->idempotency->owner = slice_of(owner);
}

/* Handles a write whose Idempotency-Key is stored already: sets its fate or, if the key is pending
 * and the lease is over, marks the write as `resumed`. */
static void replay(struct write *write, const struct idempotency_record *found)
{
	struct arena *arena = write->command.arena;

	if (!found->same_request) {
		write_answer(write,
			answer_problem(arena, STATUS_IDEMPOTENCY_KEY_CONFLICT,
				"this Idempotency-Key was used for another request; nothing was "
				"changed, use a new key"));
	} else if (found->owner.len == 0) {
		write_answer(write, copy_answer(arena, &found->answer));
	} else if (!found->lease_is_over) {
		write->fate = WRITE_BUSY;
		write->waits_for_idempotency = true;
	} else {
		write->command.answer = copy_answer(arena, &found->answer);
		write->command.answer.replayed = false;
		write->idempotency->note = arena_copy(arena, found->note);
		/* the write stays OPEN: decide() checks whether its row has changed since the
		 * earlier attempt */
		write->resumed = true;
	}
}

enum status keyed_writes_replay(
	struct keyed_writes *keyed, struct session *session, const struct write_batch *batch)
{
	size_t count = keyed->fresh_count;
	struct idempotency_record *records;
	enum status status;

	if (count == 0)
		return STATUS_OK;
	records = arena_array(batch->arena, struct idempotency_record, count);
	for (size_t i = 0; i < count; i++)
		records[i] = *keyed->fresh[i]->idempotency;
	status = session->ops->idempotency_find(session, batch->arena, records, count);
	if (status != STATUS_OK)
		return status;
	keyed->fresh_count = 0;
	for (size_t i = 0; i < count; i++) {
		struct write *write = keyed->fresh[i];

		if (records[i].found)
			replay(write, &records[i]);
		if (!records[i].found)
			keyed->fresh[keyed->fresh_count++] = write;
		else if (write->resumed)
			keyed->resumed[keyed->resumed_count++] = write;
	}
	return STATUS_OK;
}

enum status keyed_writes_claim(
	const struct keyed_writes *keyed, struct session *session, const struct write_batch *batch)
{
	struct idempotency_record *records =
		arena_array(batch->arena, struct idempotency_record, keyed->resumed_count);
	size_t claimed = 0;
	enum status status;

	for (size_t i = 0; i < keyed->resumed_count; i++) {
		struct write *write = keyed->resumed[i];

		if (write->fate != WRITE_EFFECT)
			continue;
		become_owner(write);
		records[claimed] = *write->idempotency;
		records[claimed++].answer = write->command.answer;
	}
	if (claimed == 0)
		return STATUS_OK;
	status = session->ops->idempotency_claim(session, records, claimed);
	for (size_t i = 0; i < claimed && status == STATUS_OK; i++) {
		if (!records[i].was_ours) {
			session->ops->rollback(session);
			status = STATUS_RERUN;
		}
	}
	return status;
}

enum status keyed_writes_keep(const struct keyed_writes *keyed, struct session *session,
	const struct write_batch *batch, int64_t ttl_us)
{
	struct idempotency_record *records =
		arena_array(batch->arena, struct idempotency_record, keyed->fresh_count);
	size_t kept = 0;

	for (size_t i = 0; i < keyed->fresh_count; i++) {
		struct write *write = keyed->fresh[i];

		if ((write->fate != WRITE_ANSWERED && write->fate != WRITE_EFFECT) ||
			!write_answer_is_kept(&write->command.answer))
			continue;
		if (write->fate == WRITE_EFFECT)
			become_owner(write);
		else
			write->idempotency->owner = slice_make(NULL, 0);
		records[kept] = *write->idempotency;
		records[kept++].answer = write->command.answer;
	}
	if (kept == 0)
		return STATUS_OK;
	return session->ops->idempotency_put(session, records, kept, ttl_us);
}

/* ---- the second transaction ---------------------------------------------------------------- */

typedef enum status (*idempotency_verb)(
	struct session *session, struct idempotency_record *records, size_t count);

/* Calls `verb` for the Idempotency-Keys of the writes whose result is `effect`. Sets `is_lost` of
 * the writes that no longer own their key. */
static enum status end_idempotency(struct session *session, const struct write_batch *batch,
	enum write_effect effect, idempotency_verb verb)
{
	struct write **keyed = arena_array(batch->arena, struct write *, batch->count);
	struct idempotency_record *records =
		arena_array(batch->arena, struct idempotency_record, batch->count);
	size_t count = 0;
	enum status status;

	for (size_t i = 0; i < batch->count; i++) {
		if (batch->writes[i]->idempotency && batch->writes[i]->effect == effect)
			keyed[count++] = batch->writes[i];
	}
	if (count == 0)
		return STATUS_OK;
	qsort(keyed, count, sizeof(*keyed), compare_writes);
	for (size_t i = 0; i < count; i++)
		records[i] = *keyed[i]->idempotency;
	status = verb(session, records, count);
	for (size_t i = 0; i < count && status == STATUS_OK; i++)
		keyed[i]->is_lost = !records[i].was_ours;
	return status;
}

enum status keyed_writes_settle(struct session *session, const struct write_batch *batch)
{
	const struct session_ops *ops = session->ops;
	enum status status = end_idempotency(session, batch, EFFECT_DONE, ops->idempotency_finish);

	if (status == STATUS_OK)
		status = end_idempotency(session, batch, EFFECT_FAILED, ops->idempotency_forget);
	if (status == STATUS_OK)
		status = end_idempotency(session, batch, EFFECT_UNKNOWN, ops->idempotency_release);
	return status;
}
