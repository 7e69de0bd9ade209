/*
 * A database commits a batch of 500 changes nearly as fast as one change, so the aim is few, large
 * transactions that still give each write the answer that it would get from a transaction of its
 * own.
 *
 * prepare() answers the writes of a batch that need no transaction. run() repeats or halves the
 * transaction until every write has a fate. finish() delivers answers, parks writes and begins
 * effects. A write with an effect outside the store needs two transactions, one before and one
 * after the effect: a bus cannot join a transaction of the store, and publishing inside the first
 * transaction would hold its locks while the bus is slow. The committer does not wait for effects
 * (flow/effects.h): it runs the next batch, and the transaction of that batch also records how
 * earlier effects ended.
 *
 * Invariants:
 *   1. A write is answered exactly once, after the COMMIT that its answer depends on.
 *   2. A new write on a parked key is parked behind the earlier writes on that key and does not
 *      overtake them. Writes that are set aside stay in their order.
 *   3. A write with an Idempotency-Key takes effect at most once, unless the outcome of its effect
 *      outside the store is unknown; then a retry carries the effect out again.
 *   4. Effects of a key begin in the order in which they were decided.
 *   5. All state belongs to the committer's thread, except `aborted`, `wake` and the metrics.
 */
#include "flow/committer.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "flow/committer_metrics.h"
#include "flow/effects.h"
#include "flow/parking.h"
#include "flow/transaction.h"
#include "runtime/bell.h"
#include "runtime/loop.h"

#define RERUN_MAX 20
#define GATHER_NS (2 * NS_PER_MS)
#define BATCH_ARENA_SIZE (256 * 1024)

struct committer {
	struct committer_config config;
	struct parking *parking;
	struct arena arena;    /* memory of the current attempt */
	struct write **writes; /* the writes of the current batch */
	struct effects *effects;
	struct command_list aside; /* writes that wait until the publisher can accept them */
	/* monotonic time at which to try the writes of `aside` again even if no effect has ended */
	int64_t aside_ns;
	int64_t aside_expires_ns;     /* no write in `aside` has an earlier deadline */
	struct command_list answered; /* writes whose answers are to be delivered */
	struct command_list failed;   /* failed writes whose answers are to be delivered */
	bool has_run;                 /* a transaction has run since the last take() */
	bool carried;                 /* the last transaction also tried to record effects */
	pthread_t thread;
	bool has_thread;
	atomic_bool aborted;
	/* rung when effects have ended and after an abort; while writes are set aside, or after the
	 * lane was closed, take() waits for this bell and not for the lane */
	struct bell wake;
	struct committer_metrics metrics;
};

/* Wakes the committer. Called on the publisher's thread when effects have ended. */
static void on_effects_ended(void *context)
{
	struct committer *committer = context;

	lane_wake(committer->config.lane);
	bell_ring(&committer->wake);
}

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
	committer->effects = effects_new(config, on_effects_ended, committer);
	committer->aside_expires_ns = INT64_MAX;
	arena_init(&committer->arena, BATCH_ARENA_SIZE);
	bell_init(&committer->wake);
	committer_metrics_init(&committer->metrics, config->lane, committer->parking);
	return committer;
}

/* ---- running one batch ------------------------------------------------------------------- */

static int64_t now_ns(const struct committer *committer)
{
	return clock_steady_ns(committer->config.clock);
}

static void answer_failed(struct committer *committer, struct write *write, enum status status)
{
	write->command.answer = answer_failure(write->command.arena, status);
	command_list_push(&committer->failed, &write->command);
}

static void deliver_answers(struct committer *committer)
{
	const struct committer_config *config = &committer->config;

	if (config->failed && committer->failed.first)
		config->failed(config->service, &committer->failed);
	command_list_append(&committer->answered, &committer->failed);
	command_list_deliver(&committer->answered);
}

static void fail_all(
	struct committer *committer, struct write **writes, size_t count, enum status status)
{
	for (size_t i = 0; i < count; i++)
		answer_failed(committer, writes[i], status);
}

/* Returns the status with which to answer a write that will not be run. A write that waits for a
 * pending Idempotency-Key gets OUTCOME_UNKNOWN, because another process may already have carried
 * out the same request. */
static enum status refusal_of(const struct write *write)
{
	return write->waits_for_idempotency ? STATUS_OUTCOME_UNKNOWN : STATUS_OVERLOADED;
}

