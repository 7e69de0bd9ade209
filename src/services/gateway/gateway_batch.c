#include "services/gateway/gateway_batch.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "flow/groups.h"
#include "services/gateway/limit_rules.h"

/* Well within IDEMPOTENCY_LEASE_US, so that a pending key is rarely taken over from a live owner.
 */
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

struct gateway_lookup *gateway_lookup_of(struct read *read)
{
	command_assert_type(&read->command, &gateway_lookup_type);
	return (struct gateway_lookup *)read;
}

/* ---- answers ----------------------------------------------------------------------------- */

static void write_user_id(struct buffer *body, const struct user_id *user)
{
	if (user->is_number)
		buffer_add(body, user->text);
	else
		buffer_json_string(body, user->text);
}

static void write_time(struct buffer *body, const char *name, int64_t time_us)
{
	buffer_format(body, ",\"%s\":\"", name);
	buffer_time(body, time_us);
	buffer_char(body, '"');
}

static int64_t seconds_up(int64_t us)
{
	return us <= 0 ? 0 : (us + 999999) / 1000000;
}

/* RateLimit-Policy: "sms";q=5;w=60 and RateLimit: "sms";r=4;t=41, on every decision. */
static void write_limit_headers(struct buffer *headers, int64_t rate_limit, int64_t window_us,
	int64_t remaining, int64_t left_us)
{
	buffer_format(headers, "RateLimit-Policy: \"sms\";q=%lld;w=%lld\r\n", (long long)rate_limit,
		(long long)seconds_up(window_us));
	buffer_format(headers, "RateLimit: \"sms\";r=%lld;t=%lld\r\n", (long long)remaining,
		(long long)seconds_up(left_us));
}

struct answer gateway_answer_refused(struct arena *arena, const struct gateway_command *command,
	int64_t rate_limit, int64_t window_us, int64_t left_us)
{
	struct buffer headers = buffer_make(arena, 128);
	int64_t wait_s = seconds_up(left_us) > 0 ? seconds_up(left_us) : 1;
	struct answer answer = answer_problem(arena, STATUS_RATE_LIMIT_EXCEEDED,
		"the rate limit of user \"%.*s\" is exceeded: %lld messages in %lld s; try again "
		"in %lld s",
		(int)command->user.text.len, command->user.text.data, (long long)rate_limit,
		(long long)seconds_up(window_us), (long long)wait_s);

	write_limit_headers(&headers, rate_limit, window_us, 0, left_us);
	buffer_format(&headers, "Retry-After: %lld\r\n", (long long)wait_s);
	answer.headers = buffer_slice(&headers);
	return answer;
}

static struct answer answer_no_config(const struct gateway_command *command)
{
	return answer_problem(command->write.command.arena, STATUS_CONFIG_NOT_FOUND,
		"no configuration exists for the user \"%.*s\"; make one with POST /api/config",
		(int)command->user.text.len, command->user.text.data);
}

static struct answer answer_config(
	struct arena *arena, const struct user_id *user, const struct limit_row *row)
{
	struct buffer body = buffer_make(arena, 192);

	buffer_text(&body, "{\"userId\":");
	write_user_id(&body, user);
	buffer_format(&body, ",\"rateLimit\":%d,\"timeWindow\":%d,\"currentCount\":%d",
		row->rate_limit, row->time_window, row->current_count);
	write_time(&body, "lastRefreshTime", row->last_refresh_us);
	buffer_char(&body, '}');
	return answer_json(200, buffer_slice(&body));
}

