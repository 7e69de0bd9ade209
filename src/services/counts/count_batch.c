/*
 * Forty increments of one count become one UPDATE by 40, and each caller still gets the value right
 * after its own increment. A batch takes one of two ways:
 *
 *   plain   only additions that fold: one UPDATE for all counts, without reading them first
 *   locked  anything else: locks all rows in the order of their ids, runs the commands of each
 *           count one by one in memory, and writes the rows that changed
 *
 * A batch that needs one row locked locks all of its rows first, in order. Otherwise the rows of an
 * UPDATE in one process and the locks of another could wait for each other in a circle. Counts that
 * a plain UPDATE did not apply are locked after it; if that deadlocks, the store returns RERUN.
 *
 * An UPDATE applies all additions to a count or none. If one of them would leave the bounds, it
 * applies none, and the locked way refuses exactly that one. So a count that is sold out costs one
 * locked read for all requests of a batch, and nothing is written.
 */
#include "services/counts/count_batch.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "flow/groups.h"

/* ---- command types ----------------------------------------------------------------------- */

const struct command_type count_command_type = {"count_command", true};

struct count_command *count_command_new(struct arena *arena)
{
	struct count_command *command = arena_new(arena, struct count_command);

	command->write.command.type = &count_command_type;
	return command;
}

struct count_command *count_command_of(struct write *write)
{
	command_assert_type(&write->command, &count_command_type);
	return (struct count_command *)write;
}

const struct command_type count_lookup_type = {"count_lookup", false};

struct count_lookup *count_lookup_new(struct arena *arena)
{
	struct count_lookup *lookup = arena_new(arena, struct count_lookup);

	lookup->read.command.type = &count_lookup_type;
	return lookup;
}

struct count_lookup *count_lookup_of(struct read *read)
{
	command_assert_type(&read->command, &count_lookup_type);
	return (struct count_lookup *)read;
}

/* ---- groups ------------------------------------------------------------------------------ */

/* All commands of a batch on one count. */
struct group {
	struct write_group commands;
	struct count_fold fold;
	bool is_plain; /* only additions, they fold, and no UPDATE has left them unapplied before */
};

static struct count_command *command_at(const struct group *group, size_t i)
{
	return count_command_of(group->commands.writes[i]);
}

/* ---- answers ----------------------------------------------------------------------------- */

static void write_count(struct buffer *body, const struct count_row *row)
{
	buffer_text(body, "{\"itemId\":");
	buffer_json_string(body, row->item_id);
	buffer_text(body, ",\"currentValue\":");
	buffer_int(body, row->value);
	if (row->bounds.min.is_set)
		buffer_member_int(body, "minValue", row->bounds.min.value);
	if (row->bounds.max.is_set)
		buffer_member_int(body, "maxValue", row->bounds.max.value);
	buffer_text(body, ",\"lastUpdatedAt\":\"");
	buffer_time(body, row->updated_us);
	buffer_text(body, "\"}");
}

static struct answer answer_value(const struct count_command *command, int64_t value)
{
	struct slice item_id = command->write.command.key;
	struct buffer body = buffer_make(command->write.command.arena, item_id.len + 48);

	buffer_text(&body, "{\"itemId\":");
	buffer_json_string(&body, item_id);
	buffer_text(&body, ",\"value\":");
	buffer_int(&body, value);
	buffer_char(&body, '}');
	return answer_json(200, buffer_slice(&body));
}

static struct slice location_of(struct arena *arena, struct slice item_id)
{
	struct buffer path = buffer_make(arena, item_id.len + 32);

	buffer_text(&path, "/api/v1/internal/counts/");
	buffer_percent(&path, item_id);
	return buffer_slice(&path);
}