/* Returns whether a list of waiting writes (the parked writes, or the writes that are set aside)
 * has room for `command`. `weight` and `bytes` are the sums over the writes that are already in the
 * list. */
static bool may_hold(const struct committer *committer, const struct command *command,
	size_t weight, size_t bytes)
{
	return weight_fits(weight, command_weight(command), committer->config.held_max) &&
	       bytes < committer->config.held_bytes_max;
}

static void park(struct committer *committer, struct write *write)
{
	struct parking *parking = committer->parking;

	if (may_hold(committer, &write->command, parking_weight(parking), parking_bytes(parking)))
		parking_add(parking, &write->command,
			write->waits_for_idempotency ? write->idempotency->key : write->command.key,
			now_ns(committer));
	else
		answer_failed(committer, write, refusal_of(write));
}

/* Parks a BUSY write for its next attempt, or answers it if it has no attempts left. */
static void wait_again(struct committer *committer, struct write *write)
{
	const struct waiting *waiting = &committer->config.waiting;

	write->tries++;
	if (waiting->tries_max == 0 || write->tries < waiting->tries_max) {
		park(committer, write);
		return;
	}
	write->command.answer = waiting->give_up(write);
	command_list_push(&committer->answered, &write->command);
}

/*
 * Delivers answers, parks BUSY writes and begins effects. Moves the writes that must run again to
 * the front of `writes`, and returns how many writes must run again. Called after COMMIT.
 */
static size_t finish(struct committer *committer, struct write **writes, size_t count)
{
	size_t again = 0;

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
			effects_add(committer->effects, writes[i]);
			break;
		case WRITE_OPEN:
			abort(); /* decide() must set the fate of every write */
		}
	}
	deliver_answers(committer);
	effects_carry_out(committer->effects);
	return again;
}

static size_t changes_in(const struct write_batch *batch)
{
	size_t changes = 0;

	for (size_t i = 0; i < batch->count; i++)
		changes += command_weight(&batch->writes[i]->command);
	return changes;
}

/* Runs one transaction for the batch. If `mode` is TRANSACTION_WAIT, the transaction also records
 * the effects of earlier batches. */
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
	committer->has_run = true;
	if (mode == TRANSACTION_WAIT)
		batch.ended = effects_settling(committer->effects);
	committer->carried = batch.ended != NULL;
	batch.mode = transaction_plan(&committer->config, &batch);
	for (size_t i = 0; i < count; i++) {
		writes[i]->fate = WRITE_OPEN;
		writes[i]->resumed = false;
		writes[i]->is_lost = false;
		writes[i]->waits_for_idempotency = false;
		writes[i]->position = i;
	}
	status = transaction_run(&committer->config, &batch);
	histogram_observe(&committer->metrics.batch_size, (int64_t)changes_in(&batch));
	histogram_observe(&committer->metrics.duration, now_ns(committer) - started_ns);
	if (status == STATUS_OK && committer->config.committed)
		committer->config.committed(committer->config.service);
	if (batch.ended)
		effects_conclude(committer->effects, status);
	return status;
}

static void run(struct committer *committer, struct write **writes, size_t count,
	enum transaction_mode mode);

/* Called if one write of the batch makes the transaction fail, with LOCK_BUSY or POISON in `why`.
 * Finds that write by halving the batch. After LOCK_BUSY, parks the write; after POISON, answers it
 * with 500. */
static void isolate(struct committer *committer, struct write **writes, size_t count,
	enum transaction_mode mode, enum status why)
{
	if (count > 1) {
		run(committer, writes, count / 2, mode);
		run(committer, writes + count / 2, count - count / 2, mode);
	} else if (why == STATUS_LOCK_BUSY) {
		wait_again(committer, writes[0]);
	} else {
		tally_add(&committer->metrics.poisoned, 1);
		log_line(LOG_ERROR, "committer",
			"answered a command on the key %.*s with 500: the store refused it",
			(int)writes[0]->command.key.len, writes[0]->command.key.data);
		answer_failed(committer, writes[0], STATUS_INTERNAL);
	}
}

/* Parks each write whose key has parked writes from an earlier part of the batch, so that the write
 * does not overtake them. Returns how many writes remain. */
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