static struct answer answer_queued(const struct gateway_command *command,
	const struct limit_row *row, int64_t now_us, int64_t unit_us)
{
	struct arena *arena = command->write.command.arena;
	struct buffer body = buffer_make(arena, 192);
	struct buffer headers = buffer_make(arena, 96);
	int64_t reset_us = limit_reset_us(row, unit_us);
	int32_t remaining = row->rate_limit - limit_used(row);
	struct answer answer;

	buffer_format(&body,
		"{\"status\":\"QUEUED\",\"messageId\":\"%s\",\"userId\":", command->message_id);
	write_user_id(&body, &command->user);
	buffer_format(&body, ",\"remaining\":%d", remaining);
	write_time(&body, "resetAt", reset_us);
	buffer_char(&body, '}');
	answer = answer_json(200, buffer_slice(&body));
	write_limit_headers(&headers, row->rate_limit, row->time_window * unit_us, remaining,
		reset_us - now_us);
	answer.headers = buffer_slice(&headers);
	return answer;
}

/* ---- first transaction: reserve ---------------------------------------------------------- */

/* The same key gives the same id, so that a message that is published again is known again. */
static void name_message(struct gateway_command *command)
{
	const struct idempotency_record *key = command->write.idempotency;

	if (command->message_id[0] != '\0')
		return;
	if (key) {
		struct buffer name = buffer_make(
			command->write.command.arena, key->scope.len + key->key.len + 1);

		buffer_add(&name, key->scope);
		buffer_char(&name, '\0');
		buffer_add(&name, key->key);
		uuid_of_name(buffer_slice(&name), command->message_id);
	} else {
		uuid_random(command->message_id);
	}
}

/* A pending key remembers the window in which its slot was reserved. */
static void note_window(struct gateway_command *command)
{
	struct buffer note = buffer_make(command->write.command.arena, 24);

	if (!command->write.idempotency)
		return;
	buffer_int(&note, command->window_start_us);
	command->write.idempotency->note = buffer_slice(&note);
}

struct deciding {
	struct gateway_lane *lane;
	struct limit_row row;
	bool exists; /* by now, in this batch */
	int64_t now_us;
};

static void decide_config(struct deciding *deciding, struct gateway_command *command)
{
	struct arena *arena = command->write.command.arena;
	struct limit_row *row = &deciding->row;

	if (!deciding->exists)
		row->last_refresh_us = 0;
	limit_refresh(row, deciding->now_us);
	row->rate_limit = command->rate_limit;
	row->time_window = command->time_window;
	deciding->exists = true;
	if (deciding->lane->cache) /* whose copy is to be deleted after COMMIT */
		write_begin_effect(&command->write, answer_config(arena, &command->user, row));
	else
		write_answer(&command->write, answer_config(arena, &command->user, row));
}

static void note_stale(struct gateway_lane *lane, const struct gateway_command *command,
	const struct limit_row *row)
{
	if (command->cached && command->window_start_us != row->last_refresh_us &&
		lane->stale_count < GATEWAY_STALE_MAX)
		lane->stale[lane->stale_count++] =
			arena_copy(&lane->stale_arena, command->user.text);
}

