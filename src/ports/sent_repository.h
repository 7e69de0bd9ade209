/*
 * The table sent_messages lists messages that have no row in outbound_messages, but must not be
 * sent again if they are redelivered. Either their user was erased, or they were sent by an older
 * version of the program, which had no table outbound_messages. Ids in arrays are unique and sorted
 * by bytes. Functions block and return a status that ports/store.h lists.
 */
#ifndef QUIPU_PORTS_SENT_REPOSITORY_H
#define QUIPU_PORTS_SENT_REPOSITORY_H

#include "ports/store.h"

struct sent_message {
	struct slice message_id;
	bool known; /* set by find(): the message is in sent_messages */
};

struct sent_repository;

struct sent_repository_ops {
	/* Looks up messages. Must be called in a transaction. */
	QP_MUST_CHECK enum status (*find)(const struct sent_repository *repository,
		struct session *session, struct sent_message *messages, size_t count);

	/* Deletes up to `limit` messages that were sent, or whose user was erased, more than
	 * `age_us` ago. Runs in a transaction of its own. */
	QP_MUST_CHECK enum status (*sweep)(const struct sent_repository *repository,
		struct session *session, int64_t age_us, size_t limit, size_t *deleted);
};

/* Each adapter embeds this struct as the first member of its own repository. */
struct sent_repository {
	const struct sent_repository_ops *ops;
};

#endif
