/*
 * A database commits a batch of 500 changes nearly as fast as one change, so the aim is few, large
 * transactions that still give each write the answer it would have got alone.
 *
 * prepare() answers the writes of a batch that need no transaction. run() repeats or halves the
 * transaction until every write is settled. finish() delivers answers, parks writes and begins
 * effects. A write with an effect outside the store needs two transactions, one before and one
 * after the effect: a bus cannot join a transaction of the store, and publishing inside the first
 * one would hold its locks while the bus is slow. The committer does not wait for effects
 * (flow/effects.h): it runs the next batch, and records in the same transaction how they ended.
 *
 * Invariants:
 *   1. A write is answered exactly once, after the COMMIT that its answer depends on.
 *   2. A new write on a parked key is parked behind the earlier ones, so it overtakes none of them.
 *      Writes that are set aside stay in their order.
 *   3. A write with an Idempotency-Key takes effect at most once, unless the outcome of its effect
 *      outside the store is unknown; then a retry carries the effect out again.
 *   4. Effects of a key begin in the order in which they were decided.
 *   5. All state belongs to the committer's thread, except `aborted` and the metrics.
 */
#include "flow/committer.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/metrics.h"
#include "flow/keyed_writes.h"
#include "flow/parking.h"
#include "runtime/bell.h"
#include "runtime/loop.h"

#define RERUN_MAX 20
#define SETTLE_TRIES 3
#define BATCH_ARENA_SIZE (256 * 1024)

struct committer {
	struct committer_config config;
	struct parking *parking;
	struct arena arena;           /* of the current attempt */
	struct write **writes;        /* of the current batch */
	struct write **effects;       /* writes of the batch with the fate EFFECT */
	struct command_list answered; /* to be delivered */
	pthread_t thread;
	bool has_thread;
	atomic_bool aborted;
	struct bell aborting; /* ends the wait for parked commands; committer_abort() rings it */

	struct histogram batch_size;
	struct histogram duration;
	struct tally reruns;
	struct tally expired;
	struct tally poisoned;
};

struct committer *committer_new(const struct committer_config *config)
{
	struct committer *committer = qp_calloc(1, sizeof(*committer));

	assert(config->batch_max > 0);
	assert(config->waiting.tries_max == 0 || config->waiting.give_up);
	committer->config = *config;
	if (committer->config.waiting.retry_ns == 0)
		committer->config.waiting.retry_ns = WAITING_RETRY_NS;
	committer->parking = parking_new(committer->config.waiting.retry_ns);
	committer->writes = qp_calloc(config->batch_max, sizeof(*committer->writes));
	committer->effects = qp_calloc(config->batch_max, sizeof(*committer->effects));
	arena_init(&committer->arena, BATCH_ARENA_SIZE);
	bell_init(&committer->aborting);
	histogram_init(&committer->batch_size, &histogram_batch_size);
	histogram_init(&committer->duration, &histogram_duration_ns);
	return committer;
}

/* ---- one transaction --------------------------------------------------------------------- */

/* First the writes that have a decide() of their own use it; then the service decides the others.
 */
static enum status decide_open(struct committer *committer, const struct write_batch *batch)
{
	struct session *session = committer->config.session;
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
		status = committer->config.decide(committer->config.service, session, &open);
	return status;
}

/* A TRANSACTION_SINGLE may have committed before both failpoints. */
static enum status commit(struct session *session)
{
	enum status status;

	FAILPOINT("commit.before");
	status = session->ops->commit(session);
	if (status == STATUS_OK)
		FAILPOINT("commit.after");
	return status;
}

static enum status run_transaction(struct committer *committer, const struct write_batch *batch)
{
	struct session *session = committer->config.session;
	struct keyed_writes keyed = keyed_writes_of(batch);
	enum status status;

	status = session->ops->begin(session, batch->mode);
	if (status == STATUS_OK)
		status = keyed_writes_replay(&keyed, session, batch);
	if (status == STATUS_OK)
		status = decide_open(committer, batch);
	if (status == STATUS_OK)
		status = keyed_writes_claim(&keyed, session, batch);
	if (status == STATUS_OK)
		status = keyed_writes_keep(
			&keyed, session, batch, committer->config.idempotency_ttl_us);
	if (status == STATUS_OK)
		status = commit(session);
	return status;
}

