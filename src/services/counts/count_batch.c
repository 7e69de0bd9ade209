/*
 * Forty increments of one count become one UPDATE by 40. Even so, each caller gets the value that
 * the count had just after the caller's own increment. A batch runs in one of two ways:
 *
 *   plain   only additions, whose sums do not overflow: one UPDATE for all counts, without reading
 *           them first
 *   locked  all other batches: locks all rows in id order, runs the commands of each
 *           count one by one in memory, and writes the rows that changed
 *
 * If a batch must lock even one row, it first locks all of its rows, in id order. Otherwise the
 * UPDATE of one process and the locks of another could deadlock. There is one exception: counts
 * that a plain UPDATE did not change are locked after the UPDATE. If these locks deadlock, the
 * store returns RERUN.
 *
 * A command with several steps needs all of its rows before it can be decided. Batches with such a
 * command run in count_bulk.c.
 *
 * An UPDATE applies either all additions to a count or none. If one addition would exceed the
 * bounds, the UPDATE applies none of them. They then run one by one on the locked row, and only
 * those that exceed the bounds are refused. For a count that has reached its bound (sold out), one
 * locked read serves all requests of a batch, and nothing is written.
 */
#include "services/counts/count_batch.h"

#include "flow/groups.h"
#include "services/counts/count_answers.h"
#include "services/counts/count_bulk.h"

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

/* ---- groups ------------------------------------------------------------------------------ */

/* All commands of a batch on one count. */
struct group {
	struct write_group commands;
	struct count_fold fold;
	/* true if all commands are additions, their sum does not overflow, and no earlier
	 * transaction left one of them UNAPPLIED */
	bool is_plain;
};

static struct count_command *command_at(const struct group *group, size_t i)
{
	return count_command_of(group->commands.writes[i]);
}

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

/* Answers each caller with the value that the count had just after the caller's own addition. */
static void answer_additions(const struct group *group, int64_t final_value)
{
	int64_t value = final_value - group->fold.sum;

	for (size_t i = 0; i < group->commands.count; i++) {
		struct count_command *command = command_at(group, i);

		value += command->change.amount;
		write_answer(&command->write, count_answer_value(command, value));
	}
}

/* Applies the groups as additions. Only groups that the store did not apply remain in `groups`. */
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

/* Marks the commands of these groups as UNAPPLIED, because the one statement of TRANSACTION_SINGLE
 * did not apply them. There are three possible reasons: the count does not exist, the count would
 * exceed its bounds, or the sum of some additions in the batch overflows. */
static void leave_unapplied(const struct group *groups, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		for (size_t k = 0; k < groups[i].commands.count; k++)
			groups[i].commands.writes[k]->fate = WRITE_UNAPPLIED;
	}
}

/* ---- other commands, on locked rows ------------------------------------------------------ */

/* Runs the commands of the group one by one. If the row must be written, sets `edit` and returns
 * true. */
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
		write_answer(&command->write, count_answer_change(command, status, &state, now_us));
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
		const struct count_command *command = count_command_of(batch->writes[i]);

		if (command->step_count > 0 || command->change.verb != COUNT_VERB_ADD)
			return false;
	}
	return true;
}

/*
 * Under TRANSACTION_SKIP, run_locked() also runs plain additions, because an UPDATE cannot skip
 * rows that other sessions have locked. Under TRANSACTION_SINGLE, one statement applies the
 * additions that it can, and a later, ordinary transaction decides the other commands.
 */
enum status count_batch_decide(const struct count_repository *repository, struct session *session,
	const struct write_batch *batch)
{
	size_t count;
	struct group *groups;
	enum status status = STATUS_OK;

	if (count_bulk_is_in(batch))
		return count_bulk_decide(repository, session, batch);
	groups = make_groups(batch, &count);
	if (batch->mode != TRANSACTION_SKIP && all_plain(groups, count))
		status = add_all(repository, session, batch->arena, groups, &count);
	if (status != STATUS_OK || count == 0)
		return status;
	if (batch->mode != TRANSACTION_SINGLE)
		return run_locked(repository, session, batch->arena, groups, count);
	leave_unapplied(groups, count);
	return STATUS_OK;
}
