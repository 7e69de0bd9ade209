/*
 * Which events a consumer has taken in: written in the transaction of the effect, so that an event
 * that comes again has none. Functions block and return what ports/store.h lists.
 */
#ifndef QUIPU_PORTS_INBOX_REPOSITORY_H
#define QUIPU_PORTS_INBOX_REPOSITORY_H

#include "ports/store.h"

struct inbox_event {
	struct slice event_id;
	bool is_new; /* set by put */
};

struct inbox_repository;

struct inbox_repository_ops {
	/* In a transaction: records events, unique and sorted by bytes; tells which were not there
	 * yet. */
	QP_MUST_CHECK enum status (*put)(const struct inbox_repository *repository,
		struct session *session, struct inbox_event *events, size_t count);

	/* A transaction of its own: forgets up to `limit` events taken in longer than `age_us` ago.
	 */
	QP_MUST_CHECK enum status (*sweep)(const struct inbox_repository *repository,
		struct session *session, int64_t age_us, size_t limit, size_t *deleted);
};

/* The head of each adapter's own repository. */
struct inbox_repository {
	const struct inbox_repository_ops *ops;
};

#endif