/* ---- one batch --------------------------------------------------------------------------- */

static int64_t now_ns(const struct committer *committer)
{
	return clock_steady_ns(committer->config.clock);
}

static void answer_failed(struct committer *committer, struct write *write, enum status status)
{
	write->command.answer = answer_failure(write->command.arena, status);
	command_list_push(&committer->answered, &write->command);
}

static void fail_all(
	struct committer *committer, struct write **writes, size_t count, enum status status)
{
	for (size_t i = 0; i < count; i++)
		answer_failed(committer, writes[i], status);
}

static void park(struct committer *committer, struct write *write)
{
	if (parking_count(committer->parking) >= committer->config.parked_max)
		answer_failed(committer, write, STATUS_OVERLOADED);
	else
		parking_add(committer->parking, &write->command,
			write->waits_for_idempotency ? write->idempotency->key : write->command.key,
			now_ns(committer));
}

/* Parks a BUSY write for its next attempt, or answers it if it has no attempts left. */
static void wait_again(struct committer *committer, struct write *write)
{
	const struct waiting *waiting = &committer->config.waiting;

	write->tries++;
	if (waiting->tries_max == 0 || write->tries < waiting->tries_max) {
		park(committer, write);
/* Also records the effects of earlier batches, unless rows may be skipped. */
		return;
	}
	write->command.answer = waiting->give_up(write);
	command_list_push(&committer->answered, &write->command);
}

/* ---- effects ----------------------------------------------------------------------------- */

static enum status settle_once(struct committer *committer, struct write **writes, size_t count)
{
	struct session *session = committer->config.session;
	struct write_batch batch = {.writes = writes, .count = count, .arena = &committer->arena};
	enum status status;

	arena_reset(&committer->arena);
	status = session->ops->begin(session, TRANSACTION_WAIT);
	if (status == STATUS_OK)
		status = keyed_writes_settle(session, &batch);
	if (status == STATUS_OK)
		status = committer->config.settle(committer->config.service, session, &batch);
	if (status == STATUS_OK)
		status = session->ops->commit(session);
	return status;
}

static void deliver_effects(
	struct committer *committer, struct write **writes, size_t count, bool settled)
{
	for (size_t i = 0; i < count; i++) {
		struct command *command = &writes[i]->command;

		if (writes[i]->is_lost || (!settled && writes[i]->effect == EFFECT_DONE))
			command->answer = answer_failure(command->arena, STATUS_OUTCOME_UNKNOWN);
		command_list_push(&committer->answered, command);
	}
	command_list_deliver(&committer->answered);
}

/* Only a transaction that certainly changed nothing may run again: it must not count twice. */
static bool may_settle_again(enum status status)
{
	return status == STATUS_RERUN || status == STATUS_LOCK_BUSY ||
	       status == STATUS_STORE_UNAVAILABLE;
}

/* A batch that cannot be settled is halved until a bad row fails alone. */
static void settle_effects(struct committer *committer, struct write **writes, size_t count)
{
	enum status status = STATUS_RERUN;

	for (int i = 0; i < SETTLE_TRIES && may_settle_again(status); i++)
		status = settle_once(committer, writes, count);
	if (count > 1 && (status == STATUS_LOCK_BUSY || status == STATUS_POISON)) {
		settle_effects(committer, writes, count / 2);
		settle_effects(committer, writes + count / 2, count - count / 2);
		return;
	}
	deliver_effects(committer, writes, count, status == STATUS_OK);
}

static void carry_out(struct committer *committer, struct write **writes, size_t count)
{
	struct write_batch batch = {.writes = writes, .count = count, .arena = &committer->arena};

	if (count == 0)
		return;
	arena_reset(&committer->arena);
	committer->config.perform(committer->config.service, &batch);
	settle_effects(committer, writes, count);
}

/*
 * After COMMIT: delivers answers, parks BUSY writes and begins effects. Moves the writes that
 * must run again to the front of `writes` and returns how many there are.
 */
