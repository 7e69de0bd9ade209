/*
 * The first transaction of a batch: locks the rows of its users, runs each user's commands in order
 * of arrival, and writes the rows that have changed. gateway_batch.h lists the other steps.
 */
#include "base/text.h"
#include "flow/groups.h"
#include "services/gateway/gateway_answers.h"
#include "services/gateway/gateway_batch.h"
#include "services/gateway/gateway_cache.h"
#include "services/gateway/gateway_events.h"
#include "services/gateway/gateway_messages.h"
#include "services/gateway/limit_rules.h"

/* If the command has a pending Idempotency-Key, notes in its record the window of the reserved
 * slot. */
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
	/* true if the user has a row after the commands that have run so far; row.exists is true if
	 * the store has the row */
	bool exists;
	int64_t now_us;
};

/* Answers a change of the configuration. If there is a cache, the answer is sent only after
 * perform() has deleted the cached copy. */
static void answer_change(
	const struct deciding *deciding, struct gateway_command *command, struct answer answer)
{
	if (deciding->lane->cache)
		write_begin_effect(&command->write, answer);
	else
		write_answer(&command->write, answer);
}

static void decide_config(struct deciding *deciding, struct gateway_command *command)
{
	struct arena *arena = command->write.command.arena;
	struct limit_row *row = &deciding->row;

	/* an earlier attempt has committed the change; only the cached copy is deleted again */
	if (command->write.resumed) {
		write_resume_effect(&command->write);
		return;
	}
	limit_refresh(row, deciding->now_us);
	row->rate_limit = command->rate_limit;
	row->time_window = command->time_window;
	row->shadow = command->shadow;
	row->by_default = false;
	deciding->exists = true;
	answer_change(deciding, command, gateway_answer_config(arena, &command->user, row));
}

static void answer_no_config(struct gateway_command *command)
{
	write_answer(&command->write,
		gateway_answer_no_config(command->write.command.arena, command->user.text));
}

/* Removes the row. Keeps the start of the row's window in memory: if a later command of the same
 * batch configures the user again, the new window must have a different start. */
static void decide_remove(struct deciding *deciding, struct gateway_command *command)
{
	/* an earlier attempt has committed the change; only the cached copy is deleted again */
	if (command->write.resumed) {
		write_resume_effect(&command->write);
		return;
	}
	if (!deciding->exists) {
		answer_no_config(command);
		return;
	}
	deciding->exists = false;
	answer_change(deciding, command, answer_empty());
}

/* If a cached copy granted slots to this command, the copy is stale: notes it for deletion. */
static void note_stale(struct gateway_lane *lane, const struct gateway_command *command)
{
	if (command->cached)
		gateway_cache_note_stale(lane, command->user.text);
}

static struct limit_view view_of(const struct deciding *deciding)
{
	const struct limit_row *row = &deciding->row;
	int64_t unit_us = deciding->lane->gateway->window_unit_us;

	return (struct limit_view){
		.rate_limit = row->rate_limit,
		.window_us = row->time_window * unit_us,
		.remaining = limit_left(row),
		.left_us = limit_reset_us(row, unit_us) - deciding->now_us,
		.reset_us = limit_reset_us(row, unit_us),
	};
}

/*
 * Returns true if the command is resumed and the slot that it reserved earlier is still valid. A
 * slot is valid only in the window in which it was reserved. In a later window, the message needs a
 * new slot, as any other message does.
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

/* Returns true if the user has a row. Creates a missing row if there is a default limit. An
 * existing row may get a new default; see limit_follow_default(). */
static bool has_row(struct deciding *deciding)
{
	const struct gateway *gateway = deciding->lane->gateway;

	if (deciding->exists) {
		limit_follow_default(&deciding->row, &gateway->standard, deciding->now_us,
			gateway->window_unit_us);
	} else if (gateway->standard.rate_limit > 0) {
		limit_make_default(&deciding->row, &gateway->standard, deciding->now_us);
		deciding->exists = true;
	}
	return deciding->exists;
}

