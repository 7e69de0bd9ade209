/*
 * Every change writes three things in one transaction: the row, a line of the audit and an event in
 * the outbox. A relay publishes the event afterwards, so a broker that is away fails no request.
 *
 * Invariant: the versions of an entitlement count its changes without a gap, and each version has
 * exactly one line and one event. A row that several commands of a batch change is written once,
 * with its last state.
 */
#include "services/entitlements/entitlement_batch.h"

#include "base/uuid.h"
#include "events/entitlement_event.h"
#include "flow/groups.h"

/* ---- command types ----------------------------------------------------------------------- */

const struct command_type entitlement_command_type = {"entitlement_command", true};

struct entitlement_command *entitlement_command_new(struct arena *arena)
{
	struct entitlement_command *command = arena_new(arena, struct entitlement_command);

	command->write.command.type = &entitlement_command_type;
	return command;
}

struct entitlement_command *entitlement_command_of(struct write *write)
{
	command_assert_type(&write->command, &entitlement_command_type);
	return (struct entitlement_command *)write;
}

const struct command_type entitlement_lookup_type = {"entitlement_lookup", false};

struct entitlement_lookup *entitlement_lookup_new(struct arena *arena)
{
	struct entitlement_lookup *lookup = arena_new(arena, struct entitlement_lookup);

	lookup->read.command.type = &entitlement_lookup_type;
	return lookup;
}

struct entitlement_lookup *entitlement_lookup_of(struct read *read)
{
	command_assert_type(&read->command, &entitlement_lookup_type);
	return (struct entitlement_lookup *)read;
}

/* Sorts below every character that an id may have, so keys sort as the pairs do. */
#define KEY_SEPARATOR '\x1f'

struct slice entitlement_lane_key(struct arena *arena, struct slice user_id, struct slice unit)
{
	struct buffer key = buffer_make(arena, user_id.len + unit.len + 1);

	buffer_add(&key, user_id);
	buffer_char(&key, KEY_SEPARATOR);
	buffer_add(&key, unit);
	return buffer_slice(&key);
}

/* ---- answers ----------------------------------------------------------------------------- */

/* Writes the members of an entitlement from stock_keeping_unit on, and the closing brace. */
static void write_rest(struct buffer *body, const struct entitlement_row *row)
{
	buffer_text(body, "\"stock_keeping_unit\":");
	buffer_json_string(body, row->unit);
	buffer_text(body, row->is_active ? ",\"status\":\"ACTIVE\"" : ",\"status\":\"REVOKED\"");
	buffer_format(body, ",\"version\":%lld,\"updated_at\":\"", (long long)row->version);
	buffer_time(body, row->updated_us);
	buffer_text(body, "\"}");
}

static void write_entitlement(struct buffer *body, const struct entitlement_row *row)
{
	buffer_text(body, "{\"user_id\":");
	buffer_json_string(body, row->user_id);
	buffer_char(body, ',');
	write_rest(body, row);
}

static struct answer answer_row(struct arena *arena, const struct entitlement_row *row)
{
	struct buffer body = buffer_make(arena, row->user_id.len + row->unit.len + 128);

	write_entitlement(&body, row);
	return answer_json(200, buffer_slice(&body));
}

static struct answer answer_conflict(struct arena *arena, const struct entitlement_row *row)
{
	struct buffer members = buffer_make(arena, row->user_id.len + row->unit.len + 160);

	buffer_text(&members, ",\"entitlement\":");
	write_entitlement(&members, row);
	return answer_problem_with(arena, STATUS_ENTITLEMENT_STATE_CONFLICT, buffer_slice(&members),
		row->is_active ? "the entitlement is ACTIVE already; nothing was changed"
			       : "the entitlement is REVOKED already; nothing was changed");
}

static struct answer answer_refused(
	struct arena *arena, const struct entitlement_row *row, enum status status)
{
	if (status == STATUS_ENTITLEMENT_STATE_CONFLICT)
		return answer_conflict(arena, row);
	return answer_problem(arena, status,
		"the user \"%.*s\" was never granted \"%.*s\"; nothing was changed",
		(int)row->user_id.len, row->user_id.data, (int)row->unit.len, row->unit.data);
}

/* ---- changes ----------------------------------------------------------------------------- */

/* What one transaction writes. */
struct changes {
	struct arena *arena;
	int64_t now_us;
	struct entitlement_row *rows; /* each row once, with its last state */
	size_t row_count;
	struct entitlement_audit *lines; /* one per change */
	struct outbox_event *events;     /* one per change */
	size_t change_count;
};

static struct outbox_event make_event(const struct changes *changes,
	const struct entitlement_command *command, const struct entitlement_row *row)
{
	char *event_id = arena_alloc(changes->arena, UUID_SIZE);
	struct entitlement_event event = {
		.event_type = slice_of(row->is_active ? ENTITLEMENT_GRANTED : ENTITLEMENT_REVOKED),
		.occurred_us = changes->now_us,
		.user_id = row->user_id,
		.unit = row->unit,
		.source = command->reason,
		.source_id = command->purchase_id,
		.version = row->version,
	};

	uuid_of_time(changes->now_us, event_id);
	event.event_id = slice_of(event_id);
	return (struct outbox_event){
		.id = event.event_id,
		.type = event.event_type,
		.key = entitlement_aggregate_key(changes->arena, row->user_id, row->unit),
		.trace = command->traceparent,
		.payload = entitlement_event_pack(changes->arena, &event),
		.occurred_us = changes->now_us,
	};
}

