/*
 * Batches of the gateway: reserve, publish, settle. A take spends from the same quota without
 * sending a message, so a take needs only the first transaction.
 *
 * Every verb changes the row of one user, so the key of every command is the user's id. The steps
 * of a send:
 *
 *   prepare  refuses the send if the bus is down or the cache refuses it
 *   decide   first transaction: locks the row and reserves a slot, or refuses the send; a resumed
 *            send keeps a slot that it reserved earlier in the current window
 *   publish  publishes the message; the bus reports whether it has accepted the message
 *   settle   second transaction: counts confirmed slots and gives unused slots back; on a busy
 *            lane, a later batch does this in its own first transaction
 *
 * Every step blocks. The steps run on the committer's thread of their lane, except publish, which
 * runs on the publisher's thread. gateway_batch_look_up() also blocks; it runs on the reader's
 * thread.
 */
#ifndef QUIPU_SERVICES_GATEWAY_BATCH_H
#define QUIPU_SERVICES_GATEWAY_BATCH_H

#include "base/uuid.h"
#include "services/gateway/gateway.h"

enum gateway_verb { GATEWAY_CONFIGURE, GATEWAY_REMOVE, GATEWAY_SEND, GATEWAY_TAKE };

/* A user's id as the client sent it. 1001 and "1001" are the same user; answers use the form that
 * the client used. */
struct user_id {
	struct slice text;
	bool is_number;
};

struct gateway_command {
	struct write write; /* the key of its command is the user's id */
	enum gateway_verb verb;
	struct user_id user;

	int32_t rate_limit; /* for CONFIGURE, like the next two members */
	int32_t time_window;
	bool shadow;

	int32_t amount; /* TAKE: how much to spend; SEND: 1 */
	int32_t slots;  /* SEND and TAKE: slots reserved for this command, 0 or `amount` */

	struct slice message; /* for SEND, like the next members down to on_bus */
	struct slice traceparent;
	char message_id[UUID_SIZE];
	int64_t created_us;         /* when the event was created */
	struct bus_message *on_bus; /* allocated from the arena of the round */

	bool cached; /* SEND and TAKE: the cache granted `amount` */

	/* SEND and TAKE: the start of the window in which the cache granted `amount`. decide()
	 * replaces it with the start of the window in which the row reserved the slots. */
	int64_t window_start_us;
};

extern const struct command_type gateway_command_type;

/* Creates a command in `arena`, zeroed except for its type and an amount of 1. */
struct gateway_command *gateway_command_new(struct arena *arena);

/* Returns the command that `write` belongs to. Aborts if `write` is not a gateway command. */
struct gateway_command *gateway_command_of(struct write *write);

/*
 * Return true if the command has no answer yet and no Idempotency-Key, and is a send (or, for
 * gateway_command_is_open_spend(), a send or a take). Only such commands may be refused before the
 * store is read: a command with an Idempotency-Key may be a repeat, which only the store
 * recognises.
 */
bool gateway_command_is_open_send(const struct gateway_command *command);
bool gateway_command_is_open_spend(const struct gateway_command *command);

/* Reads the configuration of one user, or forecasts the limiter's decision about the user's next
 * send. */
struct gateway_lookup {
	struct read read; /* the key of its command is the user's id */
	bool is_forecast;
};

extern const struct command_type gateway_lookup_type;

/* Creates a zeroed lookup in `arena`, and sets its type. */
struct gateway_lookup *gateway_lookup_new(struct arena *arena);

/* Reads one page of the configurations of all users, sorted by user id. */
struct gateway_list {
	struct read read; /* has its own look_up, and no key */
	const struct gateway *gateway;
	struct slice path;  /* the raw path, for the link to the next page */
	struct slice after; /* last user id of the previous page; empty for the first page */
	size_t limit;
};

/* Creates a list in `arena`, zeroed except for its type and look_up. */
struct gateway_list *gateway_list_new(struct arena *arena);

/* The resources of one write lane. */
struct gateway_lane {
	struct gateway *gateway;
	/* for the publisher's thread; the other members are for the committer's thread */
	struct producer *producer;
	struct cache_session *cache; /* NULL if no cache is configured */

	/* how many commands the current transaction admits only because of shadow mode */
	int64_t shadowed;

	/*
	 * Users whose cached copy does not match their row: the copy belongs to another window, or
	 * its count is too high or too low. The copies are deleted after the next COMMIT, after a
	 * failed batch, and before the lane uses the cache again.
	 */
	struct arena stale_arena;
	struct slice *stale; /* allocated from stale_arena */
	size_t stale_count;
	size_t stale_size;
};

/* flow/committer.h describes when these functions run and what they may return. */
void gateway_batch_prepare(
	struct gateway_lane *lane, struct session *session, const struct write_batch *batch);
enum status gateway_batch_decide(
	struct gateway_lane *lane, struct session *session, const struct write_batch *batch);
void gateway_batch_perform(struct gateway_lane *lane, const struct write_batch *batch);
enum status gateway_batch_settle(
	struct gateway_lane *lane, struct session *session, const struct write_batch *batch);
void gateway_batch_committed(struct gateway_lane *lane);
void gateway_batch_fail(struct gateway_lane *lane, const struct command_list *writes);

extern const struct publish_ops gateway_publish_ops;

/* Returns, for each user and window, how many reserved slots of the batch's sends to confirm and
 * how many to give back. The entries are sorted, and allocated from the batch's arena. */
struct limit_settlement *gateway_settlements(const struct write_batch *batch, size_t *count);

/* Answers every read of the batch (each a struct gateway_lookup); see flow/reader.h. */
enum status gateway_batch_look_up(
	const struct gateway *gateway, struct session *session, const struct read_batch *batch);

#endif