static size_t finish(struct committer *committer, struct write **writes, size_t count)
{
	size_t again = 0, effects = 0;

	for (size_t i = 0; i < count; i++) {
		switch (writes[i]->fate) {
		case WRITE_ANSWERED:
			command_list_push(&committer->answered, &writes[i]->command);
			break;
		case WRITE_BUSY:
			wait_again(committer, writes[i]);
			break;
		case WRITE_UNAPPLIED:
			writes[i]->was_unapplied = true;
			writes[again++] = writes[i];
			break;
		case WRITE_REPEATED:
			writes[again++] = writes[i];
			break;
		case WRITE_EFFECT:
			committer->effects[effects++] = writes[i];
			break;
		case WRITE_OPEN:
			abort(); /* decide() failed to settle it */
		}
	}
	command_list_deliver(&committer->answered);
	if (committer->config.committed)
		committer->config.committed(committer->config.service);
	carry_out(committer, committer->effects, effects);
	return again;
}

/*
 * Decides whether this attempt can be a single statement. A write that a single statement has
 * skipped before needs a transaction that reads its row.
 */
static enum transaction_mode plan(struct committer *committer, const struct write_batch *batch)
{
	const struct committer_config *config = &committer->config;

	if (batch->mode != TRANSACTION_WAIT || !config->is_single ||
		!config->session->store->single_saves_a_trip)
		return batch->mode;
	for (size_t i = 0; i < batch->count; i++) {
		const struct write *write = batch->writes[i];

		if (write->idempotency || write->decide || write->was_unapplied)
			return batch->mode;
	}
	return config->is_single(config->service, batch) ? TRANSACTION_SINGLE : batch->mode;
}

static enum status try_once(struct committer *committer, struct write **writes, size_t count,
	enum transaction_mode mode)
{
	struct write_batch batch = {
		.writes = writes,
		.count = count,
		.mode = mode,
		.arena = &committer->arena,
	};
	int64_t started_ns = now_ns(committer);
	enum status status;

	arena_reset(&committer->arena);
	batch.mode = plan(committer, &batch);
	for (size_t i = 0; i < count; i++) {
		writes[i]->fate = WRITE_OPEN;
		writes[i]->resumed = false;
		writes[i]->is_lost = false;
		writes[i]->waits_for_idempotency = false;
		writes[i]->position = i;
	}
	status = run_transaction(committer, &batch);
	histogram_observe(&committer->batch_size, (int64_t)count);
	histogram_observe(&committer->duration, now_ns(committer) - started_ns);
	return status;
}

static void run(struct committer *committer, struct write **writes, size_t count,
	enum transaction_mode mode);

/* Called if one write of the batch makes the transaction fail: finds it by halving the batch. */
static void isolate(struct committer *committer, struct write **writes, size_t count,
	enum transaction_mode mode, enum status why)
{
	if (count > 1) {
		run(committer, writes, count / 2, mode);
		run(committer, writes + count / 2, count - count / 2, mode);
	} else if (why == STATUS_LOCK_BUSY) {
		wait_again(committer, writes[0]);
	} else {
		tally_add(&committer->poisoned, 1);
		log_line(LOG_ERROR, "committer",
			"the store refused a command on the key %.*s; it is answered with 500",
			(int)writes[0]->command.key.len, writes[0]->command.key.data);
		answer_failed(committer, writes[0], STATUS_INTERNAL);
	}
}

/* Parks each write whose key was parked by an earlier part of the batch, so that it does not
 * overtake those before it. Returns how many writes remain. */
static size_t park_behind(struct committer *committer, struct write **writes, size_t count)
{
	size_t kept = 0;

	if (parking_count(committer->parking) == 0)
		return count;
	for (size_t i = 0; i < count; i++) {
		if (parking_has_key(committer->parking, writes[i]->command.key))
			park(committer, writes[i]);
		else
			writes[kept++] = writes[i];
	}
	return kept;
}

/* Runs transactions until every write is settled. The table in committer.h says what follows each
 * result. */
static void run(struct committer *committer, struct write **writes, size_t count,
	enum transaction_mode mode)
{
	int reruns = 0;