static void record_change(struct changes *changes, const struct entitlement_command *command,
	const struct entitlement_row *row)
{
	struct outbox_event event = make_event(changes, command, row);

	changes->events[changes->change_count] = event;
	changes->lines[changes->change_count++] = (struct entitlement_audit){
		.user_id = row->user_id,
		.unit = row->unit,
		.is_active = row->is_active,
		.version = row->version,
		.reason = command->reason,
		.purchase_id = command->purchase_id,
		.event_id = event.id,
		.at_us = changes->now_us,
	};
}

/* Runs one command on the row, which earlier commands of the batch may have changed. */
static enum status run_command(
	struct changes *changes, struct entitlement_command *command, struct entitlement_row *row)
{
	struct arena *arena = command->write.command.arena;
	struct entitlement_state state = {
		.exists = row->version > 0, .is_active = row->is_active, .version = row->version};
	enum status status = entitlement_apply(&state, command->verb);

	if (status != STATUS_OK) {
		write_answer(&command->write, answer_refused(arena, row, status));
		return status;
	}
	row->is_active = state.is_active;
	row->version = state.version;
	row->updated_us = changes->now_us;
	record_change(changes, command, row);
	write_answer(&command->write, answer_row(arena, row));
	return STATUS_OK;
}

static void run_group(struct changes *changes, const struct write_group *group,
	const struct entitlement_row *found)
{
	struct entitlement_row row = *found;
	bool changed = false;

	for (size_t i = 0; i < group->count; i++) {
		struct entitlement_command *command = entitlement_command_of(group->writes[i]);

		changed = run_command(changes, command, &row) == STATUS_OK || changed;
	}
	if (changed)
		changes->rows[changes->row_count++] = row;
}

static enum status write_changes(const struct entitlements *entitlements, struct session *session,
	const struct changes *changes)
{
	const struct entitlement_repository *repository = entitlements->repository;
	enum status status;

	if (changes->change_count == 0)
		return STATUS_OK;
	status = repository->ops->put(repository, session, changes->rows, changes->row_count);
	if (status == STATUS_OK)
		status = repository->ops->audit(
			repository, session, changes->lines, changes->change_count);
	if (status == STATUS_OK)
		status = entitlements->outbox->ops->put(
			entitlements->outbox, session, changes->events, changes->change_count);
	return status;
}

static struct entitlement_row *make_rows(
	struct arena *arena, const struct write_group *groups, size_t count)
{
	struct entitlement_row *rows = arena_array(arena, struct entitlement_row, count);

	for (size_t i = 0; i < count; i++) {
		const struct entitlement_command *first =
			entitlement_command_of(groups[i].writes[0]);

		rows[i].user_id = first->user_id;
		rows[i].unit = first->unit;
	}
	return rows;
}

enum status entitlement_batch_decide(const struct entitlements *entitlements,
	struct session *session, const struct write_batch *batch)
{
	size_t count;
	struct write_group *groups = write_groups(batch, &count);
	struct entitlement_row *rows = make_rows(batch->arena, groups, count);
	struct changes changes = {.arena = batch->arena};
	enum status status = entitlements->repository->ops->lock(
		entitlements->repository, session, rows, count, &changes.now_us);

	if (status != STATUS_OK)
		return status;
	changes.rows = arena_array(batch->arena, struct entitlement_row, count);
	changes.lines = arena_array(batch->arena, struct entitlement_audit, batch->count);
	changes.events = arena_array(batch->arena, struct outbox_event, batch->count);
	for (size_t i = 0; i < count; i++) {
		if (rows[i].busy)
			write_group_busy(&groups[i]);
		else
			run_group(&changes, &groups[i], &rows[i]);
	}
	return write_changes(entitlements, session, &changes);
}

/* ---- looking up -------------------------------------------------------------------------- */

static struct answer answer_page(
	const struct entitlement_lookup *lookup, const struct entitlement_query *query)
{
	struct arena *arena = lookup->read.command.arena;
	size_t shown = query->row_count < lookup->limit ? query->row_count : lookup->limit;
	struct buffer body = buffer_make(arena, 128 * shown + 256);
	struct answer answer;

	buffer_text(&body, "{\"user_id\":");
	buffer_json_string(&body, lookup->user_id);
	buffer_text(&body, ",\"entitlements\":[");
	for (size_t i = 0; i < shown; i++) {
		buffer_text(&body, i == 0 ? "{" : ",{");
		write_rest(&body, &query->rows[i]);
	}
	buffer_text(&body, "]}");
	answer = answer_json(200, buffer_slice(&body));
	if (query->row_count > shown)
		answer_add_next(
			&answer, arena, lookup->path, lookup->limit, query->rows[shown - 1].unit);
	return answer;
}

enum status entitlement_batch_look_up(const struct entitlements *entitlements,
	struct session *session, const struct read_batch *batch)
{
	struct entitlement_query *queries =
		arena_array(batch->arena, struct entitlement_query, batch->count);
	enum status status;

	for (size_t i = 0; i < batch->count; i++) {
		const struct entitlement_lookup *lookup = entitlement_lookup_of(batch->reads[i]);

		queries[i].user_id = lookup->user_id;
		queries[i].after = lookup->after;
		queries[i].limit =
			lookup->limit + 1; /* the extra row shows that there is a next page */
	}
	status = entitlements->repository->ops->list(
		entitlements->repository, session, batch->arena, queries, batch->count);
	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < batch->count; i++)
		batch->reads[i]->command.answer =
			answer_page(entitlement_lookup_of(batch->reads[i]), &queries[i]);
	return STATUS_OK;
}
