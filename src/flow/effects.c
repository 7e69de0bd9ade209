/*
 * A write in struct effects is either in `added` (its first transaction has committed), with the
 * publisher, in `ended` (its effect has ended but is not recorded), or in `settling` (a transaction
 * that records its effect is running). The write is removed when it is answered.
 */
#include "flow/effects.h"

#include <assert.h>
#include <stdlib.h>

#include "flow/keyed_writes.h"
#include "flow/publisher.h"

#define SETTLE_TRIES 3
#define EFFECTS_ARENA_SIZE (64 * 1024)

/* How many batches of writes the publisher should have at most: enough to decide one batch while
 * the bus confirms others, but few, because each write that waits for a hanging bus occupies a slot
 * of a send quota. */
#define BATCHES_UNDER_WAY 4

/*
 * While a round is under way, new writes that need the publisher wait until the round ends. The
 * transaction that records the round's effects then runs the new writes as well. This saves the
 * fixed cost of a transaction and of a publish. An experiment on two cores compared one large round
 * with two smaller rounds side by side: the smaller rounds were no faster for 64 connections, and
 * slower for 256 (docs/EXPERIMENTS.md). But if the publisher got its most recent writes PATIENCE_NS
 * ago and a round is still under way, the bus is slow or hangs. New writes then no longer wait, so
 * that sends beyond a user's limit are refused soon.
 */
#define PATIENCE_NS (40 * NS_PER_MS)

struct effects {
	struct committer_config config;
	struct publisher *publisher; /* NULL if the service has nothing to publish */
	/* memory for perform(), or for the current attempt to record effects */
	struct arena arena;
	struct command_list added;
	struct command_list ended;
	struct write_batch settling;
	struct command_list answered;
	/* the `reserved_ns` (flow/write.h) of the writes that were last passed to the publisher */
	int64_t reserved_ns;
	size_t bytes; /* the sum of the bytes of all writes in this struct */
};

struct effects *effects_new(
	const struct committer_config *config, void (*ended)(void *context), void *context)
{
	struct effects *effects = qp_calloc(1, sizeof(*effects));
	struct publisher_config publishing = {
		.ops = config->publishing,
		.service = config->service,
		.round_max = config->batch_max,
		.writes_max = BATCHES_UNDER_WAY * config->batch_max,
		.ended = ended,
		.context = context,
	};

	effects->config = *config;
	if (config->publishing)
		effects->publisher = publisher_new(&publishing);
	arena_init(&effects->arena, EFFECTS_ARENA_SIZE);
	effects->settling.writes = qp_calloc(config->batch_max, sizeof(struct write *));
	effects->settling.arena = &effects->arena;
	return effects;
}

void effects_start(struct effects *effects)
{
	if (effects->publisher)
		publisher_start(effects->publisher);
}

void effects_stop(struct effects *effects)
{
	if (effects->publisher)
		publisher_stop(effects->publisher);
}

void effects_free(struct effects *effects)
{
	assert(effects_count(effects) == 0);
	if (effects->publisher)
		publisher_free(effects->publisher);
	arena_release(&effects->arena);
	free(effects->settling.writes);
	free(effects);
}

bool effects_wants(const struct effects *effects, const struct write *write)
{
	return effects->publisher && effects->config.publishing->wants(write);
}

size_t effects_room(struct effects *effects, int64_t *until_ns)
{
	int64_t hurry_ns = effects->reserved_ns + PATIENCE_NS;

	*until_ns = INT64_MAX;
	if (!effects->publisher)
		return SIZE_MAX;
	if (effects->bytes >= effects->config.held_bytes_max)
		return 0;
	if (!publisher_is_busy(effects->publisher) || clock_steady_ns(&clock_system) >= hurry_ns)
		return publisher_room(effects->publisher);
	*until_ns = hurry_ns;
	return 0;
}

size_t effects_count(const struct effects *effects)
{
	size_t count = effects->added.count + effects->ended.count + effects->settling.count;

	return count + (effects->publisher ? publisher_count(effects->publisher) : 0);
}

/* ---- carrying out effects ---------------------------------------------------------------- */

void effects_add(struct effects *effects, struct write *write)
{
	write->effect = EFFECT_BEGUN;
	effects->bytes += write->command.bytes;
	command_list_push(&effects->added, &write->command);
}

/* Moves each write to `ended` if its effect has ended during perform(), otherwise to the
 * publisher. */
static void sort_out(struct effects *effects, const struct write_batch *batch)
{
	struct command_list published = {0};

	for (size_t i = 0; i < batch->count; i++) {
		struct write *write = batch->writes[i];

		if (write->effect != EFFECT_BEGUN)
			command_list_push(&effects->ended, &write->command);
		else
			command_list_push(&published, &write->command);
	}
	if (!published.first)
		return;
	assert(effects->publisher);
	effects->reserved_ns = batch->writes[0]->reserved_ns;
	publisher_give(effects->publisher, &published);
}

