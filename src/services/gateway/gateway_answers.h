/*
 * The answers of the gateway, and JSON that its answers and events share. Pure: every function
 * writes only into the given arena or buffer.
 */
#ifndef QUIPU_SERVICES_GATEWAY_ANSWERS_H
#define QUIPU_SERVICES_GATEWAY_ANSWERS_H

#include "base/buffer.h"
#include "services/gateway/gateway_batch.h"

/* The limit behind a decision, for the RateLimit headers. */
struct limit_view {
	int64_t rate_limit;
	int64_t window_us; /* length of the window */
	int64_t remaining; /* how many messages the window still admits */
	int64_t left_us;   /* time until the window ends */
	int64_t reset_us;  /* when the window ends */
};

/* Returns a 200 with the configuration of a user. */
struct answer gateway_answer_config(
	struct arena *arena, const struct user_id *user, const struct limit_row *row);

/* Returns a 200 with an array of configurations. */
struct answer gateway_answer_list(struct arena *arena, const struct limit_row *rows, size_t count);

/* Returns a 404 for a user without a configuration. */
struct answer gateway_answer_no_config(struct arena *arena, struct slice user_id);

/* Returns a 200 for a message that has reserved a slot, with the RateLimit headers and Location. */
struct answer gateway_answer_queued(
	const struct gateway_command *command, const struct limit_view *limit);

/* Returns a 200 with the state of a message. */
struct answer gateway_answer_message(struct arena *arena, const struct outbound_message *message);

/* Returns a 404 for an unknown message. */
struct answer gateway_answer_no_message(struct arena *arena, struct slice id);

/* Returns a 200 for a take, with the RateLimit headers. */
struct answer gateway_answer_taken(
	const struct gateway_command *command, const struct limit_view *limit);

/* Returns a 400 for a take that exceeds the whole limit: no window could ever admit it. */
struct answer gateway_answer_too_much(const struct gateway_command *command, int32_t rate_limit);

/* Returns a 200 that says how the limiter would decide about the next send. */
struct answer gateway_answer_forecast(
	struct arena *arena, const struct limit_view *limit, bool is_allowed, bool is_shadow);

/* Returns a 429 with the RateLimit headers and Retry-After. */
struct answer gateway_answer_refused(
	const struct gateway_command *command, const struct limit_view *limit);

/* Returns a 503 for a message that the bus does not have. The slot becomes free again in the user's
 * row, but not in the cache. Therefore, if the cache granted the slot, the answer says that the
 * slot stays used up. */
struct answer gateway_answer_not_sent(const struct gateway_command *command);

/* Returns a 503 for a message that the bus may have. The slot of the message stays used up. */
struct answer gateway_answer_unknown(const struct gateway_command *command);

/* Returns a 503 for a resumed send whose user no longer has a row: an earlier attempt may have sent
 * the message. */
struct answer gateway_answer_unknown_without_row(const struct gateway_command *command);

/* Writes the id in the form in which the client sent it, as a number or as a string. */
void gateway_write_user_id(struct buffer *body, const struct user_id *user);

#endif
