/*
 * Records the events that a consumer has processed. Each event is recorded in the same transaction
 * as its effect, so that it has no second effect if it is delivered again. Functions block and
 * return a status that ports/store.h lists.
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
	/* Records events and sets is_new in each. Events are unique and sorted by the bytes of
	 * their ids. Must be called in a transaction. */
	QP_MUST_CHECK enum status (*put)(const struct inbox_repository *repository,
		struct session *session, struct inbox_event *events, size_t count);

	/* Deletes up to `limit` events that were recorded more than `age_us` ago, in a transaction
	 * of its own. */
	QP_MUST_CHECK enum status (*sweep)(const struct inbox_repository *repository,
		struct session *session, int64_t age_us, size_t limit, size_t *deleted);
};

/* Each adapter embeds this struct as the first member of its own repository. */
struct inbox_repository {
	const struct inbox_repository_ops *ops;
};

#endif
