/*
 * A send must be published, and no bus takes part in our transactions. So the slot is reserved and
 * committed first, then the message is published, then a second transaction records what the bus
 * reported. A crash in between costs the user at most the reserved slots of one window and never
 * admits a message too many.
 *
 * Invariants of a row, at every commit: current_count <= reserved_count <= rate_limit, and two
 * windows of a user never have the same start, which identifies them.
 */
#include "services/gateway/gateway_batch.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "flow/groups.h"
#include "services/gateway/gateway_answers.h"
#include "services/gateway/gateway_cache.h"
#include "services/gateway/gateway_events.h"
#include "services/gateway/limit_rules.h"

/* Well within IDEMPOTENCY_LEASE_US, so that others rarely take a pending Idempotency-Key over from
 * an owner that still works on it. */
#define PUBLISH_TIMEOUT_NS (3 * NS_PER_S)

/* ---- command types ----------------------------------------------------------------------- */

const struct command_type gateway_command_type = {"gateway_command", true};

struct gateway_command *gateway_command_new(struct arena *arena)
{
	struct gateway_command *command = arena_new(arena, struct gateway_command);

	command->write.command.type = &gateway_command_type;
	return command;
}

struct gateway_command *gateway_command_of(struct write *write)
{
	command_assert_type(&write->command, &gateway_command_type);
	return (struct gateway_command *)write;
}

const struct command_type gateway_lookup_type = {"gateway_lookup", false};

struct gateway_lookup *gateway_lookup_new(struct arena *arena)
{
	struct gateway_lookup *lookup = arena_new(arena, struct gateway_lookup);

	lookup->read.command.type = &gateway_lookup_type;
	return lookup;
}

bool gateway_command_is_open_send(const struct gateway_command *command)
{
	return command->verb == GATEWAY_SEND && !command->write.idempotency &&
	       command->write.fate == WRITE_OPEN;
}

/* ---- before the transaction -------------------------------------------------------------- */

/* Reserving a slot for a bus that is known to be down would only cost the user that slot. */
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
	refuse_without_bus(lane, batch); /* first: what the cache grants is never given back */
	if (lane->cache)
		gateway_cache_refuse(lane, session, batch);
}

/* ---- first transaction: reserve ---------------------------------------------------------- */

/* A pending Idempotency-Key records the window in which its slot was reserved. */
static void note_window(struct gateway_command *command)
{
	struct buffer note = buffer_make(command->write.command.arena, 24);

	if (!command->write.idempotency)
		return;
	buffer_int(&note, command->window_start_us);
	command->write.idempotency->note = buffer_slice(&note);
}

/* The row of one user while the commands of the batch change it. */
struct deciding {
	struct gateway_lane *lane;
	struct limit_row row;
	bool exists; /* in the store, or created earlier in this batch */
	int64_t now_us;
};

static void decide_config(struct deciding *deciding, struct gateway_command *command)
{
	struct arena *arena = command->write.command.arena;
	struct limit_row *row = &deciding->row;

	if (command->write.resumed) { /* done then; its cached copy is deleted again */
		write_resume_effect(&command->write);
		return;
	}
	if (!deciding->exists)
		row->last_refresh_us = 0;
	limit_refresh(row, deciding->now_us);
	row->rate_limit = command->rate_limit;
	row->time_window = command->time_window;
	deciding->exists = true;
	if (deciding->lane->cache) /* perform() deletes the cached copy after COMMIT */
		write_begin_effect(
			&command->write, gateway_answer_config(arena, &command->user, row));
	else
		write_answer(&command->write, gateway_answer_config(arena, &command->user, row));
}

/* Notes a cached copy that is of another window than the row. */
static void note_stale(struct gateway_lane *lane, const struct gateway_command *command,
	const struct limit_row *row)
{
	if (command->cached && command->window_start_us != row->last_refresh_us &&
		lane->stale_count < GATEWAY_STALE_MAX)
		lane->stale[lane->stale_count++] =
			arena_copy(&lane->stale_arena, command->user.text);
}

static struct limit_view view_of(const struct deciding *deciding)
{
	const struct limit_row *row = &deciding->row;
	int64_t unit_us = deciding->lane->gateway->window_unit_us;

	return (struct limit_view){
		.rate_limit = row->rate_limit,
		.window_us = row->time_window * unit_us,
		.remaining = row->rate_limit - limit_used(row),
		.left_us = limit_reset_us(row, unit_us) - deciding->now_us,
	};
}

/*
 * A pending key has a slot in the window in which it was reserved, and in no other: in a later
 * window its message counts like any other.
 */