	while ((count = park_behind(committer, writes, count)) > 0) {
		enum status status = try_once(committer, writes, count, mode);

		if (status == STATUS_OK) {
			count = finish(committer, writes, count);
			reruns = 0;
		} else if (status == STATUS_RERUN && reruns++ < RERUN_MAX) {
			tally_add(&committer->reruns, 1);
		} else if (status == STATUS_LOCK_BUSY && mode == TRANSACTION_WAIT) {
			mode = TRANSACTION_SKIP;
		} else if (status == STATUS_LOCK_BUSY || status == STATUS_POISON) {
			isolate(committer, writes, count, mode, status);
			return;
		} else {
			fail_all(committer, writes, count,
				status == STATUS_RERUN ? STATUS_OVERLOADED : status);
			return;
		}
	}
}

/* ---- the lane ---------------------------------------------------------------------------- */

static bool is_wanted(struct committer *committer, const struct command *command)
{
	return !atomic_load_explicit(&committer->aborted, memory_order_relaxed) &&
	       !atomic_load_explicit(&command->client_gone, memory_order_relaxed) &&
	       now_ns(committer) < command->deadline_ns;
}

/* Answers a write that will not be run. If it waited for a pending Idempotency-Key, it may have
 * taken effect in another process. */
static void drop(struct committer *committer, struct command *command)
{
	const struct write *write = write_of(command);

	tally_add(&committer->expired, 1);
	command->answer = answer_failure(command->arena,
		write->waits_for_idempotency ? STATUS_OUTCOME_UNKNOWN : STATUS_OVERLOADED);
	command_list_push(&committer->answered, command);
}

/* Lets the service answer writes that need no transaction, but not writes with their own decide(),
 * which the service does not know. Keeps the unanswered writes in order and returns how many there
 * are. */
static size_t prepare(struct committer *committer, struct write **writes, size_t count)
{
	struct write_batch batch = {.arena = &committer->arena};
	size_t left = 0;

	if (!committer->config.prepare || count == 0)
		return count;
	arena_reset(&committer->arena);
	batch.writes = arena_array(&committer->arena, struct write *, count);
	for (size_t i = 0; i < count; i++) {
		writes[i]->fate = WRITE_OPEN;
		writes[i]->position = batch.count;
		if (!writes[i]->decide)
			batch.writes[batch.count++] = writes[i];
	}
	if (batch.count > 0)
		committer->config.prepare(
			committer->config.service, committer->config.session, &batch);
	for (size_t i = 0; i < count; i++) {
		if (writes[i]->fate == WRITE_ANSWERED)
			command_list_push(&committer->answered, &writes[i]->command);
		else
			writes[left++] = writes[i];
	}
	command_list_deliver(&committer->answered);
	return left;
}

/* Runs the first `count` of committer->writes. Skips prepare() for parked writes: it ran before
 * they were parked. */
static void run_batch(struct committer *committer, size_t count, enum transaction_mode mode)
{
	if (mode == TRANSACTION_WAIT)
		count = prepare(committer, committer->writes, count);
	run(committer, committer->writes, count, mode);
}

static void run_list(
	struct committer *committer, struct command_list *list, enum transaction_mode mode)
{
	struct command *command;
	size_t count = 0;

	while ((command = command_list_pop(list))) {
		if (!is_wanted(committer, command))
			drop(committer, command);
		else
			committer->writes[count++] = write_of(command);
		if (count == committer->config.batch_max) {
			run_batch(committer, count, mode);
			count = 0;
		}
	}
	run_batch(committer, count, mode);
	command_list_deliver(&committer->answered);
}

/* Parks new writes on keys that are already parked, so that they do not overtake the earlier
 * ones. */
static void park_followers(struct committer *committer, struct command_list *list)
{
	struct command_list free_to_run = {0};
	struct command *command;

	if (parking_count(committer->parking) == 0)
		return;
	while ((command = command_list_pop(list))) {
		if (parking_has_key(committer->parking, command->key))
			park(committer, write_of(command));
		else
			command_list_push(&free_to_run, command);
	}
	*list = free_to_run;
}

/* Answers the parked commands whose deadlines have passed, or all of them after an abort. */
static void drop_parked(struct committer *committer)
{
	struct command_list late = {0};
	struct command *command;

	if (atomic_load(&committer->aborted))
		parking_take_all(committer->parking, &late);
	else
		parking_take_expired(committer->parking, &late, now_ns(committer));
	while ((command = command_list_pop(&late)))
		drop(committer, command);
	command_list_deliver(&committer->answered);
}