/* The count as it is after a command that has just written it. */
static struct answer answer_count(const struct count_command *command, int http_status,
	const struct count_state *state, int64_t now_us)
{
	const struct command *base = &command->write.command;
	struct buffer body = buffer_make(base->arena, base->key.len + 96);
	const struct count_row row = {
		.item_id = base->key,
		.value = state->value,
		.bounds = state->bounds,
		.updated_us = now_us,
	};

	write_count(&body, &row);
	return answer_json(http_status, buffer_slice(&body));
}

static struct answer answer_created(
	const struct count_command *command, const struct count_state *state, int64_t now_us)
{
	const struct command *base = &command->write.command;
	struct answer answer = answer_count(command, 201, state, now_us);

	answer.location = location_of(base->arena, base->key);
	return answer;
}

static struct answer answer_not_found(struct arena *arena, struct slice item_id)
{
	return answer_problem(arena, STATUS_COUNT_NOT_FOUND, "no count has the id \"%.*s\"",
		(int)item_id.len, item_id.data);
}

static void write_bound(struct buffer *members, const char *name, const struct count_bound *bound)
{
	if (bound->is_set)
		buffer_member_int(members, name, bound->value);
	else
		buffer_format(members, ",\"%s\":null", name);
}

/* Refuses because of what the count is, and says what that is: the caller need not look it up. */
static struct answer answer_unfit(
	const struct count_command *command, enum status status, const struct count_state *state)
{
	const struct command *base = &command->write.command;
	bool is_bounds = status == STATUS_COUNT_OUT_OF_BOUNDS;
	struct buffer members = buffer_make(base->arena, 96);
	char detail[256];

	buffer_text(&members, ",\"value\":");
	buffer_int(&members, state->value);
	if (is_bounds) {
		write_bound(&members, "minValue", &state->bounds.min);
		write_bound(&members, "maxValue", &state->bounds.max);
	}
	snprintf(detail, sizeof(detail), "the count \"%.*s\" %s; nothing was changed",
		(int)base->key.len, base->key.data,
		is_bounds ? "would leave its bounds" : "does not have the expected value");
	return answer_problem_with(base->arena, status, buffer_slice(&members), detail);
}

static struct answer answer_refused(
	const struct count_command *command, enum status status, const struct count_state *state)
{
	struct arena *arena = command->write.command.arena;
	struct slice item_id = command->write.command.key;
	int len = (int)item_id.len;

	switch (status) {
	case STATUS_COUNT_NOT_FOUND:
		return answer_not_found(arena, item_id);
	case STATUS_COUNT_EXISTS:
		return answer_problem(arena, status, "a count with the id \"%.*s\" exists already",
			len, item_id.data);
	case STATUS_COUNT_OVERFLOW:
		return answer_problem(arena, status,
			"the count \"%.*s\" would overflow a 64-bit integer; nothing was changed",
			len, item_id.data);
	case STATUS_COUNT_OUT_OF_BOUNDS:
	case STATUS_COUNT_VALUE_CONFLICT:
		return answer_unfit(command, status, state);
	default:
		return answer_failure(arena, STATUS_INTERNAL);
	}
}

static struct answer answer_change(const struct count_command *command, enum status status,
	const struct count_state *state, int64_t now_us)
{
	if (status != STATUS_OK)
		return answer_refused(command, status, state);
	switch (command->change.verb) {
	case COUNT_VERB_CREATE:
		return answer_created(command, state, now_us);
	case COUNT_VERB_PUT:
		return answer_count(command, 200, state, now_us);
	case COUNT_VERB_REMOVE:
		return answer_empty();
	default:
		return answer_value(command, state->value);
	}
}

/* ---- groups ------------------------------------------------------------------------------ */

static void fold(struct group *group)
{
	group->is_plain = true;
	for (size_t i = 0; i < group->commands.count && group->is_plain; i++) {
		const struct count_command *command = command_at(group, i);

		group->is_plain = command->change.verb == COUNT_VERB_ADD &&
				  !command->write.was_unapplied &&
				  count_fold_add(&group->fold, command->change.amount);
	}
}

