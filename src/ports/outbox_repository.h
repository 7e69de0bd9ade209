/*
 * Events that wait to be published. A service writes an event in the transaction of the change that
 * it describes; flow/relay publishes it afterwards, at least once. Every service that publishes has
 * a table of this shape. Functions block and return a status that ports/store.h lists.
 */
#ifndef QUIPU_PORTS_OUTBOX_REPOSITORY_H
#define QUIPU_PORTS_OUTBOX_REPOSITORY_H

#include "ports/claim_repository.h"
#include "ports/dead_letter_repository.h"

struct outbox_event {
	struct slice id;    /* a UUID */
	struct slice type;  /* e.g. "EntitlementGranted" */
	struct slice key;   /* aggregate_key */
	struct slice trace; /* traceparent of the request; may be empty */
	struct slice payload;
	int64_t occurred_us; /* when it happened; also created_at */
};

struct outbox_repository;

struct outbox_repository_ops {
	/* In a transaction: stores events, PENDING and due at once. */
	QP_MUST_CHECK enum status (*put)(const struct outbox_repository *repository,
		struct session *session, const struct outbox_event *events, size_t count);

	/*
	 * In a transaction: sets all events published at `since_us` or later back to PENDING,
	 * records in operator_actions that `who` did this, and returns the number of events.
	 */
	QP_MUST_CHECK enum status (*resend)(const struct outbox_repository *repository,
		struct session *session, int64_t since_us, struct slice who, size_t *count);
};

/* The first member of each adapter's own repository. */
struct outbox_repository {
	const struct outbox_repository_ops *ops;
	const struct claim_repository *claims;
	/* shows the outbox's FAILED rows as dead letters; its put() must not be called */
	const struct dead_letter_repository *dead;
};

#endif