/* Decides about a send or take based on the row. If the command is refused, answers it and returns
 * false. */
static bool is_admitted(
	struct deciding *deciding, struct gateway_command *command, struct limit_view *limit)
{
	enum limit_verdict verdict = limit_admit(&deciding->row, deciding->now_us,
		deciding->lane->gateway->window_unit_us, command->amount, &command->slots);

	if (verdict == LIMIT_REFUSED || command->window_start_us != deciding->row.last_refresh_us)
		note_stale(deciding->lane, command);
	*limit = view_of(deciding);
	deciding->lane->shadowed += verdict == LIMIT_SHADOWED;
	if (verdict == LIMIT_REFUSED)
		write_answer(&command->write, gateway_answer_refused(command, limit));
	return verdict != LIMIT_REFUSED;
}

/* Answers a send of a user without a row. If the send is resumed, an earlier attempt may have
 * published the message before the row was removed. */
static void answer_no_row(struct gateway_command *command)
{
	if (command->write.resumed)
		write_answer(&command->write, gateway_answer_unknown_without_row(command));
	else
		answer_no_config(command);
}

static void decide_send(struct deciding *deciding, struct gateway_command *command)
{
	struct limit_row *row = &deciding->row;
	struct limit_view limit;

	if (!has_row(deciding)) {
		note_stale(deciding->lane, command);
		answer_no_row(command);
		return;
	}
	if (still_has_its_slot(deciding, command)) {
		gateway_event_name(command);
		command->window_start_us = row->last_refresh_us;
		command->slots = 1;
		write_resume_effect(&command->write);
		return;
	}
	if (!is_admitted(deciding, command, &limit))
		return;
	gateway_event_name(command);
	command->window_start_us = row->last_refresh_us;
	note_window(command);
	write_begin_effect(&command->write, gateway_answer_queued(command, &limit));
}

static void decide_take(struct deciding *deciding, struct gateway_command *command)
{
	struct limit_row *row = &deciding->row;
	struct limit_view limit;

	if (!has_row(deciding)) {
		note_stale(deciding->lane, command);
		answer_no_config(command);
		return;
	}
	if (command->amount > row->rate_limit && !row->shadow) {
		note_stale(deciding->lane, command);
		write_answer(&command->write, gateway_answer_too_much(command, row->rate_limit));
		return;
	}
	if (!is_admitted(deciding, command, &limit))
		return;
	row->current_count += command->slots;
	write_answer(&command->write, gateway_answer_taken(command, &limit));
}

static void decide_group(struct deciding *deciding, const struct write_group *group)
{
	for (size_t i = 0; i < group->count; i++) {
		struct gateway_command *command = gateway_command_of(group->writes[i]);

		if (command->verb == GATEWAY_CONFIGURE)
			decide_config(deciding, command);
		else if (command->verb == GATEWAY_REMOVE)
			decide_remove(deciding, command);
		else if (command->verb == GATEWAY_TAKE)
			decide_take(deciding, command);
		else
			decide_send(deciding, command);
	}
}

static bool row_changed(const struct limit_row *before, const struct limit_row *after)
{
	return before->reserved_count != after->reserved_count ||
	       before->current_count != after->current_count ||
	       before->last_refresh_us != after->last_refresh_us ||
	       before->rate_limit != after->rate_limit ||
	       before->time_window != after->time_window || before->shadow != after->shadow ||
	       before->by_default != after->by_default;
}

/* The rows to write, sorted by id. */
struct changes {
	struct limit_row *put;
	size_t put_count;
	struct slice *removed;
	size_t removed_count;
};

static void note_change(
	struct changes *changes, const struct limit_row *before, const struct deciding *after)
{
	if (!after->exists && before->exists)
		changes->removed[changes->removed_count++] = before->user_id;
	else if (after->exists && (!before->exists || row_changed(before, &after->row)))
		changes->put[changes->put_count++] = after->row;
}

