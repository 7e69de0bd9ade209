/*
 * Stores one notification for each event. A notification waits to be sent, and is kept for a while
 * afterwards. Functions block and return a status that ports/store.h lists.
 */
#ifndef QUIPU_PORTS_NOTIFICATION_REPOSITORY_H
#define QUIPU_PORTS_NOTIFICATION_REPOSITORY_H

#include "ports/claim_repository.h"
#include "ports/dead_letter_repository.h"
#include "ports/eraser.h"
#include "ports/inbox_repository.h"

struct notification {
	struct slice id; /* a UUID */
	struct slice event_id;
	struct slice event_type;
	struct slice user_id;
	struct slice unit; /* stock_keeping_unit */
	struct slice key;  /* aggregate_key */
	struct slice trace;
	int64_t version;
	int64_t occurred_us;
	struct slice payload; /* the event as it arrived; list() leaves it empty */

	/* Only list() sets the members below. */
	struct slice status;
	int32_t attempt_count;
	int64_t created_us;
	int64_t sent_us; /* 0 until the notification is sent */
};

/* A notification, and whether the rows that belong to it exist; for `quipu verify`. */
struct notification_facts {
	struct slice id;
	bool is_failed;
	int64_t created_us;
	bool has_event;  /* the notification's event is in processed_events */
	bool has_letter; /* the notification has an unresolved dead letter in notification_dlq */
};

struct notification_repository;

struct notification_repository_ops {
	/* Stores new notifications, which are PENDING and due at once. Must be called in a
	 * transaction. */
	QP_MUST_CHECK enum status (*put)(const struct notification_repository *repository,
		struct session *session, const struct notification *notifications, size_t count);

	/* Reads the newest page->limit notifications of page->user_id, newest first. Ignores
	 * page->after. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*list)(const struct notification_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct notification *notifications);

	/* Reads a page of all notifications, sorted by id. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*list_facts)(const struct notification_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct notification_facts *rows);
};

/* Each adapter embeds this struct as the first member of its own repository. */
struct notification_repository {
	const struct notification_repository_ops *ops;
	const struct eraser *eraser;
	/* claims rows of the table notifications, whose column status contains PROCESSING for the
	 * state BUSY and SENT for the state DONE (see ports/claim_repository.h) */
	const struct claim_repository *claims;
	/* the table notification_dlq, which holds failed notifications and poison */
	const struct dead_letter_repository *dead;
	const struct inbox_repository *inbox; /* the table processed_events */
};

#endif