static bool still_has_its_slot(
	const struct deciding *deciding, const struct gateway_command *command)
{
	int64_t window_us;

	return command->write.resumed &&
	       text_to_int(command->write.idempotency->note, &window_us) &&
	       window_us == deciding->row.last_refresh_us &&
	       !limit_has_elapsed(
		       &deciding->row, deciding->now_us, deciding->lane->gateway->window_unit_us);
}

static void decide_send(struct deciding *deciding, struct gateway_command *command)
{
	struct limit_row *row = &deciding->row;
	int64_t unit_us = deciding->lane->gateway->window_unit_us;
	struct limit_view limit;
	bool granted;

	if (!deciding->exists) {
		write_answer(&command->write,
			gateway_answer_no_config(command->write.command.arena, command->user.text));
		return;
	}
	if (still_has_its_slot(deciding, command)) {
		gateway_event_name(command);
		command->window_start_us = row->last_refresh_us;
		write_resume_effect(&command->write);
		return;
	}
	granted = limit_reserve(row, deciding->now_us, unit_us, 1) > 0;
	note_stale(deciding->lane, command, row);
	limit = view_of(deciding);
	if (!granted) {
		limit.remaining = 0;
		write_answer(&command->write, gateway_answer_refused(command, &limit));
		return;
	}
	gateway_event_name(command);
	command->window_start_us = row->last_refresh_us;
	note_window(command);
	write_begin_effect(&command->write,
		gateway_answer_queued(command, limit_reset_us(row, unit_us), &limit));
}

static void decide_group(struct deciding *deciding, const struct write_group *group)
{
	for (size_t i = 0; i < group->count; i++) {
		struct gateway_command *command = gateway_command_of(group->writes[i]);

		if (command->verb == GATEWAY_CONFIGURE)
			decide_config(deciding, command);
		else
			decide_send(deciding, command);
	}
}

static bool row_changed(const struct limit_row *before, const struct limit_row *after)
{
	return before->reserved_count != after->reserved_count ||
	       before->current_count != after->current_count ||
	       before->last_refresh_us != after->last_refresh_us ||
	       before->rate_limit != after->rate_limit || before->time_window != after->time_window;
}

enum status gateway_batch_decide(
	struct gateway_lane *lane, struct session *session, const struct write_batch *batch)
{
	const struct limit_repository *repository = lane->gateway->repository;
	size_t count, changed = 0;
	struct write_group *groups = write_groups(batch, &count);
	struct limit_row *rows = arena_array(batch->arena, struct limit_row, count);
	struct deciding deciding = {.lane = lane};
	enum status status;

	for (size_t i = 0; i < count; i++)
		rows[i].user_id = groups[i].key;
	status = repository->ops->lock(repository, session, rows, count, &deciding.now_us);
	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < count; i++) {
		if (rows[i].busy) {
			write_group_busy(&groups[i]);
			continue;
		}
		deciding.row = rows[i];
		deciding.exists = rows[i].exists;
		decide_group(&deciding, &groups[i]);
		if (row_changed(&rows[i], &deciding.row))
			rows[changed++] = deciding.row;
	}
	return changed > 0 ? repository->ops->put(repository, session, rows, changed) : STATUS_OK;
}

/* ---- publish ----------------------------------------------------------------------------- */

/* A resumed message may be on the bus already, from its first try, even if the second one fails. */
static void take_fate(struct gateway_command *command, enum bus_fate fate)
{
	struct write *write = &command->write;
	struct arena *arena = write->command.arena;

	if (fate == BUS_CONFIRMED) {
		write->effect = EFFECT_DONE;
	} else if (fate == BUS_NOT_PERSISTED && !write->resumed) {
		write->effect = EFFECT_FAILED;
		write->command.answer = answer_failure(arena, STATUS_BUS_UNAVAILABLE);
	} else {
		write->effect = EFFECT_UNKNOWN;
		write->command.answer = answer_failure(arena, STATUS_OUTCOME_UNKNOWN);
	}
}

static void publish(struct gateway_lane *lane, const struct write_batch *batch,
	struct gateway_command **sends, size_t count)
{
	struct bus_message *messages = arena_array(batch->arena, struct bus_message, count);
	int64_t until_ns = clock_steady_ns(&clock_system) + PUBLISH_TIMEOUT_NS;
	enum status status;

