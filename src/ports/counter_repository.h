/*
 * Counters of unread messages, and what is known of each message that is counted: a message counts
 * while its state is unread; a read that comes before the new leaves "read" behind, and the new
 * that follows changes nothing. Functions block, take a session of the same engine, and return what
 * ports/store.h lists.
 */
#ifndef QUIPU_PORTS_COUNTER_REPOSITORY_H
#define QUIPU_PORTS_COUNTER_REPOSITORY_H

#include "ports/message_repository.h"
#include "ports/store.h"

/* counter_messages: what is known of one message. */
struct counter_message {
	struct slice user_id;
	struct slice message_id;
	bool exists;
	bool is_read;
	int64_t event_us; /* when what it knows happened */
};

/* counters: one row for each user and type; there is one type, UnreadMessages. */
struct counter_row {
	struct slice user_id;
	bool exists;
	int64_t count;
	int64_t version; /* grows by 1 with every change */
	int64_t updated_us;

	int64_t delta; /* add: what to add to count */
};

struct counter_repository;

struct counter_repository_ops {
	/* In a transaction: fills in what exists, for put(); `messages` are unique and sorted by
	 * the bytes of user_id, then message_id. */
	QP_MUST_CHECK enum status (*lock)(const struct counter_repository *repository,
		struct session *session, struct counter_message *messages, size_t count);

	/*
	 * In a transaction, after lock(): writes messages, new ones, and such that `exists` and go
	 * from unread to read. RERUN: another session has changed one of them since lock().
	 */
	QP_MUST_CHECK enum status (*put)(const struct counter_repository *repository,
		struct session *session, const struct counter_message *messages, size_t count);

	/* In a transaction: adds each `delta`, making rows that do not exist, and fills the rest
	 * in; rows are unique and sorted by user_id. */
	QP_MUST_CHECK enum status (*add)(const struct counter_repository *repository,
		struct session *session, struct counter_row *rows, size_t count);

	/* Inside or outside a transaction: looks rows up; unique and sorted by user_id. */
	QP_MUST_CHECK enum status (*find)(const struct counter_repository *repository,
		struct session *session, struct counter_row *rows, size_t count);

	/* A transaction of its own: forgets up to `limit` messages read longer than `age_us` ago.
	 */
	QP_MUST_CHECK enum status (*sweep)(const struct counter_repository *repository,
		struct session *session, int64_t age_us, size_t limit, size_t *deleted);

	/* Outside a transaction, for `quipu verify`: a page of all counters, by user_id. */
	QP_MUST_CHECK enum status (*list)(const struct counter_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct counter_row *rows);

	/* Outside a transaction: a page of the messages that count as unread for page->user_id,
	 * by message id. */
	QP_MUST_CHECK enum status (*list_unread)(const struct counter_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct counter_message *messages);
};

/* The head of each adapter's own repository. */
struct counter_repository {
	const struct counter_repository_ops *ops;
};

#endif
