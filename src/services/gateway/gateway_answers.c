/*
 * Renders the answers of the gateway. Every answer with a decision of the limiter has the RateLimit
 * headers, even if the message is admitted, so that a client can slow down before it is refused.
 * User ids are written in the form in which the client sent them.
 */
#include "services/gateway/gateway_answers.h"

void gateway_write_user_id(struct buffer *body, const struct user_id *user)
{
	if (user->is_number)
		buffer_add(body, user->text);
	else
		buffer_json_string(body, user->text);
}

static int64_t seconds_up(int64_t us)
{
	return us <= 0 ? 0 : (us + 999999) / 1000000;
}

/* Writes the RateLimit headers, such as RateLimit-Policy: "sms";q=5;w=60 and RateLimit:
 * "sms";r=4;t=41. */
static void write_limit_headers(struct buffer *headers, const struct limit_view *limit)
{
	buffer_format(headers, "RateLimit-Policy: \"sms\";q=%lld;w=%lld\r\n",
		(long long)limit->rate_limit, (long long)seconds_up(limit->window_us));
	buffer_format(headers, "RateLimit: \"sms\";r=%lld;t=%lld\r\n", (long long)limit->remaining,
		(long long)seconds_up(limit->left_us));
}

struct answer gateway_answer_refused(
	const struct gateway_command *command, const struct limit_view *limit)
{
	struct arena *arena = command->write.command.arena;
	struct buffer headers = buffer_make(arena, 128);
	int64_t wait_s = seconds_up(limit->left_us) > 0 ? seconds_up(limit->left_us) : 1;
	struct answer answer = answer_problem(arena, STATUS_RATE_LIMIT_EXCEEDED,
		"the rate limit of user \"%.*s\" is exceeded: %lld message%s in %lld s; try "
		"again in %lld s",
		(int)command->user.text.len, command->user.text.data, (long long)limit->rate_limit,
		limit->rate_limit == 1 ? "" : "s", (long long)seconds_up(limit->window_us),
		(long long)wait_s);

	write_limit_headers(&headers, limit);
	buffer_format(&headers, "Retry-After: %lld\r\n", (long long)wait_s);
	answer.headers = buffer_slice(&headers);
	return answer;
}

struct answer gateway_answer_not_sent(const struct gateway_command *command)
{
	struct arena *arena = command->write.command.arena;

	if (!command->cached)
		return answer_failure(arena, STATUS_BUS_UNAVAILABLE);
	return answer_problem(arena, STATUS_BUS_UNAVAILABLE,
		"the message bus cannot be reached; the message was not sent, but the request "
		"uses up one message of this window; try again shortly");
}

struct answer gateway_answer_unknown(const struct gateway_command *command)
{
	return answer_problem(command->write.command.arena, STATUS_OUTCOME_UNKNOWN,
		"the connection was lost before the outcome was known: the message may or may not "
		"be sent, and the request uses up one message of this window; send the same "
		"request with the same Idempotency-Key to find out");
}

struct answer gateway_answer_unknown_without_row(const struct gateway_command *command)
{
	return answer_problem(command->write.command.arena, STATUS_OUTCOME_UNKNOWN,
		"an earlier attempt may have sent the message, and the user \"%.*s\" no longer has "
		"a configuration; to find out, create one with POST /api/config and send the same "
		"request with the same Idempotency-Key",
		(int)command->user.text.len, command->user.text.data);
}

struct answer gateway_answer_no_config(struct arena *arena, struct slice user_id)
{
	return answer_problem(arena, STATUS_CONFIG_NOT_FOUND,
		"no configuration exists for the user \"%.*s\"; create one with POST /api/config",
		(int)user_id.len, user_id.data);
}

static void write_config(
	struct buffer *body, const struct user_id *user, const struct limit_row *row)
{
	buffer_text(body, "{\"userId\":");
	gateway_write_user_id(body, user);
	buffer_format(body, ",\"rateLimit\":%d,\"timeWindow\":%d,\"currentCount\":%d",
		row->rate_limit, row->time_window, row->current_count);
	buffer_member_time(body, "lastRefreshTime", row->last_refresh_us);
	if (row->shadow)
		buffer_member(body, "mode", slice_of("shadow"));
	buffer_char(body, '}');
}

struct answer gateway_answer_config(
	struct arena *arena, const struct user_id *user, const struct limit_row *row)
{
	struct buffer body = buffer_make(arena, 192);

	write_config(&body, user, row);
	return answer_json(200, buffer_slice(&body));
}

struct answer gateway_answer_list(struct arena *arena, const struct limit_row *rows, size_t count)
{
	struct buffer body = buffer_make(arena, 192 * count + 2);