	for (size_t i = 0; i < count; i++)
		gateway_event_address(batch->arena, sends[i], &messages[i]);
	status = lane->producer->ops->publish(lane->producer, messages, count, until_ns);
	for (size_t i = 0; i < count; i++)
		take_fate(sends[i], status == STATUS_OK ? messages[i].fate : BUS_NOT_PERSISTED);
}

/* Deletes the cached copies of users whose configuration has changed. */
static void drop_cached(struct gateway_lane *lane, const struct slice *user_ids, size_t count)
{
	enum status ignored;

	if (!lane->cache || count == 0)
		return;
	/* A cache that is away deletes them before it is used again: see ports/cache.h. */
	ignored = lane->cache->ops->limit_drop(lane->cache, user_ids, count);
	(void)ignored;
}

void gateway_batch_perform(struct gateway_lane *lane, const struct write_batch *batch)
{
	struct gateway_command **sends =
		arena_array(batch->arena, struct gateway_command *, batch->count);
	struct slice *configured = arena_array(batch->arena, struct slice, batch->count);
	size_t send_count = 0, configured_count = 0;

	FAILPOINT("gateway.reserved");
	for (size_t i = 0; i < batch->count; i++) {
		struct gateway_command *command = gateway_command_of(batch->writes[i]);

		if (command->verb == GATEWAY_SEND) {
			sends[send_count++] = command;
		} else {
			configured[configured_count++] = command->user.text;
			command->write.effect = EFFECT_DONE;
		}
	}
	drop_cached(lane, configured, configured_count);
	if (send_count > 0)
		publish(lane, batch, sends, send_count);
	FAILPOINT("gateway.published");
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

/* Merges the entries to one per user and window. Returns how many remain. */
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

enum status gateway_batch_settle(
	const struct gateway_lane *lane, struct session *session, const struct write_batch *batch)
{
	struct limit_settlement *all =
		arena_array(batch->arena, struct limit_settlement, batch->count);
	size_t count = 0;

	for (size_t i = 0; i < batch->count; i++) {
		const struct gateway_command *command = gateway_command_of(batch->writes[i]);
		enum write_effect effect = command->write.effect;

		if (command->verb != GATEWAY_SEND || effect == EFFECT_UNKNOWN ||
			command->write.is_lost)
			continue;
		all[count].user_id = command->user.text;
		all[count].window_start_us = command->window_start_us;
		all[count].confirmed = effect == EFFECT_DONE;
		all[count++].given_back = effect == EFFECT_FAILED;
	}
	if (count == 0)
		return STATUS_OK;
	return lane->gateway->repository->ops->settle(
		lane->gateway->repository, session, all, merge(all, count));
}

/* ---- looking up -------------------------------------------------------------------------- */

static int compare_rows(const void *a, const void *b)
{
	return slice_compare(
		((const struct limit_row *)a)->user_id, ((const struct limit_row *)b)->user_id);
}

/* Fills `rows` with the users of the batch, sorted and without repetition. */
static size_t wanted_rows(const struct read_batch *batch, struct limit_row *rows)
{
	size_t kept = 0;

	for (size_t i = 0; i < batch->count; i++)
		rows[i].user_id = batch->reads[i]->command.key;
	qsort(rows, batch->count, sizeof(*rows), compare_rows);
	for (size_t i = 0; i < batch->count; i++) {
		if (kept == 0 || compare_rows(&rows[kept - 1], &rows[i]) != 0)
			rows[kept++] = rows[i];
	}
	return kept;
}

static void answer_lookup(const struct gateway *gateway, struct command *command,
	struct limit_row row, int64_t now_us)
{
	struct user_id user = {.text = command->key};

	if (!row.exists) {
		command->answer = gateway_answer_no_config(command->arena, command->key);
		return;
	}
	if (limit_has_elapsed(&row, now_us, gateway->window_unit_us))
		row.current_count = 0; /* as the next send will find it */
	command->answer = gateway_answer_config(command->arena, &user, &row);
}

enum status gateway_batch_look_up(
	const struct gateway *gateway, struct session *session, const struct read_batch *batch)
{
	struct limit_row *rows = arena_array(batch->arena, struct limit_row, batch->count);
	size_t count = wanted_rows(batch, rows);
	int64_t now_us;
	enum status status =
		gateway->repository->ops->find(gateway->repository, session, rows, count, &now_us);

	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < batch->count; i++) {
		struct limit_row wanted = {.user_id = batch->reads[i]->command.key};
		const struct limit_row *row =
			bsearch(&wanted, rows, count, sizeof(*rows), compare_rows);

		assert(row);
		answer_lookup(gateway, &batch->reads[i]->command, *row, now_us);
	}
	return STATUS_OK;
}
