/*
 * The events that a consumer has processed. They are recorded in the transaction of their effect,
 * so that an event that is delivered again has no second effect. Functions block and return what
 * ports/store.h lists.
 */
#ifndef QUIPU_PORTS_INBOX_REPOSITORY_H
#define QUIPU_PORTS_INBOX_REPOSITORY_H

#include "ports/store.h"

struct inbox_event {
	struct slice event_id;
	bool is_new; /* set by put(): the event was not recorded before */
};

struct inbox_repository;

struct inbox_repository_ops {
	/* In a transaction: records events, which are unique and sorted by bytes, and sets is_new.
	 */
	QP_MUST_CHECK enum status (*put)(const struct inbox_repository *repository,
		struct session *session, struct inbox_event *events, size_t count);

	/* In a transaction of its own: deletes up to `limit` events recorded longer than `age_us`
	 * ago. */
	QP_MUST_CHECK enum status (*sweep)(const struct inbox_repository *repository,
		struct session *session, int64_t age_us, size_t limit, size_t *deleted);
};

/* The head of each adapter's own repository. */
struct inbox_repository {
	const struct inbox_repository_ops *ops;
};

#endif
