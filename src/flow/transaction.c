/*
 * The order of the steps keeps a request that is repeated with its Idempotency-Key from being
 * applied twice: see flow/keyed_writes.c. The first step records how the effects of earlier batches
 * ended, under the Idempotency-Keys of their writes. So if a write of this batch repeats one of
 * these Idempotency-Keys, it finds the answer.
 */
#include "flow/transaction.h"

#include "base/failpoint.h"
#include "flow/keyed_writes.h"

enum transaction_mode transaction_plan(
	const struct committer_config *config, const struct write_batch *batch)
{
	if (batch->mode != TRANSACTION_WAIT || batch->ended || !config->is_single ||
		!config->session->store->single_saves_a_trip)
		return batch->mode;
	for (size_t i = 0; i < batch->count; i++) {
		const struct write *write = batch->writes[i];

		if (write->idempotency || write->decide || write->was_unapplied)
			return batch->mode;
	}
	return config->is_single(config->service, batch) ? TRANSACTION_SINGLE : batch->mode;
}

/*
 * First calls decide() of each write that has a decide() of its own. Then the service's decide()
 * decides the other writes and also records the effects of earlier batches. If there are no other
 * writes, the service's settle() records these effects.
 */
static enum status decide_open(
	const struct committer_config *config, const struct write_batch *batch)
{
	struct session *session = config->session;
	struct write_batch open = *batch;
	enum status status = STATUS_OK;

	open.writes = arena_array(batch->arena, struct write *, batch->count);
	open.count = 0;
	for (size_t i = 0; i < batch->count && status == STATUS_OK; i++) {
		struct write *write = batch->writes[i];

		if (write->fate == WRITE_OPEN && write->decide)
			status = write->decide(write, session, batch->arena);
		else if (write->fate == WRITE_OPEN)
			open.writes[open.count++] = write;
	}
	if (status == STATUS_OK && open.count > 0)
		status = config->decide(config->service, session, &open);
	else if (status == STATUS_OK && batch->ended)
		status = config->settle(config->service, session, batch->ended);
	return status;
}

/* With TRANSACTION_SINGLE, the database may have committed before the failpoint "commit.before" is
 * reached. */
static enum status commit(struct session *session)
{
	enum status status;

	FAILPOINT("commit.before");
	status = session->ops->commit(session);
	if (status == STATUS_OK)
		FAILPOINT("commit.after");
	return status;
}

static enum status run(const struct committer_config *config, const struct write_batch *batch)
{
	struct session *session = config->session;
	struct keyed_writes keyed = keyed_writes_of(batch);
	enum status status;

	status = session->ops->begin(session, batch->mode);
	if (status == STATUS_OK && batch->ended)
		status = keyed_writes_settle(session, batch->ended);
	if (status == STATUS_OK)
		status = keyed_writes_replay(&keyed, session, batch);
	if (status == STATUS_OK)
		status = decide_open(config, batch);
	if (status == STATUS_OK)
		status = keyed_writes_claim(&keyed, session, batch);
	if (status == STATUS_OK)
		status = keyed_writes_keep(&keyed, session, batch, config->idempotency_ttl_us);
	if (status == STATUS_OK && batch->ended)
		FAILPOINT("commit.combined");
	if (status == STATUS_OK)
		status = commit(session);
	return status;
}

enum status transaction_run(const struct committer_config *config, const struct write_batch *batch)
{
	enum status status = run(config, batch);

	/* If decide() failed in another session, this transaction is still open. */
	if (status != STATUS_OK)
		config->session->ops->rollback(config->session);
	return status;
}