static void decide_send(struct deciding *deciding, struct gateway_command *command)
{
	struct limit_row *row = &deciding->row;
	int64_t unit_us = deciding->lane->gateway->window_unit_us;
	bool granted;

	if (!deciding->exists) {
		write_answer(&command->write, answer_no_config(command));
		return;
	}
	granted = limit_reserve(row, deciding->now_us, unit_us, 1) > 0;
	note_stale(deciding->lane, command, row);
	if (!granted) {
		write_answer(&command->write,
			gateway_answer_refused(command->write.command.arena, command,
				row->rate_limit, row->time_window * unit_us,
				limit_reset_us(row, unit_us) - deciding->now_us));
		return;
	}
	name_message(command);
	command->window_start_us = row->last_refresh_us;
	note_window(command);
	write_begin_effect(&command->write, answer_queued(command, row, deciding->now_us, unit_us));
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

enum status gateway_decide(void *context, struct session *session, const struct write_batch *batch)
{
	struct gateway_lane *lane = context;
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

static struct slice render_event(struct arena *arena, const struct gateway_command *command)
{
	struct buffer value = buffer_make(arena, 160 + command->message.len);

	buffer_format(&value, "{\"messageId\":\"%s\",\"userId\":", command->message_id);
	write_user_id(&value, &command->user);
	buffer_text(&value, ",\"message\":");
	buffer_json_string(&value, command->message);
	write_time(&value, "createdAt", clock_wall_us(&clock_system));
	buffer_char(&value, '}');
	return buffer_slice(&value);
}

static void make_message(
	struct arena *arena, struct gateway_command *command, struct bus_message *message)
{
	name_message(command);
	message->channel = slice_of(GATEWAY_CHANNEL);
	message->key = command->user.text;
	message->id = slice_of(command->message_id);
	message->value = render_event(arena, command);
	if (command->traceparent.len > 0) {
		message->headers[0].name = slice_of("traceparent");
		message->headers[0].value = command->traceparent;
		message->header_count = 1;
	}
}

/* A message whose first try ended in doubt may be on the bus, whatever becomes of the second. */
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
		make_message(batch->arena, sends[i], &messages[i]);
	status = lane->producer->ops->publish(lane->producer, messages, count, until_ns);
	for (size_t i = 0; i < count; i++)
		take_fate(sends[i], status == STATUS_OK ? messages[i].fate : BUS_NOT_PERSISTED);
}

/* The cached copies of users whose configuration has changed. */
static void drop_cached(struct gateway_lane *lane, const struct slice *user_ids, size_t count)
{
	enum status ignored;

	if (!lane->cache || count == 0)
		return;
	/* A cache that is away makes up for it before it is used again: see ports/cache.h. */
	ignored = lane->cache->ops->limit_drop(lane->cache, user_ids, count);
	(void)ignored;
}

void gateway_perform(void *context, const struct write_batch *batch)
{
	struct gateway_lane *lane = context;
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

static int64_t window_of(const struct gateway_command *command)
{
	int64_t window_us = command->window_start_us;

	if (command->write.resumed && !text_to_int(command->write.idempotency->note, &window_us))
		return 0; /* no window has this start */
	return window_us;
}

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

/* One entry for each user and window. */
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

enum status gateway_settle(void *context, struct session *session, const struct write_batch *batch)
{
	const struct gateway_lane *lane = context;
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
		all[count].window_start_us = window_of(command);
		all[count].confirmed = effect == EFFECT_DONE;
		all[count++].given_back = effect == EFFECT_FAILED;
	}
	if (count == 0)
		return STATUS_OK;
	return lane->gateway->repository->ops->settle(
		lane->gateway->repository, session, all, merge(all, count));
}

/* ---- looking ----------------------------------------------------------------------------- */

static int compare_rows(const void *a, const void *b)
{
	return slice_compare(
		((const struct limit_row *)a)->user_id, ((const struct limit_row *)b)->user_id);
}

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

enum status gateway_look_up(void *context, struct session *session, const struct read_batch *batch)
{
	const struct gateway *gateway = context;
	struct limit_row *rows = arena_array(batch->arena, struct limit_row, batch->count);
	size_t count = wanted_rows(batch, rows);
	int64_t now_us;
	enum status status =
		gateway->repository->ops->find(gateway->repository, session, rows, count, &now_us);

	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < batch->count; i++) {
		struct command *command = &batch->reads[i]->command;
		struct limit_row wanted = {.user_id = command->key};
		struct user_id user = {.text = command->key};
		struct limit_row row = *(struct limit_row *)bsearch(
			&wanted, rows, count, sizeof(*rows), compare_rows);

		if (row.exists && limit_has_elapsed(&row, now_us, gateway->window_unit_us))
			row.current_count = 0; /* what a send would see; nothing is written */
		if (row.exists)
			command->answer = answer_config(command->arena, &user, &row);
		else
			command->answer = answer_problem(command->arena, STATUS_CONFIG_NOT_FOUND,
				"no configuration exists for the user \"%.*s\"",
				(int)command->key.len, command->key.data);
	}
	return STATUS_OK;
}
