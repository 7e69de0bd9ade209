/* What callers read about counts. */
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

struct answer count_answer_value(const struct count_command *command, int64_t value)
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

struct answer count_answer_not_found(struct arena *arena, struct slice item_id)
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
		return count_answer_not_found(arena, item_id);
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

struct answer count_answer_change(const struct count_command *command, enum status status,
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
		return count_answer_value(command, state->value);
	}
}
