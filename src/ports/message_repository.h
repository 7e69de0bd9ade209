/*
 * Messages between users: one row each, keyed by receiver, so that a cluster can distribute the
 * table by receiver. Beside them, who talks with whom, and the last message of each conversation.
 * Functions block, take a session of the same store, and return what
 * ports/store.h lists.
 */
#ifndef QUIPU_PORTS_MESSAGE_REPOSITORY_H
#define QUIPU_PORTS_MESSAGE_REPOSITORY_H

#include "ports/eraser.h"
#include "ports/store.h"

struct message {
	struct slice receiver_id;
	struct slice id; /* UUIDv7: ids of later messages are greater */
	struct slice sender_id;
	struct slice text;
	int64_t created_us;
	bool is_read;
};

/* A message that its receiver has read. */
struct message_mark {
	struct slice receiver_id;
	struct slice id;

	/* Set by mark(). */
	bool exists;
	bool was_unread; /* it was unread, and is read now */
};

/* The newest messages between two users, in both directions, that are older than `before`. */
struct message_query {
	struct slice user_id;
	struct slice other_id; /* may be the same user */
	struct slice before;   /* id of a message; empty to start at the newest */
	size_t limit;
	size_t text_max; /* ends after the message whose text makes it more than this many bytes */

	struct message *messages; /* out, newest first, in memory of the arena; at most `limit` */
	size_t message_count;
};

/* What a user and one other have written to each other. */
struct conversation {
	struct slice other_id;
	struct message last; /* the one with the greatest id, of both directions */
	int64_t unread;      /* messages of the other that the user has not read */
};

/* The conversations of a user that ended most recently, of those that ended before `before`. */
struct conversation_query {
	struct slice user_id;
	struct slice before; /* id of a message; empty to start at the newest */
	size_t limit;
	size_t text_max; /* as in a message_query, of the last messages */

	struct conversation *conversations; /* out, newest first, in memory of the arena */
	size_t conversation_count;
};

/* The oldest unread messages of one sender to one receiver, up to and including `up_to`. */
struct unread_query {
	struct slice receiver_id;
	struct slice sender_id;
	struct slice up_to;
	size_t limit;

	bool exists;       /* out: `up_to` is a message of this sender to this receiver */
	struct slice *ids; /* out, oldest first, in memory of the arena; at most `limit` */
	size_t id_count;
};

/* How many unread messages a user has received. */
struct unread_count {
	struct slice user_id;
	int64_t count;
};

struct message_repository;

struct message_repository_ops {
	/*
	 * In a transaction: stores new messages, which are unread, each in the conversations of
	 * its two users.
	 */
	QP_MUST_CHECK enum status (*put)(const struct message_repository *repository,
		struct session *session, const struct message *messages, size_t count);

	/*
	 * In a transaction: marks messages as read; `marks` are unique and sorted by the bytes of
	 * receiver_id, then id. Under TRANSACTION_SKIP it fails with LOCK_BUSY if another session
	 * holds one of the rows.
	 */
	QP_MUST_CHECK enum status (*mark)(const struct message_repository *repository,
		struct session *session, struct message_mark *marks, size_t count);

	/* In a transaction: answers several queries at once, and locks nothing. */
	QP_MUST_CHECK enum status (*find_unread)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct unread_query *queries,
		size_t count);

	/* Outside a transaction: answers several queries at once. */
	QP_MUST_CHECK enum status (*list)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct message_query *queries,
		size_t count);

	/* Outside a transaction: answers several queries, each from one snapshot. */
	QP_MUST_CHECK enum status (*list_conversations)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct conversation_query *queries,
		size_t count);

	/* Outside a transaction, for `quipu verify`: a page of the users who have unread messages,
	 * by user_id, with how many they have. */
	QP_MUST_CHECK enum status (*count_unread)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct unread_count *counts);

	/* Outside a transaction: a page of the unread messages of page->user_id, by id. Fills only
	 * receiver_id, id, sender_id and created_us. */
	QP_MUST_CHECK enum status (*list_unread)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct message *messages);
};

/* The head of each adapter's own repository. */
struct message_repository {
	const struct message_repository_ops *ops;
	const struct eraser *eraser;
};

#endif
