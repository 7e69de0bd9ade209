/*
 * Messages between users: one row each, keyed by receiver, so that a cluster can distribute the
 * table by receiver. Further tables hold who talks with whom, and the last message of each
 * conversation. Functions block, take a session of the same store, and return a status that
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
	bool was_unread; /* mark() has changed it from unread to read */
};

/* A page of the messages between two users, in both directions: the newest that are older than
 * `before`. */
struct message_query {
	struct slice user_id;
	struct slice other_id; /* may be the same user */
	struct slice before;   /* id of a message; empty to start at the newest */
	size_t limit;
	/* the page ends with the message whose text takes the total over this many bytes */
	size_t text_max;

	struct message *messages; /* out, newest first, in memory of the arena; at most `limit` */
	size_t message_count;
};

/* The conversation of a user with another user. */
struct conversation {
	struct slice other_id;
	struct message last; /* the message with the greatest id, in either direction */
	int64_t unread;      /* how many messages from the other user this user has not read */
};

/* A page of a user's conversations, those with the newest last message first. Only conversations
 * whose last message is older than `before` are included. */
struct conversation_query {
	struct slice user_id;
	struct slice before; /* id of a message; empty to start at the newest */
	size_t limit;
	size_t text_max; /* as in a message_query, for the texts of the last messages */

	struct conversation *conversations; /* out, newest first, in memory of the arena */
	size_t conversation_count;
};

/* The oldest unread messages from one sender to one receiver, up to and including `up_to`. */
struct unread_query {
	struct slice receiver_id;
	struct slice sender_id;
	struct slice up_to;
	size_t limit;

	bool exists;       /* out: `up_to` is a message from this sender to this receiver */
	struct slice *ids; /* out, oldest first, in memory of the arena; at most `limit` */
	size_t id_count;
};

/* How many unread messages a user has received. */
struct unread_count {
	struct slice user_id;
	int64_t count;
};

/* A row that holds who talks with whom, for `quipu verify`. */
struct conversation_row {
	struct slice user_id;
	struct slice other_id;
	/* the beginning of the last message's id, CONVERSATION_SPAN_BYTES of it; tells roughly when
	 * it was sent. Empty if there is no such row. */
	struct slice last_span;
};

#define CONVERSATION_SPAN_BYTES 7

struct message_repository;

struct message_repository_ops {
	/*
	 * In a transaction: stores new messages as unread, and updates the conversations of both
	 * users.
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

	/* In a transaction: answers several queries at once, without locking anything. */
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

	/* Outside a transaction, for `quipu verify`: reads a page of the users who have unread
	 * messages, by user_id, each with the number of unread messages. */
	QP_MUST_CHECK enum status (*count_unread)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct unread_count *counts);

	/* Outside a transaction: reads a page of the unread messages of page->user_id, by id. Sets
	 * only receiver_id, id, sender_id and created_us. */
	QP_MUST_CHECK enum status (*list_unread)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct message *messages);

	/* Outside a transaction, for `quipu verify`: reads a page of the rows of all conversations,
	 * by user_id and other_id. */
	QP_MUST_CHECK enum status (*list_rows)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct conversation_row *rows);

	/* Outside a transaction, for `quipu verify`: reads a page of who has received messages
	 * (user_id) from whom (other_id), by both. Sets no last_span. */
	QP_MUST_CHECK enum status (*list_directions)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct conversation_row *rows);

	/* Outside a transaction, for `quipu verify`: reads the last_span of some conversations. */
	QP_MUST_CHECK enum status (*find_rows)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct conversation_row *rows,
		size_t count);
};

/* The first member of each adapter's own repository. */
struct message_repository {
	const struct message_repository_ops *ops;
	const struct eraser *eraser;
};

#endif