	buffer_char(&body, '[');
	for (size_t i = 0; i < count; i++) {
		struct user_id user = {.text = rows[i].user_id};

		if (i > 0)
			buffer_char(&body, ',');
		write_config(&body, &user, &rows[i]);
	}
	buffer_char(&body, ']');
	return answer_json(200, buffer_slice(&body));
}

static struct answer with_limit_headers(
	struct answer answer, struct arena *arena, const struct limit_view *limit)
{
	struct buffer headers = buffer_make(arena, 96);

	write_limit_headers(&headers, limit);
	answer.headers = buffer_slice(&headers);
	return answer;
}

struct answer gateway_answer_queued(
	const struct gateway_command *command, const struct limit_view *limit)
{
	struct arena *arena = command->write.command.arena;
	struct buffer body = buffer_make(arena, 192);
	struct buffer location = buffer_make(arena, 64);
	struct answer answer;

	buffer_format(&body,
		"{\"status\":\"QUEUED\",\"messageId\":\"%s\",\"userId\":", command->message_id);
	gateway_write_user_id(&body, &command->user);
	buffer_member_int(&body, "remaining", limit->remaining);
	buffer_member_time(&body, "resetAt", limit->reset_us);
	buffer_char(&body, '}');
	answer = with_limit_headers(answer_json(200, buffer_slice(&body)), arena, limit);
	buffer_format(&location, "/api/messages/%s", command->message_id);
	answer.location = buffer_slice(&location);
	return answer;
}

struct answer gateway_answer_taken(
	const struct gateway_command *command, const struct limit_view *limit)
{
	struct arena *arena = command->write.command.arena;
	struct buffer body = buffer_make(arena, 96);

	buffer_text(&body, "{\"allowed\":true");
	buffer_member_int(&body, "remaining", limit->remaining);
	buffer_member_time(&body, "resetAt", limit->reset_us);
	buffer_char(&body, '}');
	return with_limit_headers(answer_json(200, buffer_slice(&body)), arena, limit);
}

struct answer gateway_answer_too_much(const struct gateway_command *command, int32_t rate_limit)
{
	struct arena *arena = command->write.command.arena;
	struct buffer message = buffer_make(arena, 64);
	struct field_error error = {.field = "amount"};

	buffer_format(&message, "must be at most the user's limit, %d", rate_limit);
	buffer_char(&message, '\0');
	error.message = buffer_slice(&message).data;
	return answer_invalid(arena, &error, 1);
}

struct answer gateway_answer_forecast(
	struct arena *arena, const struct limit_view *limit, bool is_allowed, bool is_shadow)
{
	struct buffer body = buffer_make(arena, 160);

	buffer_format(&body, "{\"allowed\":%s", is_allowed ? "true" : "false");
	buffer_member_int(&body, "remaining", limit->remaining);
	buffer_member_time(&body, "resetAt", limit->reset_us);
	buffer_member_int(&body, "rateLimit", limit->rate_limit);
	buffer_member(&body, "mode", slice_of(is_shadow ? "shadow" : "enforce"));
	buffer_char(&body, '}');
	return with_limit_headers(answer_json(200, buffer_slice(&body)), arena, limit);
}

/* ---- messages ---------------------------------------------------------------------------- */

/* Returns the state that clients see: a message that waits for its first or next attempt is
 * QUEUED. */
static struct slice state_of(const struct outbound_message *message)
{
	return slice_is(message->status, "PENDING") ? slice_of("QUEUED") : message->status;
}

/* Returns the number of attempts: the failed ones, which the row counts, plus one if the message
 * was sent. */
static int64_t attempts_of(const struct outbound_message *message)
{
	return message->attempt_count + (message->sent_us != 0);
}

struct answer gateway_answer_message(struct arena *arena, const struct outbound_message *message)
{
	struct buffer body = buffer_make(arena, 256);

	buffer_char(&body, '{');
	buffer_member(&body, "messageId", message->id);
	buffer_member(&body, "userId", message->user_id);
	buffer_member(&body, "state", state_of(message));
	buffer_member_int(&body, "attempts", attempts_of(message));
	buffer_member_time(&body, "createdAt", message->created_us);
	if (message->sent_us != 0)
		buffer_member_time(&body, "sentAt", message->sent_us);
	else
		buffer_text(&body, ",\"sentAt\":null");
	if (message->error.len > 0)
		buffer_member(&body, "lastError", message->error);
	else
		buffer_text(&body, ",\"lastError\":null");
	buffer_char(&body, '}');
	return answer_json(200, buffer_slice(&body));
}

struct answer gateway_answer_no_message(struct arena *arena, struct slice id)
{
	return answer_problem(arena, STATUS_MESSAGE_NOT_FOUND,
		"no message \"%.*s\" is known: its id was never given out, or it ended more than "
		"30 "
		"days ago",
		(int)id.len, id.data);
}