static struct group *make_groups(const struct write_batch *batch, size_t *group_count)
{
	struct write_group *by_key = write_groups(batch, group_count);
	struct group *groups = arena_array(batch->arena, struct group, *group_count);

	for (size_t i = 0; i < *group_count; i++) {
		groups[i].commands = by_key[i];
		fold(&groups[i]);
	}
	return groups;
}

/* ---- plain additions --------------------------------------------------------------------- */

static bool all_plain(const struct group *groups, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!groups[i].is_plain)
			return false;
	}
	return true;
}

/* Each caller gets the value right after its own addition. */
static void answer_additions(const struct group *group, int64_t final_value)
{
	int64_t value = final_value - group->fold.sum;

	for (size_t i = 0; i < group->commands.count; i++) {
		struct count_command *command = command_at(group, i);

		value += command->change.amount;
		write_answer(&command->write, answer_value(command, value));
	}
}

/* Applies the groups as additions. Those that the store did not apply stay in `groups`. */
static enum status add_all(const struct count_repository *repository, struct session *session,
	struct arena *arena, struct group *groups, size_t *count)
{
	struct count_addition *additions = arena_array(arena, struct count_addition, *count);
	size_t left = 0;
	enum status status;

	for (size_t i = 0; i < *count; i++) {
		additions[i].item_id = groups[i].commands.key;
		additions[i].sum = groups[i].fold.sum;
		additions[i].lowest = groups[i].fold.lowest;
		additions[i].highest = groups[i].fold.highest;
	}
	status = repository->ops->add(repository, session, additions, *count);
	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < *count; i++) {
		if (additions[i].applied)
			answer_additions(&groups[i], additions[i].value);
		else
			groups[left++] = groups[i];
	}
	*count = left;
	return STATUS_OK;
}

/* The single statement skipped them: the count does not exist, or would leave its bounds. */
static void leave_unapplied(const struct group *groups, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		for (size_t k = 0; k < groups[i].commands.count; k++)
			groups[i].commands.writes[k]->fate = WRITE_UNAPPLIED;
	}
}

/* ---- other commands, on locked rows ------------------------------------------------------ */

/* Runs the commands of the group one by one. Returns whether the row must be written, as `edit`. */
static bool run_group(const struct group *group, const struct count_row *row, int64_t now_us,
	struct count_edit *edit)
{
	struct count_state state = {
		.exists = row->exists, .value = row->value, .bounds = row->bounds};
	bool changed = false;

	for (size_t i = 0; i < group->commands.count; i++) {
		struct count_command *command = command_at(group, i);
		enum status status = count_apply(&state, &command->change);

		changed = changed || status == STATUS_OK;
		write_answer(&command->write, answer_change(command, status, &state, now_us));
	}
	edit->item_id = group->commands.key;
	edit->value = state.value;
	edit->bounds = state.bounds;
	edit->kind = !state.exists ? COUNT_DELETE : row->exists ? COUNT_UPDATE : COUNT_INSERT;
	return changed && (row->exists || state.exists);
}

static enum status run_locked(const struct count_repository *repository, struct session *session,
	struct arena *arena, const struct group *groups, size_t count)
{
	struct count_row *rows = arena_array(arena, struct count_row, count);
	struct count_edit *edits = arena_array(arena, struct count_edit, count);
	size_t edit_count = 0;
	int64_t now_us;
	enum status status;

	for (size_t i = 0; i < count; i++)
		rows[i].item_id = groups[i].commands.key;
	status = repository->ops->lock(repository, session, rows, count, &now_us);
	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < count; i++) {
		if (rows[i].busy)
			write_group_busy(&groups[i].commands);
		else if (run_group(&groups[i], &rows[i], now_us, &edits[edit_count]))
			edit_count++;
	}
	if (edit_count == 0)
		return STATUS_OK;
	return repository->ops->edit(repository, session, edits, edit_count, now_us);
}

