/*
 * Renders the answers about counts. If the state of a count is the reason for a refusal, the answer
 * includes that state, so that the caller need not look it up. The same functions render the
 * results of a batch and the answers to single requests, so the two formats cannot diverge.
 */
#include "services/counts/count_answers.h"

#include <stdio.h>

void count_write(struct buffer *body, const struct count_row *row)
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

/* Writes the beginning of the answer to a change, without the closing brace. */
static void write_value(struct buffer *body, struct slice item_id, int64_t value)
{
	buffer_text(body, "{\"itemId\":");
	buffer_json_string(body, item_id);
	buffer_text(body, ",\"value\":");
	buffer_int(body, value);
}

struct answer count_answer_value(const struct count_command *command, int64_t value)
{
	struct slice item_id = command->write.command.key;
	struct buffer body = buffer_make(command->write.command.arena, item_id.len + 48);

	write_value(&body, item_id, value);
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

/* Returns an answer with the count as it is after the command. */
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

	count_write(&body, &row);
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

static void write_bound(struct buffer *members, const char *name, const struct count_bound *bound)
{
	if (bound->is_set)
		buffer_member_int(members, name, bound->value);
	else
		buffer_format(members, ",\"%s\":null", name);
}

/* If the count's state is the reason for the refusal, adds the state to `members`, the members of
 * the problem. */
static void write_state(struct buffer *members, enum status status, const struct count_state *state)
{
	if (status != STATUS_COUNT_OUT_OF_BOUNDS && status != STATUS_COUNT_VALUE_CONFLICT)
		return;
	buffer_text(members, ",\"value\":");
	buffer_int(members, state->value);
	if (status == STATUS_COUNT_OUT_OF_BOUNDS) {
		write_bound(members, "minValue", &state->bounds.min);
		write_bound(members, "maxValue", &state->bounds.max);
	}
}

/* The words before and after the id in the detail of a refusal. */
struct wording {
	const char *before;
	const char *after;
};

static struct wording wording_of(enum status status)
{
	switch (status) {
	case STATUS_COUNT_NOT_FOUND:
		return (struct wording){"no count has the id", ""};
	case STATUS_COUNT_EXISTS:
		return (struct wording){"a count with the id", " exists already"};
	case STATUS_COUNT_OVERFLOW:
		return (struct wording){
			"the count", " would overflow a 64-bit integer; nothing was changed"};
	case STATUS_COUNT_OUT_OF_BOUNDS:
		return (struct wording){
			"the count", " would leave its bounds; nothing was changed"};
	default:
		return (struct wording){
			"the count", " does not have the expected value; nothing was changed"};
	}
}

/* Returns the problem that answers a refused change. `members` holds additional members of the
 * problem; if the count's state is the reason for the refusal, the state is appended to them. */
static struct answer answer_refused(struct buffer *members, struct slice item_id,
	enum status status, const struct count_state *state)
{
	struct wording wording = wording_of(status);
	char detail[256];

	snprintf(detail, sizeof(detail), "%s \"%.*s\"%s", wording.before, (int)item_id.len,
		item_id.data, wording.after);
	write_state(members, status, state);
	return answer_problem_with(members->arena, status, buffer_slice(members), detail);
}

struct answer count_answer_not_found(struct arena *arena, struct slice item_id)
{
	struct buffer members = buffer_make(arena, 1);

	return answer_refused(&members, item_id, STATUS_COUNT_NOT_FOUND, NULL);
}

struct answer count_answer_change(const struct count_command *command, enum status status,
	const struct count_state *state, int64_t now_us)
{
	const struct command *base = &command->write.command;
	struct buffer members = buffer_make(base->arena, 96);

	if (status != STATUS_OK)
		return answer_refused(&members, base->key, status, state);
	switch (command->change.verb) {
	case COUNT_VERB_CREATE:
		return answer_created(command, state, now_us);
	case COUNT_VERB_PUT:
		return answer_count(command, 200, state, now_us);
	case COUNT_VERB_REMOVE:
		return answer_empty();
	default:
		return count_answer_value(command, state->value);
	}
}

/* ---- batches ----------------------------------------------------------------------------- */

/* Writes the result of a refused change in a batch: the same problem that would answer the change
 * as a single request. */
static void write_problem(struct buffer *body, struct slice item_id, struct slice problem)
{
	buffer_text(body, "{\"itemId\":");
	buffer_json_string(body, item_id);
	buffer_text(body, ",\"problem\":");
	buffer_add(body, problem);
}

static void write_step(struct buffer *body, const struct count_step *step)
{
	struct buffer members = buffer_make(body->arena, 96);

	if (step->status == STATUS_OK)
		write_value(body, step->item_id, step->state.value);
	else
		write_problem(body, step->item_id,
			answer_refused(&members, step->item_id, step->status, &step->state).body);
	buffer_char(body, '}');
}

struct answer count_answer_steps(const struct count_command *command)
{
	struct buffer body =
		buffer_make(command->write.command.arena, 64 * command->step_count + 32);

	buffer_text(&body, "{\"results\":[");
	for (size_t i = 0; i < command->step_count; i++) {
		if (i > 0)
			buffer_char(&body, ',');
		write_step(&body, &command->steps[i]);
	}
	buffer_text(&body, "]}");
	return answer_json(200, buffer_slice(&body));
}

struct answer count_answer_step_refused(const struct count_command *command, size_t index)
{
	const struct count_step *step = &command->steps[index];
	struct buffer members = buffer_make(command->write.command.arena, 128);

	buffer_format(&members, ",\"index\":%zu", index);
	return answer_refused(&members, step->item_id, step->status, &step->state);
}

/* Writes one result of a batch: the answer to a change that ran as a separate command. */
static void write_result(struct buffer *body, const struct write *write)
{
	const struct answer *answer = &write->command.answer;

	if (answer->http_status == 200)
		buffer_add(body, slice_make(answer->body.data, answer->body.len - 1));
	else
		write_problem(body, write->command.key, answer->body);
	buffer_text(body, answer->replayed ? ",\"replayed\":true}" : "}");
}

struct answer count_answer_results(struct arena *arena, struct write *const *writes, size_t count)
{
	struct buffer body = buffer_make(arena, 64 * count + 32);

	buffer_text(&body, "{\"results\":[");
	for (size_t i = 0; i < count; i++) {
		if (i > 0)
			buffer_char(&body, ',');
		write_result(&body, writes[i]);
	}
	buffer_text(&body, "]}");
	return answer_json(200, buffer_slice(&body));
}
