/*
 * Messages of the gateway on their way to a provider. queued_messages has the messages that the
 * gateway has published and the sender has not taken yet. outbound_messages has one row for each
 * message that the sender has taken from the bus, by which it also recognises repeated events.
 * Functions block and return a status that ports/store.h lists.
 */
#ifndef QUIPU_PORTS_OUTBOUND_REPOSITORY_H
#define QUIPU_PORTS_OUTBOUND_REPOSITORY_H

#include "ports/claim_repository.h"
#include "ports/dead_letter_repository.h"

struct outbound_message {
	struct slice id;         /* a UUID: the message's id, or an id derived from it */
	struct slice message_id; /* the id in the event, or the event's identity on the bus */
	/* the event's position on the bus, if the event has no id; not stored */
	struct slice position;
	struct slice user_id;
	struct slice trace;
	int64_t created_us;   /* when the event was created */
	struct slice payload; /* the JSON that is sent; find() leaves it empty */

	bool is_new; /* set by put(): the message was not known before */
	bool exists; /* set by find() and know() */

	/* Only find() sets these. */
	struct slice status; /* QUEUED, PENDING, SENDING, SENT, FAILED or DISCARDED */
	struct slice error;
	int32_t attempt_count;
	int64_t taken_us; /* when the sender took it from the bus; 0 while it is QUEUED */
	int64_t sent_us;  /* 0 until it is sent */
};

struct outbound_repository;

struct outbound_repository_ops {
	/* In a transaction: records published messages (their id, user_id and created_us) as
	 * QUEUED. Does not change messages that are already known. */
	QP_MUST_CHECK enum status (*note)(const struct outbound_repository *repository,
		struct session *session, const struct outbound_message *messages, size_t count);

	/* In a transaction: stores messages that are unknown or QUEUED as PENDING and due at once.
	 * They will be claimed in this order. Ids are unique. */
	QP_MUST_CHECK enum status (*put)(const struct outbound_repository *repository,
		struct session *session, struct outbound_message *messages, size_t count);

	/* In a transaction: looks up which messages the sender has taken, by their ids. */
	QP_MUST_CHECK enum status (*know)(const struct outbound_repository *repository,
		struct session *session, struct outbound_message *messages, size_t count);

	/* Outside a transaction: looks up one message by its id. Texts are in memory of `arena`. */
	QP_MUST_CHECK enum status (*find)(const struct outbound_repository *repository,
		struct session *session, struct arena *arena, struct outbound_message *message);

	/* In a transaction of its own: deletes up to `limit` messages that have been QUEUED for
	 * longer than `age_us`, or that were noted after the sender had taken them. */
	QP_MUST_CHECK enum status (*sweep_queued)(const struct outbound_repository *repository,
		struct session *session, int64_t age_us, size_t limit, size_t *deleted);
};

/* The first member of each adapter's own repository. */
struct outbound_repository {
	const struct outbound_repository_ops *ops;
	const struct claim_repository *claims; /* a claim's key is the user's id */
	const struct dead_letter_repository *dead;
};

#endif
