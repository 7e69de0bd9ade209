/*
 * A send must be published, and no bus can take part in our transactions. Therefore the gateway
 * first reserves a slot and commits, then publishes the message, and then records in a second
 * transaction what the bus reported. After a crash between these steps, the user may lose reserved
 * slots of one window, but the gateway never admits more messages than the limit.
 *
 * Invariants of a row, at every commit: current_count <= reserved_count <= rate_limit (in shadow
 * mode reserved_count may exceed rate_limit), and no two windows of a user have the same start,
 * because the start identifies the window.
 */
#include "services/gateway/gateway_batch.h"

#include <stdlib.h>

#include "services/gateway/gateway_answers.h"
#include "services/gateway/gateway_cache.h"
#include "services/gateway/gateway_messages.h"

/* ---- command types ----------------------------------------------------------------------- */

const struct command_type gateway_command_type = {"gateway_command", true};

struct gateway_command *gateway_command_new(struct arena *arena)
{
	struct gateway_command *command = arena_new(arena, struct gateway_command);

	command->write.command.type = &gateway_command_type;
	command->amount = 1;
	return command;
}

struct gateway_command *gateway_command_of(struct write *write)
{
	command_assert_type(&write->command, &gateway_command_type);
	return (struct gateway_command *)write;
}

bool gateway_command_is_open_send(const struct gateway_command *command)
{
	return command->verb == GATEWAY_SEND && gateway_command_is_open_spend(command);
}

bool gateway_command_is_open_spend(const struct gateway_command *command)
{
	return (command->verb == GATEWAY_SEND || command->verb == GATEWAY_TAKE) &&
	       !command->write.idempotency && command->write.fate == WRITE_OPEN;
}

/* ---- before the transaction -------------------------------------------------------------- */

/* If the bus is known to be down, refuses sends before they reserve slots, so that users do not
 * lose slots. */
static void refuse_without_bus(struct gateway_lane *lane, const struct write_batch *batch)
{
	struct bus *bus = lane->gateway->bus;

	if (bus->ops->is_up(bus))
		return;
	for (size_t i = 0; i < batch->count; i++) {
		struct gateway_command *command = gateway_command_of(batch->writes[i]);

		if (gateway_command_is_open_send(command))
			write_answer(&command->write, answer_failure(command->write.command.arena,
							      STATUS_BUS_UNAVAILABLE));
	}
}

void gateway_batch_prepare(
	struct gateway_lane *lane, struct session *session, const struct write_batch *batch)
{
	/* Check the bus first, so that the cache counts no slots for sends that are refused. */
	refuse_without_bus(lane, batch);
	if (lane->cache)
		gateway_cache_refuse(lane, session, batch);
}

/* ---- failures ---------------------------------------------------------------------------- */

void gateway_batch_fail(struct gateway_lane *lane, const struct command_list *writes)
{
	lane->shadowed = 0;
	if (lane->cache)
		gateway_cache_forget(lane, writes);
}

/* ---- after the transaction --------------------------------------------------------------- */

void gateway_batch_committed(struct gateway_lane *lane)
{
	tally_add(&lane->gateway->shadow_refusals, lane->shadowed);
	lane->shadowed = 0;
	if (lane->cache)
		gateway_cache_drop_stale(lane);
}

/* Deletes the cached copies of users whose configuration was changed or removed. */
static void drop_cached(struct gateway_lane *lane, const struct slice *user_ids, size_t count)
{
	enum status ignored;

	if (!lane->cache || count == 0)
		return;
	/* If the cache is unavailable, the adapter deletes the copies before the cache is used
	 * again; see ports/cache.h. */
	ignored = lane->cache->ops->limit_drop(lane->cache, user_ids, count);
	(void)ignored;
}

/* Deletes the cached copies of changed configurations. Skips sends, which gateway_publish.c
 * handles. */
void gateway_batch_perform(struct gateway_lane *lane, const struct write_batch *batch)
{
	struct slice *configured = arena_array(batch->arena, struct slice, batch->count);
	size_t count = 0;

	for (size_t i = 0; i < batch->count; i++) {
		struct gateway_command *command = gateway_command_of(batch->writes[i]);

		if (command->verb == GATEWAY_SEND)
			continue;
		configured[count++] = command->user.text;
		command->write.effect = EFFECT_DONE;
	}
	drop_cached(lane, configured, count);
}

/* ---- second transaction: settle ---------------------------------------------------------- */

static int compare_settlements(const void *a, const void *b)
{
	const struct limit_settlement *left = a;
	const struct limit_settlement *right = b;
	int order = slice_compare(left->user_id, right->user_id);

	if (order != 0)
		return order;
	return (left->window_start_us > right->window_start_us) -
	       (left->window_start_us < right->window_start_us);
}

/* Merges the entries into one per user and window. Returns how many remain. */
static size_t merge(struct limit_settlement *all, size_t count)
{
	size_t kept = 0;

	qsort(all, count, sizeof(*all), compare_settlements);
	for (size_t i = 0; i < count; i++) {
		if (kept > 0 && compare_settlements(&all[kept - 1], &all[i]) == 0) {
			all[kept - 1].confirmed += all[i].confirmed;
			all[kept - 1].given_back += all[i].given_back;
		} else {
			all[kept++] = all[i];
		}
	}
	return kept;
}

struct limit_settlement *gateway_settlements(const struct write_batch *batch, size_t *count)
{
	struct limit_settlement *all =
		arena_array(batch->arena, struct limit_settlement, batch->count);
	size_t filled = 0;

	for (size_t i = 0; i < batch->count; i++) {
		const struct gateway_command *command = gateway_command_of(batch->writes[i]);
		enum write_effect effect = command->write.effect;

		if (command->verb != GATEWAY_SEND || effect == EFFECT_UNKNOWN ||
			command->write.is_lost)
			continue;
		all[filled].user_id = command->user.text;
		all[filled].window_start_us = command->window_start_us;
		all[filled].confirmed = effect == EFFECT_DONE ? command->slots : 0;
		all[filled++].given_back = effect == EFFECT_FAILED ? command->slots : 0;
	}
	*count = merge(all, filled);
	return all;
}

enum status gateway_batch_settle(
	struct gateway_lane *lane, struct session *session, const struct write_batch *batch)
{
	const struct limit_repository *repository = lane->gateway->repository;
	size_t count;
	struct limit_settlement *settlements = gateway_settlements(batch, &count);
	enum status status;

	lane->shadowed = 0;
	if (count == 0)
		return STATUS_OK;
	if (lane->cache)
		gateway_cache_note_given_back(lane, batch);
	status = repository->ops->settle(repository, session, settlements, count);
	return status == STATUS_OK ? gateway_messages_note(lane, session, batch) : status;
}
