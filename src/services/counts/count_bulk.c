/*
 * This file is deliberately simple: it locks all rows and folds nothing. The steps of an atomic
 * command depend on each other (all or none), so a batch cannot be decided count by count.
 *
 * If an atomic command is refused, its steps are undone in memory before the next command runs.
 * Each row is written once, at the end, with its final state.
 */
#include "services/counts/count_bulk.h"

#include "services/counts/count_answers.h"
#include "services/counts/count_lookup.h"

/* One count of the batch, as it is after the commands that have run so far. */
struct place {
	struct count_state state;
	bool changed;
};

/* The locked counts of a batch. */
struct places {
	struct count_row *rows; /* sorted by id */
	struct place *all;      /* the state of each row, at the same index */
	size_t count;
	int64_t now_us;
};

bool count_bulk_is_in(const struct write_batch *batch)
{
	for (size_t i = 0; i < batch->count; i++) {
		if (count_command_of(batch->writes[i])->step_count > 0)
			return true;
	}
	return false;
}

/* ---- the counts of a batch --------------------------------------------------------------- */

static size_t row_count_of(const struct write_batch *batch)
{
	size_t count = 0;

	for (size_t i = 0; i < batch->count; i++) {
		const struct count_command *command = count_command_of(batch->writes[i]);

		count += command->step_count > 0 ? command->step_count : 1;
	}
	return count;
}

static void collect_rows(const struct write_batch *batch, struct places *places)
{
	size_t room = row_count_of(batch), count = 0;

	places->rows = arena_array(batch->arena, struct count_row, room);
	for (size_t i = 0; i < batch->count; i++) {
		const struct count_command *command = count_command_of(batch->writes[i]);

		if (command->step_count == 0)
			places->rows[count++].item_id = command->write.command.key;
		for (size_t k = 0; k < command->step_count; k++)
			places->rows[count++].item_id = command->steps[k].item_id;
	}
	places->count = count_rows_unique(places->rows, count);
}

static enum status lock_rows(const struct count_repository *repository, struct session *session,
	struct arena *arena, struct places *places)
{
	enum status status = repository->ops->lock(
		repository, session, places->rows, places->count, &places->now_us);

	if (status != STATUS_OK)
		return status;
	places->all = arena_array(arena, struct place, places->count);
	for (size_t i = 0; i < places->count; i++) {
		const struct count_row *row = &places->rows[i];

		places->all[i].state = (struct count_state){
			.exists = row->exists, .value = row->value, .bounds = row->bounds};
	}
	return STATUS_OK;
}

static size_t index_of(const struct places *places, struct slice item_id)
{
	return (size_t)(count_rows_find(places->rows, places->count, item_id) - places->rows);
}

static bool is_busy(const struct places *places, const struct count_command *command)
{
	if (command->step_count == 0)
		return places->rows[index_of(places, command->write.command.key)].busy;
	for (size_t i = 0; i < command->step_count; i++) {
		if (places->rows[index_of(places, command->steps[i].item_id)].busy)
			return true;
	}
	return false;
}

/* ---- commands ---------------------------------------------------------------------------- */

static enum status apply(struct place *place, const struct count_change *change)
{
	enum status status = count_apply(&place->state, change);

	place->changed = place->changed || status == STATUS_OK;
	return status;
}

static void run_single(struct places *places, struct count_command *command)
{
	struct place *place = &places->all[index_of(places, command->write.command.key)];
	enum status status = apply(place, &command->change);

	write_answer(&command->write,
		count_answer_change(command, status, &place->state, places->now_us));
}

/* The state before a step, so that the step can be undone. */
struct undo {
	struct place *place;
	struct place before;
};

/* Runs the steps in order; an atomic command stops at the first refusal. Returns how many steps
 * have run, including a refused one. */
static size_t run_steps(struct places *places, struct count_command *command, struct undo *undos)
{
	for (size_t i = 0; i < command->step_count; i++) {
		struct count_step *step = &command->steps[i];
		struct place *place = &places->all[index_of(places, step->item_id)];

		undos[i] = (struct undo){place, *place};
		step->status = apply(place, &step->change);
		step->state = place->state;
		if (command->is_atomic && step->status != STATUS_OK)
			return i + 1;
	}
	return command->step_count;
}

static void run_many(struct places *places, struct arena *arena, struct count_command *command)
{
	struct undo *undos = arena_array(arena, struct undo, command->step_count);
	size_t ran = run_steps(places, command, undos);

	if (command->is_atomic && command->steps[ran - 1].status != STATUS_OK) {
		write_answer(&command->write, count_answer_step_refused(command, ran - 1));
		while (ran-- > 0)
			*undos[ran].place = undos[ran].before;
	} else {
		write_answer(&command->write, count_answer_steps(command));
	}
}

/* ---- writing ----------------------------------------------------------------------------- */

static enum status write_rows(const struct count_repository *repository, struct session *session,
	struct arena *arena, const struct places *places)
{
	struct count_edit *edits = arena_array(arena, struct count_edit, places->count);
	size_t count = 0;

	for (size_t i = 0; i < places->count; i++) {
		const struct place *place = &places->all[i];
		bool existed = places->rows[i].exists;

		if (!place->changed || !(existed || place->state.exists))
			continue;
		edits[count++] = (struct count_edit){
			.item_id = places->rows[i].item_id,
			.kind = !place->state.exists ? COUNT_DELETE
				: existed            ? COUNT_UPDATE
						     : COUNT_INSERT,
			.value = place->state.value,
			.bounds = place->state.bounds,
		};
	}
	if (count == 0)
		return STATUS_OK;
	return repository->ops->edit(repository, session, edits, count, places->now_us);
}

enum status count_bulk_decide(const struct count_repository *repository, struct session *session,
	const struct write_batch *batch)
{
	struct places places = {0};
	enum status status;

	collect_rows(batch, &places);
	status = lock_rows(repository, session, batch->arena, &places);
	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < batch->count; i++) {
		struct count_command *command = count_command_of(batch->writes[i]);

		if (is_busy(&places, command))
			command->write.fate = WRITE_BUSY;
		else if (command->step_count > 0)
			run_many(&places, batch->arena, command);
		else
			run_single(&places, command);
	}
	return write_rows(repository, session, batch->arena, &places);
}
