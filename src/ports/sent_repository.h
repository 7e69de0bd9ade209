/*
 * Messages without a row in outbound_messages that must not be sent again if they are redelivered
 * (sent_messages): they were sent by a version that had no such rows, or their user was erased. Ids
 * in arrays are unique and sorted by bytes. Functions block and return a status that ports/store.h
 * lists.
 */
#ifndef QUIPU_PORTS_SENT_REPOSITORY_H
#define QUIPU_PORTS_SENT_REPOSITORY_H

#include "ports/store.h"

struct sent_message {
	struct slice message_id;
	bool known; /* set by find() */
};

struct sent_repository;

struct sent_repository_ops {
	/* In a transaction: looks messages up. */
	QP_MUST_CHECK enum status (*find)(const struct sent_repository *repository,
		struct session *session, struct sent_message *messages, size_t count);

	/* In a transaction of its own: deletes up to `limit` messages sent more than `age_us`
	 * ago. */
	QP_MUST_CHECK enum status (*sweep)(const struct sent_repository *repository,
		struct session *session, int64_t age_us, size_t limit, size_t *deleted);
};

/* The first member of each adapter's own repository. */
struct sent_repository {
	const struct sent_repository_ops *ops;
};

#endif