static enum status write_changes(const struct limit_repository *repository, struct session *session,
	const struct changes *changes)
{
	enum status status = STATUS_OK;

	if (changes->put_count > 0)
		status =
			repository->ops->put(repository, session, changes->put, changes->put_count);
	if (status == STATUS_OK && changes->removed_count > 0)
		status = repository->ops->remove(
			repository, session, changes->removed, changes->removed_count);
	return status;
}

/* What to do with one row in a transaction: confirm or give back slots of earlier sends, run
 * commands, or both. */
struct row_work {
	const struct write_group *group; /* NULL if no command of the batch is on this row */
	/* for this user's earlier sends: how many slots to confirm and how many to give back */
	const struct limit_settlement *settlements;
	size_t settlement_count;
};

/* The rows that the transaction locks, in locking order: those of the batch's commands, and those
 * of earlier sends whose effects the transaction records. */
struct row_plan {
	struct limit_row *rows;
	struct row_work *work;
	size_t count;
};

/* Merges the groups of commands with the settlements of earlier sends. Both are sorted by user. */
static struct row_plan plan_rows(const struct write_batch *batch)
{
	size_t group_count, settlement_count = 0, g = 0, s = 0;
	const struct write_group *groups = write_groups(batch, &group_count);
	const struct limit_settlement *settlements =
		batch->ended ? gateway_settlements(batch->ended, &settlement_count) : NULL;
	size_t most = group_count + settlement_count;
	struct row_plan plan = {
		.rows = arena_array(batch->arena, struct limit_row, most),
		.work = arena_array(batch->arena, struct row_work, most),
	};

	while (g < group_count || s < settlement_count) {
		struct row_work *work = &plan.work[plan.count];
		int order = g == group_count ? 1
			    : s == settlement_count
				    ? -1
				    : slice_compare(groups[g].key, settlements[s].user_id);
		struct slice user_id = order <= 0 ? groups[g].key : settlements[s].user_id;

		plan.rows[plan.count++].user_id = user_id;
		if (order <= 0)
			work->group = &groups[g++];
		work->settlements = order >= 0 ? &settlements[s] : NULL;
		while (order >= 0 && s < settlement_count &&
			slice_equal(settlements[s].user_id, user_id)) {
			work->settlement_count++;
			s++;
		}
	}
	return plan;
}

/* Confirms slots and gives slots back, as the repository's settle() does. Ignores slots that were
 * not reserved in the current window of the row. */
static void settle_row(struct limit_row *row, const struct row_work *work)
{
	for (size_t i = 0; i < work->settlement_count; i++) {
		const struct limit_settlement *settlement = &work->settlements[i];

		if (row->exists && row->last_refresh_us == settlement->window_start_us) {
			row->current_count += settlement->confirmed;
			row->reserved_count -= settlement->given_back;
		}
	}
}

enum status gateway_batch_decide(
	struct gateway_lane *lane, struct session *session, const struct write_batch *batch)
{
	const struct limit_repository *repository = lane->gateway->repository;
	struct row_plan plan = plan_rows(batch);
	struct changes changes = {
		.put = arena_array(batch->arena, struct limit_row, plan.count),
		.removed = arena_array(batch->arena, struct slice, plan.count),
	};
	struct deciding deciding = {.lane = lane};
	enum status status;

	lane->shadowed = 0;
	status =
		repository->ops->lock(repository, session, plan.rows, plan.count, &deciding.now_us);
	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < plan.count; i++) {
		const struct row_work *work = &plan.work[i];

		/* A busy row has commands but no settlements, because a transaction that may skip
		 * rows records no effects. */
		if (plan.rows[i].busy) {
			write_group_busy(work->group);
			continue;
		}
		deciding.row = plan.rows[i];
		deciding.exists = plan.rows[i].exists;
		settle_row(&deciding.row, work);
		if (work->group)
			decide_group(&deciding, work->group);
		note_change(&changes, &plan.rows[i], &deciding);
	}
	if (lane->cache && batch->ended)
		gateway_cache_note_given_back(lane, batch->ended);
	status = write_changes(repository, session, &changes);
	if (status == STATUS_OK && batch->ended)
		status = gateway_messages_note(lane, session, batch->ended);
	return status;
}