bool committer_step(struct committer *committer)
{
	struct command_list fresh = {0}, due = {0};
	int64_t until_ns = parking_next_ns(committer->parking);
	size_t batch_max = committer->config.batch_max;
	bool open = lane_take(committer->config.lane, &fresh, batch_max, until_ns);

	if (!open && parking_count(committer->parking) > 0)
		bell_wait(&committer->aborting, until_ns - now_ns(committer));
	drop_parked(committer);
	park_followers(committer, &fresh);
	parking_take_due(committer->parking, &due, batch_max, now_ns(committer));
	if (due.first)
		run_list(committer, &due, TRANSACTION_SKIP);
	run_list(committer, &fresh, TRANSACTION_WAIT);
	return open || parking_count(committer->parking) > 0;
}

static void *committer_main(void *argument)
{
	struct committer *committer = argument;

	pthread_setname_np(pthread_self(), "committer");
	loop_lower_priority();
	while (committer_step(committer))
		;
	return NULL;
}

void committer_start(struct committer *committer)
{
	int failed = pthread_create(&committer->thread, NULL, committer_main, committer);

	assert(!failed);
	committer->has_thread = true;
}

void committer_abort(struct committer *committer)
{
	atomic_store(&committer->aborted, true);
	bell_stop(&committer->aborting);
}

void committer_join(struct committer *committer)
{
	if (committer->has_thread)
		pthread_join(committer->thread, NULL);
	committer->has_thread = false;
}

void committer_free(struct committer *committer)
{
	assert(!committer->has_thread);
	session_close(committer->config.session);
	parking_free(committer->parking);
	bell_release(&committer->aborting);
	arena_release(&committer->arena);
	free(committer->writes);
	free(committer->effects);
	free(committer);
}

/* ---- metrics ----------------------------------------------------------------------------- */

static void collect_tally(struct committer *const *committers, size_t count, struct buffer *page,
	const char *name, size_t offset, const char *help)
{
	metrics_family(page, name, "counter", help);
	for (size_t i = 0; i < count; i++) {
		const struct tally *tally = (const void *)((const char *)committers[i] + offset);
		char labels[64];

		snprintf(labels, sizeof(labels), "lane=\"%s\"",
			lane_name(committers[i]->config.lane));
		metrics_sample(page, name, labels, tally_read(tally));
	}
}

static void collect_histogram(struct committer *const *committers, size_t count,
	struct buffer *page, const char *name, size_t offset, const char *help)
{
	metrics_family(page, name, "histogram", help);
	for (size_t i = 0; i < count; i++) {
		const struct histogram *histogram =
			(const void *)((const char *)committers[i] + offset);
		char labels[64];

		snprintf(labels, sizeof(labels), "lane=\"%s\"",
			lane_name(committers[i]->config.lane));
		metrics_histogram(page, name, labels, histogram);
	}
}

void committers_collect(struct committer *const *committers, size_t count, struct buffer *page)
{
	char labels[64];

	metrics_family(page, "quipu_parked_commands", "gauge",
		"Commands that wait for a row held by another session.");
	for (size_t i = 0; i < count; i++) {
		snprintf(labels, sizeof(labels), "lane=\"%s\"",
			lane_name(committers[i]->config.lane));
		metrics_sample(page, "quipu_parked_commands", labels,
			(int64_t)parking_count(committers[i]->parking));
	}
	collect_histogram(committers, count, page, "quipu_batch_size",
		offsetof(struct committer, batch_size), "Commands in one transaction.");
	collect_histogram(committers, count, page, "quipu_commit_duration_seconds",
		offsetof(struct committer, duration), "From BEGIN to COMMIT of a batch.");
	collect_tally(committers, count, page, "quipu_reruns_total",
		offsetof(struct committer, reruns), "Transactions that were run again.");
	collect_tally(committers, count, page, "quipu_expired_commands_total",
		offsetof(struct committer, expired), "Commands dropped before they ran.");
	collect_tally(committers, count, page, "quipu_poisoned_commands_total",
		offsetof(struct committer, poisoned), "Commands that the store refused.");
}
