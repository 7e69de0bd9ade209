/*
 * Notifications: one for each event, waiting to be sent or kept after sending. Functions block and
 * return a status that ports/store.h lists.
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

	/* Only list() fills these. */
	struct slice status;
	int32_t attempt_count;
	int64_t created_us;
	int64_t sent_us; /* 0 until it is sent */
};

/* A notification, and whether the rows that belong to it exist; for `quipu verify`. */
struct notification_facts {
	struct slice id;
	bool is_failed;
	int64_t created_us;
	bool has_event;  /* its event is in processed_events */
	bool has_letter; /* it has an unresolved dead letter in notification_dlq */
};

struct notification_repository;

struct notification_repository_ops {
	/* In a transaction: stores new notifications, PENDING and due at once. */
	QP_MUST_CHECK enum status (*put)(const struct notification_repository *repository,
		struct session *session, const struct notification *notifications, size_t count);

	/* Outside a transaction: reads the newest page->limit notifications of page->user_id,
	 * newest first. Ignores page->after. */
	QP_MUST_CHECK enum status (*list)(const struct notification_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct notification *notifications);

	/* Outside a transaction: reads a page of all notifications, by id. */
	QP_MUST_CHECK enum status (*list_facts)(const struct notification_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct notification_facts *rows);
};

/* The first member of each adapter's own repository. */
struct notification_repository {
	const struct notification_repository_ops *ops;
	const struct eraser *eraser;
	/* Each claim has the aggregate_key as its key. DONE is called SENT. */
	const struct claim_repository *claims;
	const struct dead_letter_repository *dead; /* notification_dlq: notifications and poison */
	const struct inbox_repository *inbox;      /* the table processed_events */
};

#endif