/* Runs transactions until every write is answered, is parked or waits for its effect. The table in
 * committer.h lists how the committer reacts to each status. */
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
			tally_add(&committer->metrics.reruns, 1);
		} else if (status == STATUS_LOCK_BUSY && mode == TRANSACTION_WAIT) {
			mode = TRANSACTION_SKIP;
		} else if (status == STATUS_POISON && committer->carried) {
			/* The store may have refused the record of an earlier effect instead of a
			 * write. effects_conclude() has already answered the writes of the earlier
			 * effects, so run this batch again. */
			tally_add(&committer->metrics.reruns, 1);
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

/* ---- taking commands from the lane ------------------------------------------------------- */

static bool is_wanted(struct committer *committer, const struct command *command)
{
	return !atomic_load_explicit(&committer->aborted, memory_order_relaxed) &&
	       !atomic_load_explicit(&command->client_gone, memory_order_relaxed) &&
	       now_ns(committer) < command->deadline_ns;
}

/* Answers a write that will not be run. */
static void drop(struct committer *committer, struct command *command)
{
	struct write *write = write_of(command);

	tally_add(&committer->metrics.expired, 1);
	answer_failed(committer, write, refusal_of(write));
}

/* Lets the service answer the writes that need no transaction. The service does not see writes that
 * have their own decide(). Keeps the unanswered writes in order and returns how many there are. */
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
	deliver_answers(committer);
	return left;
}

/* Runs the first `count` writes of committer->writes. Parked writes, which run with
 * TRANSACTION_SKIP, skip prepare(), because most of them went through it before they were
 * parked. */
static void run_batch(struct committer *committer, size_t count, enum transaction_mode mode)
{
	if (mode == TRANSACTION_WAIT)
		count = prepare(committer, committer->writes, count);
	run(committer, committer->writes, count, mode);
}

/* Runs the commands of `list` in batches whose total weight is at most batch_max. A command that is
 * heavier than batch_max gets a batch of its own. */
static void run_list(
	struct committer *committer, struct command_list *list, enum transaction_mode mode)
{
	size_t count = 0, weight = 0;
	struct command *command;

	while ((command = command_list_pop(list))) {
		if (!weight_fits(weight, command_weight(command), committer->config.batch_max)) {
			run_batch(committer, count, mode);
			count = weight = 0;
		}
		if (is_wanted(committer, command)) {
			committer->writes[count++] = write_of(command);
			weight += command_weight(command);
		} else {
			drop(committer, command);
		}
	}
	run_batch(committer, count, mode);
	deliver_answers(committer);
}

/* Parks new writes on keys that already have parked writes, so that no new write overtakes a parked
 * write. */
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
	deliver_answers(committer);
}

static void push_aside(struct committer *committer, struct command *command)
{
	command_list_push(&committer->aside, command);
	if (command->deadline_ns < committer->aside_expires_ns)
		committer->aside_expires_ns = command->deadline_ns;
}

/*
 * Leaves in `list` the writes that may run now: first the writes that were set aside earlier, as
 * many as the publisher has room for, and then the new writes. Sets aside the new writes for which
 * the publisher has no room. A write that needs no publisher may overtake writes that were set
 * aside, even on the same key: none of these writes has been answered, so no client knows their
 * order.
 */
static void set_aside(struct committer *committer, struct command_list *list)
{
	size_t room = effects_room(committer->effects, &committer->aside_ns);
	struct command_list fresh = *list;
	struct command *command;

	*list = (struct command_list){0};
	while (room > 0 && (command = command_list_pop(&committer->aside))) {
		command_list_push(list, command);
		room--;
	}
	while ((command = command_list_pop(&fresh))) {
		bool waits = effects_wants(committer->effects, write_of(command));

		if (!waits || room > 0)
			command_list_push(list, command);
		else if (may_hold(committer, command, committer->aside.weight,
				 committer->aside.bytes))
			push_aside(committer, command);
		else
			answer_failed(committer, write_of(command), STATUS_OVERLOADED);
		room -= waits && room > 0;
	}
}

/* Answers the writes in committer->aside whose deadlines have passed, or all of them after an
 * abort. The other writes keep their order. */
static void drop_aside(struct committer *committer)
{
	struct command_list all = committer->aside;
	struct command *command;

	if (!atomic_load(&committer->aborted) && committer->aside_expires_ns > now_ns(committer))
		return;
	committer->aside = (struct command_list){0};
	committer->aside_expires_ns = INT64_MAX;
	while ((command = command_list_pop(&all))) {
		if (is_wanted(committer, command))
			push_aside(committer, command);
		else
			drop(committer, command);
	}
}

/* Returns the monotonic time at which the committer must run again even if no command arrives and
 * no effect ends. */
