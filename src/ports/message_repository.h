/*
 * Stores messages between users. Each message is one row whose key begins with the receiver, so
 * that a cluster can distribute the table by receiver. A second table has a row for each
 * conversation of each user, with the approximate time of the conversation's last message.
 * Functions block, take a session of the same store, and return a status that ports/store.h lists.
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
	bool was_unread; /* mark() has changed the message from unread to read */
};

/* A page of the messages between two users, in both directions: the newest messages that are older
 * than the message `before`. */
struct message_query {
	struct slice user_id;
	struct slice other_id; /* may be equal to user_id */
	struct slice before;   /* id of a message; empty to start at the newest */
	size_t limit;
	/* once the texts on the page have more than this many bytes in total, the page gets no
	 * further message */
	size_t text_max;

	struct message *messages; /* output, newest first, allocated from the arena */
	size_t message_count;
};

/* The conversation of a user with another user. */
struct conversation {
	struct slice other_id;
	struct message last; /* the message with the greatest id, in either direction */
	int64_t unread;      /* how many messages from the other user this user has not read */
};

/* A page of a user's conversations, sorted by their last message, newest first. Only conversations
 * whose last message is older than `before` are included. */
struct conversation_query {
	struct slice user_id;
	struct slice before; /* id of a message; empty to start at the newest */
	size_t limit;
	size_t text_max; /* as in struct message_query, for the texts of the last messages */

	struct conversation *conversations; /* output, newest first, allocated from the arena */
	size_t conversation_count;
};

/* The oldest unread messages from one sender to one receiver, up to and including the message
 * `up_to`. */
struct unread_query {
	struct slice receiver_id;
	struct slice sender_id;
	struct slice up_to;
	size_t limit;

	bool exists;       /* output: `up_to` is a message from this sender to this receiver */
	struct slice *ids; /* output, oldest first, allocated from the arena; at most `limit` */
	size_t id_count;
};

/* How many unread messages a user has received. */
struct unread_count {
	struct slice user_id;
	int64_t count;
};

/* A row of the table conversations, for `quipu verify`. */
struct conversation_row {
	struct slice user_id;
	struct slice other_id;
	/* the first CONVERSATION_SPAN_BYTES bytes of the last message's id, which say roughly when
	 * that message was sent; empty if the row does not exist */
	struct slice last_span;
};

#define CONVERSATION_SPAN_BYTES 7

struct message_repository;

struct message_repository_ops {
	/*
	 * Stores new messages as unread, and updates the conversations of their senders and
	 * receivers. Must be called in a transaction.
	 */
	QP_MUST_CHECK enum status (*put)(const struct message_repository *repository,
		struct session *session, const struct message *messages, size_t count);

	/*
	 * Marks messages as read. `marks` are unique and sorted by the bytes of receiver_id, then
	 * id. Must be called in a transaction; under TRANSACTION_SKIP, fails with LOCK_BUSY if
	 * another session has locked one of the rows.
	 */
	QP_MUST_CHECK enum status (*mark)(const struct message_repository *repository,
		struct session *session, struct message_mark *marks, size_t count);

	/* Answers several queries at once, without locking anything. Must be called in a
	 * transaction. */
	QP_MUST_CHECK enum status (*find_unread)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct unread_query *queries,
		size_t count);

	/* Answers several queries at once. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*list)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct message_query *queries,
		size_t count);

	/* Answers several queries, each from one snapshot. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*list_conversations)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct conversation_query *queries,
		size_t count);

	/* Reads a page of the users who have unread messages, sorted by user_id, each with the
	 * number of unread messages, for `quipu verify`. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*count_unread)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct unread_count *counts);

	/* Reads a page of the unread messages that page->user_id has received, sorted by id. Sets
	 * only receiver_id, id, sender_id and created_us. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*list_unread)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct message *messages);

	/* Reads a page of the rows of all conversations, sorted by user_id and other_id, for
	 * `quipu verify`. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*list_rows)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct conversation_row *rows);

	/* Reads a page of the pairs of receiver (user_id) and sender (other_id) that occur in
	 * messages, each pair once, sorted by user_id and other_id, for `quipu verify`. Leaves
	 * last_span empty. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*list_directions)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct conversation_row *rows);

	/* Reads the last_span of the given conversations, for `quipu verify`. Must be called
	 * outside a transaction. */
	QP_MUST_CHECK enum status (*find_rows)(const struct message_repository *repository,
		struct session *session, struct arena *arena, struct conversation_row *rows,
		size_t count);
};

/* Each adapter embeds this struct as the first member of its own repository. */
struct message_repository {
	const struct message_repository_ops *ops;
	const struct eraser *eraser;
};

#endif