bool count_batch_is_single(const struct write_batch *batch)
{
	for (size_t i = 0; i < batch->count; i++) {
		if (count_command_of(batch->writes[i])->change.verb != COUNT_VERB_ADD)
			return false;
	}
	return true;
}

/*
 * TRANSACTION_SKIP always locks, because an UPDATE cannot skip rows that others hold. A
 * TRANSACTION_SINGLE applies what one statement can and leaves the rest to an ordinary transaction.
 */
enum status count_batch_decide(const struct count_repository *repository, struct session *session,
	const struct write_batch *batch)
{
	size_t count;
	struct group *groups = make_groups(batch, &count);
	bool plain = batch->mode != TRANSACTION_SKIP && all_plain(groups, count);
	enum status status = STATUS_OK;

	if (plain)
		status = add_all(repository, session, batch->arena, groups, &count);
	if (status != STATUS_OK || count == 0)
		return status;
	if (batch->mode != TRANSACTION_SINGLE)
		return run_locked(repository, session, batch->arena, groups, count);
	leave_unapplied(groups, count);
	return STATUS_OK;
}

/* ---- looking up -------------------------------------------------------------------------- */

static int compare_rows(const void *a, const void *b)
{
	return slice_compare(
		((const struct count_row *)a)->item_id, ((const struct count_row *)b)->item_id);
}

size_t count_rows_unique(struct count_row *rows, size_t count)
{
	size_t kept = 0;

	qsort(rows, count, sizeof(*rows), compare_rows);
	for (size_t i = 0; i < count; i++) {
		if (kept == 0 || compare_rows(&rows[kept - 1], &rows[i]) != 0)
			rows[kept++] = rows[i];
	}
	return kept;
}

const struct count_row *count_rows_find(
	const struct count_row *rows, size_t count, struct slice item_id)
{
	struct count_row wanted = {.item_id = item_id};
	const struct count_row *row = bsearch(&wanted, rows, count, sizeof(*rows), compare_rows);

	assert(row);
	return row;
}

/* Returns the counts that the batch looks up, sorted and without repetition. */
static struct count_row *wanted_rows(const struct read_batch *batch, size_t *row_count)
{
	struct count_row *rows;
	size_t total = 0;

	for (size_t i = 0; i < batch->count; i++)
		total += count_lookup_of(batch->reads[i])->item_count;
	rows = arena_array(batch->arena, struct count_row, total);
	total = 0;
	for (size_t i = 0; i < batch->count; i++) {
		const struct count_lookup *lookup = count_lookup_of(batch->reads[i]);

		for (size_t k = 0; k < lookup->item_count; k++)
			rows[total++].item_id = lookup->item_ids[k];
	}
	*row_count = count_rows_unique(rows, total);
	return rows;
}

static struct answer answer_lookup(
	const struct count_lookup *lookup, const struct count_row *rows, size_t row_count)
{
	struct arena *arena = lookup->read.command.arena;
	struct buffer body = buffer_make(arena, 96 * lookup->item_count + 8);
	bool first = true;

	if (!lookup->single)
		buffer_char(&body, '[');
	for (size_t i = 0; i < lookup->item_count; i++) {
		const struct count_row *row = count_rows_find(rows, row_count, lookup->item_ids[i]);

		if (!row->exists && lookup->single)
			return answer_not_found(arena, row->item_id);
		if (!row->exists)
			continue;
		if (!first)
			buffer_char(&body, ',');
		write_count(&body, row);
		first = false;
	}
	if (!lookup->single)
		buffer_char(&body, ']');
	return answer_json(200, buffer_slice(&body));
}

enum status count_batch_look_up(const struct count_repository *repository, struct session *session,
	const struct read_batch *batch)
{
	size_t row_count;
	struct count_row *rows = wanted_rows(batch, &row_count);
	enum status status = repository->ops->find(repository, session, rows, row_count);

	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < batch->count; i++)
		batch->reads[i]->command.answer =
			answer_lookup(count_lookup_of(batch->reads[i]), rows, row_count);
	return STATUS_OK;
}
