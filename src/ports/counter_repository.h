/*
 * Stores counters of unread messages, and the state of each counted message. A message counts while
 * its state is unread. If the event "message read" overtakes the event "new message", the message's
 * state is set to "read", and the later "new message" changes nothing. Functions block, take a
 * session of the same store, and return a status that ports/store.h lists.
 */
#ifndef QUIPU_PORTS_COUNTER_REPOSITORY_H
#define QUIPU_PORTS_COUNTER_REPOSITORY_H

#include "ports/eraser.h"
#include "ports/message_repository.h"
#include "ports/store.h"

/* A row of counter_messages. */
struct counter_message {
	struct slice user_id;
	struct slice message_id;
	bool exists;
	bool is_read;
	int64_t event_us; /* when the event that set the state happened */
};

/* A row of the table counters, keyed by user and type. The only type is UnreadMessages. */
struct counter_row {
	struct slice user_id;
	bool exists;
	int64_t count;
	/* Grows by 1 with every change. The first version is the time of the counter's creation, in
	 * milliseconds since 1970. So if an erased counter is created again, its versions are above
	 * those that event streams and the cache have seen. */
	int64_t version;
	int64_t updated_us;

	int64_t delta; /* the number that add() adds to `count` */
};

struct counter_repository;

struct counter_repository_ops {
	/* Fills in the messages that exist, before put() changes them. Does not lock rows: put()
	 * finds out whether they have changed. `messages` are unique and sorted by the bytes of
	 * user_id, then message_id. Must be called in a transaction. */
	QP_MUST_CHECK enum status (*lock)(const struct counter_repository *repository,
		struct session *session, struct counter_message *messages, size_t count);

	/*
	 * Inserts messages that do not exist, and changes existing messages from unread to read.
	 * Returns RERUN if another session has changed one of the messages since lock(). Must be
	 * called after lock(), in the same transaction.
	 */
	QP_MUST_CHECK enum status (*put)(const struct counter_repository *repository,
		struct session *session, const struct counter_message *messages, size_t count);

	/* Adds the `delta` of each row to its counter, creates counters that do not exist, and
	 * fills in the new values. Rows are unique and sorted by user_id. Must be called in a
	 * transaction. */
	QP_MUST_CHECK enum status (*add)(const struct counter_repository *repository,
		struct session *session, struct counter_row *rows, size_t count);

	/* Looks up rows, which are unique and sorted by user_id. May be called inside or outside a
	 * transaction. */
	QP_MUST_CHECK enum status (*find)(const struct counter_repository *repository,
		struct session *session, struct counter_row *rows, size_t count);

	/* Deletes up to `limit` messages that were read more than `age_us` ago, in a transaction of
	 * its own. */
	QP_MUST_CHECK enum status (*sweep)(const struct counter_repository *repository,
		struct session *session, int64_t age_us, size_t limit, size_t *deleted);

	/* Reads a page of all counters, sorted by user_id, for `quipu verify`. Must be called
	 * outside a transaction. */
	QP_MUST_CHECK enum status (*list)(const struct counter_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct counter_row *rows);

	/* Reads a page of the messages that count as unread for page->user_id, sorted by
	 * message_id. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*list_unread)(const struct counter_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct counter_message *messages);
};

/* Each adapter embeds this struct as the first member of its own repository. */
struct counter_repository {
	const struct counter_repository_ops *ops;
	const struct eraser *eraser;
};

#endif
