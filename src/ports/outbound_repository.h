/*
 * Stores the gateway's messages on their way to a provider. The table queued_messages has the
 * messages that the gateway has published and the sender has not taken from the bus yet. The table
 * outbound_messages has one row for each message that the sender has taken from the bus; the sender
 * also uses these rows to recognise repeated events. Functions block and return a status that
 * ports/store.h lists.
 */
#ifndef QUIPU_PORTS_OUTBOUND_REPOSITORY_H
#define QUIPU_PORTS_OUTBOUND_REPOSITORY_H

#include "ports/claim_repository.h"
#include "ports/dead_letter_repository.h"

struct outbound_message {
	struct slice id; /* message_id if that is a UUID, otherwise a UUID derived from it */
	/* the id in the event or, if the event has no id, its identity on the bus */
	struct slice message_id;
	/* the event's position on the bus, if the event has no id; not stored */
	struct slice position;
	struct slice user_id;
	struct slice trace;
	int64_t created_us;   /* when the event was created */
	struct slice payload; /* the JSON that is sent; find() leaves it empty */

	bool is_new; /* set by put(): the sender had not taken the message before */
	bool exists; /* set by find() and know(): the message was found */

	/* Only find() sets the members below. */
	struct slice status; /* QUEUED, PENDING, SENDING, SENT, FAILED or DISCARDED */
	struct slice error;
	int32_t attempt_count;
	int64_t taken_us; /* when the sender took the message from the bus; 0 if it is QUEUED */
	int64_t sent_us;  /* 0 until the message is sent */
};

struct outbound_repository;

struct outbound_repository_ops {
	/* Records published messages (their id, user_id and created_us) as QUEUED. Ignores messages
	 * that are already in queued_messages or outbound_messages. Must be called in a
	 * transaction. */
	QP_MUST_CHECK enum status (*note)(const struct outbound_repository *repository,
		struct session *session, const struct outbound_message *messages, size_t count);

	/* Stores messages as PENDING and due at once, unless the sender has taken them before. The
	 * stored messages will be claimed in the order of the array. Ids are unique. Must be called
	 * in a transaction that has not found the messages in sent_messages. Returns RERUN if
	 * another session has added one of them there since then, because it erased the user. */
	QP_MUST_CHECK enum status (*put)(const struct outbound_repository *repository,
		struct session *session, struct outbound_message *messages, size_t count);

	/* Looks up by id which messages the sender has taken from the bus. Must be called in a
	 * transaction. */
	QP_MUST_CHECK enum status (*know)(const struct outbound_repository *repository,
		struct session *session, struct outbound_message *messages, size_t count);

	/* Looks up one message by its id. Texts are allocated from `arena`. Must be called outside
	 * a transaction. */
	QP_MUST_CHECK enum status (*find)(const struct outbound_repository *repository,
		struct session *session, struct arena *arena, struct outbound_message *message);

	/* Deletes up to `limit` rows of queued_messages in a transaction of its own: messages that
	 * have been QUEUED for longer than `age_us`, or that the sender has taken already. */
	QP_MUST_CHECK enum status (*sweep_queued)(const struct outbound_repository *repository,
		struct session *session, int64_t age_us, size_t limit, size_t *deleted);
};

/* Each adapter embeds this struct as the first member of its own repository. */
struct outbound_repository {
	const struct outbound_repository_ops *ops;
	const struct claim_repository *claims; /* a claim's key is the user's id */
	const struct dead_letter_repository *dead;
};

#endif