void effects_carry_out(struct effects *effects)
{
	struct write_batch batch = {.arena = &effects->arena};
	int64_t now_ns = clock_steady_ns(&clock_system);
	struct command *command;

	if (!effects->added.first)
		return;
	arena_reset(&effects->arena);
	batch.writes = arena_array(&effects->arena, struct write *, effects->added.count);
	while ((command = command_list_pop(&effects->added))) {
		batch.writes[batch.count] = write_of(command);
		batch.writes[batch.count++]->reserved_ns = now_ns;
	}
	if (effects->config.perform)
		effects->config.perform(effects->config.service, &batch);
	sort_out(effects, &batch);
	effects_gather(effects);
}

void effects_gather(struct effects *effects)
{
	if (effects->publisher)
		publisher_take(effects->publisher, &effects->ended);
}

/* ---- recording effects ------------------------------------------------------------------- */

static void deliver(struct effects *effects, struct write **writes, size_t count, bool settled)
{
	for (size_t i = 0; i < count; i++) {
		struct command *command = &writes[i]->command;

		if (writes[i]->is_lost || (!settled && writes[i]->effect != EFFECT_UNKNOWN))
			command->answer = answer_failure(command->arena, STATUS_OUTCOME_UNKNOWN);
		effects->bytes -= command->bytes;
		command_list_push(&effects->answered, command);
	}
	command_list_deliver(&effects->answered);
}

static enum status settle_once(struct effects *effects, struct write **writes, size_t count)
{
	struct session *session = effects->config.session;
	struct write_batch batch = {.writes = writes, .count = count, .arena = &effects->arena};
	enum status status;

	arena_reset(&effects->arena);
	status = session->ops->begin(session, TRANSACTION_WAIT);
	if (status == STATUS_OK)
		status = keyed_writes_settle(session, &batch);
	if (status == STATUS_OK)
		status = effects->config.settle(effects->config.service, session, &batch);
	if (status == STATUS_OK)
		status = session->ops->commit(session);
	if (status == STATUS_OK && effects->config.committed)
		effects->config.committed(effects->config.service);
	return status;
}

/* Returns true if `status` means that the transaction has changed nothing and may succeed when it
 * runs again. Returns false if the outcome is unknown, because running the transaction again could
 * record an effect twice. */
static bool may_settle_again(enum status status)
{
	return status == STATUS_RERUN || status == STATUS_LOCK_BUSY ||
	       status == STATUS_STORE_UNAVAILABLE;
}

/* Tells the service that it is not certain whether these effects are recorded. */
static void report_failed(struct effects *effects, struct write **writes, size_t count)
{
	struct command_list failed = {0};

	if (!effects->config.failed)
		return;
	for (size_t i = 0; i < count; i++)
		command_list_push(&failed, &writes[i]->command);
	effects->config.failed(effects->config.service, &failed);
}

/*
 * Records effects in transactions of their own, and answers their writes. If the store refuses a
 * row, halves the batch until that row fails alone. If another session holds a row, halves the
 * batch at once, because waiting for the row again with the whole batch would hold up the lane.
 */
static void settle_alone(struct effects *effects, struct write **writes, size_t count)
{
	enum status status = settle_once(effects, writes, count);

	for (int i = 1; i < SETTLE_TRIES && may_settle_again(status); i++) {
		if (status == STATUS_LOCK_BUSY && count > 1)
			break;
		status = settle_once(effects, writes, count);
	}
	if (count > 1 && (status == STATUS_LOCK_BUSY || status == STATUS_POISON)) {
		settle_alone(effects, writes, count / 2);
		settle_alone(effects, writes + count / 2, count - count / 2);
		return;
	}
	if (status != STATUS_OK)
		report_failed(effects, writes, count);
	deliver(effects, writes, count, status == STATUS_OK);
}

const struct write_batch *effects_settling(struct effects *effects)
{
	struct write_batch *settling = &effects->settling;
	struct command *command;

	assert(settling->count == 0);
	arena_reset(&effects->arena);
	while (settling->count < effects->config.batch_max &&
		(command = command_list_pop(&effects->ended)))
		settling->writes[settling->count++] = write_of(command);
	return settling->count > 0 ? settling : NULL;
}

void effects_conclude(struct effects *effects, enum status status)
{
	struct write_batch *settling = &effects->settling;

	if (may_settle_again(status) || status == STATUS_POISON)
		settle_alone(effects, settling->writes, settling->count);
	else
		deliver(effects, settling->writes, settling->count, status == STATUS_OK);
	settling->count = 0;
}

void effects_settle(struct effects *effects)
{
	struct write_batch *settling = &effects->settling;

	while (effects_settling(effects)) {
		settle_alone(effects, settling->writes, settling->count);
		settling->count = 0;
	}
}