static int64_t next_ns(const struct committer *committer)
{
	int64_t parked_ns = parking_next_ns(committer->parking);
	int64_t aside_ns = committer->aside.first ? committer->aside_ns : INT64_MAX;

	if (committer->aside.first && committer->aside_expires_ns < aside_ns)
		aside_ns = committer->aside_expires_ns;
	return aside_ns < parked_ns ? aside_ns : parked_ns;
}

static bool holds_writes(const struct committer *committer)
{
	return parking_count(committer->parking) > 0 || committer->aside.first ||
	       effects_count(committer->effects) > 0;
}

/* Records the effects that have ended, unless the transaction of the next batch can record them. */
static void settle_if_idle(struct committer *committer)
{
	if (!committer->has_run || lane_depth(committer->config.lane) == 0)
		effects_settle(committer->effects);
}

/* If the publisher now has room, lets the next step run writes that were set aside. Room appears
 * when effects end, and then the publisher wakes the committer. But room also appears when effects
 * are recorded, or when the writes that ran had no effect after all, and nothing wakes the
 * committer in these two cases. */
static void look_for_room(struct committer *committer)
{
	if (committer->aside.first && effects_room(committer->effects, &committer->aside_ns) > 0)
		committer->aside_ns = 0;
}

static void count_held(struct committer *committer)
{
	tally_set(&committer->metrics.under_way, (int64_t)effects_count(committer->effects));
	tally_set(&committer->metrics.aside, (int64_t)committer->aside.count);
}

/*
 * Takes the commands that wait in the lane. If no writes are set aside and the lane is empty, first
 * waits until a command arrives, an effect ends or a parked write is due. If writes are set aside,
 * waits only after a step that ran no transaction: until an effect ends, but at most GATHER_NS.
 * Meanwhile commands gather in the lane, because most of them would also be set aside, and waking
 * up for each command would cost more than running it. Returns false if the lane is closed and
 * empty.
 */
static bool take(struct committer *committer, struct command_list *fresh)
{
	struct lane *lane = committer->config.lane;
	size_t batch_max = committer->config.batch_max;
	int64_t until_ns = next_ns(committer), wait_ns = until_ns - now_ns(committer);
	bool open, waits = committer->aside.first && !committer->has_run;

	if (waits)
		bell_wait(&committer->wake, wait_ns < GATHER_NS ? wait_ns : GATHER_NS);
	open = lane_take(lane, fresh, batch_max, committer->aside.first ? 0 : until_ns);
	if (!open && !waits && holds_writes(committer))
		bell_wait(&committer->wake, wait_ns);
	return open;
}

bool committer_step(struct committer *committer)
{
	struct command_list fresh = {0}, due = {0};
	size_t batch_max = committer->config.batch_max;
	bool open = take(committer, &fresh);

	committer->has_run = false;
	effects_gather(committer->effects);
	drop_parked(committer);
	drop_aside(committer);
	set_aside(committer, &fresh);
	park_followers(committer, &fresh);
	parking_take_due(committer->parking, &due, batch_max, now_ns(committer));
	if (due.first) {
		/* a parked write may wait for the record of an effect that has ended */
		effects_settle(committer->effects);
		run_list(committer, &due, TRANSACTION_SKIP);
	}
	run_list(committer, &fresh, TRANSACTION_WAIT);
	settle_if_idle(committer);
	look_for_room(committer);
	count_held(committer);
	return open || holds_writes(committer);
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
	int failed;

	effects_start(committer->effects);
	failed = pthread_create(&committer->thread, NULL, committer_main, committer);
	assert(!failed);
	committer->has_thread = true;
}

void committer_abort(struct committer *committer)
{
	atomic_store(&committer->aborted, true);
	bell_ring(&committer->wake);
}

void committer_join(struct committer *committer)
{
	if (committer->has_thread)
		pthread_join(committer->thread, NULL);
	committer->has_thread = false;
	effects_stop(committer->effects);
}

void committer_free(struct committer *committer)
{
	assert(!committer->has_thread);
	effects_free(committer->effects);
	session_close(committer->config.session);
	parking_free(committer->parking);
	bell_release(&committer->wake);
	arena_release(&committer->arena);
	free(committer->writes);
	free(committer);
}

void committers_collect(struct committer *const *committers, size_t count, struct buffer *page)
{
	const struct committer_metrics **all = qp_calloc(count, sizeof(*all));

	for (size_t i = 0; i < count; i++)
		all[i] = &committers[i]->metrics;
	committer_metrics_collect(all, count, page);
	free(all);
}
