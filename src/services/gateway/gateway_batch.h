/*
 * Batches of the gateway: reserve, publish, settle.
 *
 * Both kinds of command change the row of a user, so both travel in the user's lane. What a send
 * goes through:
 *
 *   prepare  the cache may refuse it (gateway_cache); a bus that is down refuses it
 *   decide   first transaction: the row is locked and a slot reserved, or it is refused
 *   perform  the message is published; the bus tells what became of it
 *   settle   second transaction: confirmed slots are counted, lost ones given back
 */
#ifndef QUIPU_SERVICES_GATEWAY_BATCH_H
#define QUIPU_SERVICES_GATEWAY_BATCH_H

#include "base/uuid.h"
#include "services/gateway/gateway.h"

enum gateway_verb { GATEWAY_CONFIGURE, GATEWAY_SEND };

/* A user's id as it was sent: 1001 and "1001" are one user, and come back as they came. */
struct user_id {
	struct slice text;
	bool is_number;
};

struct gateway_command {
	struct write write; /* its command's key is the user's id */
	enum gateway_verb verb;
	struct user_id user;

	int32_t rate_limit; /* CONFIGURE */
	int32_t time_window;

	struct slice message; /* SEND */
	struct slice traceparent;
	char message_id[UUID_SIZE];
	bool cached;             /* the cache let it through … */
	int64_t window_start_us; /* … in this window; after decide(): in which it was admitted */
};

extern const struct command_type gateway_command_type;

/* Creates one in `arena`, zeroed except for its type. */
struct gateway_command *gateway_command_new(struct arena *arena);

/* Aborts if `write` is of another type. */
struct gateway_command *gateway_command_of(struct write *write);

struct gateway_lookup {
	struct read read; /* its command's key is the user's id */
};

extern const struct command_type gateway_lookup_type;

/* Creates one in `arena`, zeroed except for its type. */
struct gateway_lookup *gateway_lookup_new(struct arena *arena);

/* Aborts if `read` is of another type. */
struct gateway_lookup *gateway_lookup_of(struct read *read);

#define GATEWAY_STALE_MAX 256

/* What each write lane has for itself. */
struct gateway_lane {
	struct gateway *gateway;
	struct producer *producer;
	struct cache_session *cache; /* NULL: none */

	/* Users whose cached copy is of another window than their row: deleted before the cache is
	 * asked again. What does not fit is found out again the next time. */
	struct arena stale_arena;
	struct slice stale[GATEWAY_STALE_MAX];
	size_t stale_count;
};

enum status gateway_decide(void *lane, struct session *session, const struct write_batch *batch);
void gateway_perform(void *lane, const struct write_batch *batch);
enum status gateway_settle(void *lane, struct session *session, const struct write_batch *batch);
enum status gateway_look_up(void *gateway, struct session *session, const struct read_batch *batch);

/* In gateway_cache.c. */
void gateway_prepare(void *lane, struct session *session, const struct write_batch *batch);

/* 429 with the headers that every decision carries. */
struct answer gateway_answer_refused(struct arena *arena, const struct gateway_command *command,
	int64_t rate_limit, int64_t window_us, int64_t left_us);

#endif
