/*
 * Stores events that wait to be published. A service stores an event in the transaction of the
 * change that the event describes; flow/relay publishes the event afterwards, at least once. Each
 * service whose events leave through an outbox has a table of this shape. Functions block and
 * return a status that ports/store.h lists.
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
	int64_t occurred_us; /* when the event happened; stored in the column created_at */
};

struct outbox_repository;

struct outbox_repository_ops {
	/* Stores events, which are PENDING and due at once. Must be called in a transaction. */
	QP_MUST_CHECK enum status (*put)(const struct outbox_repository *repository,
		struct session *session, const struct outbox_event *events, size_t count);

	/*
	 * Sets all events published at `since_us` or later back to PENDING, records in
	 * operator_actions that `who` did this, and sets `*count` to the number of events. Must be
	 * called in a transaction.
	 */
	QP_MUST_CHECK enum status (*resend)(const struct outbox_repository *repository,
		struct session *session, int64_t since_us, struct slice who, size_t *count);
};

/* Each adapter embeds this struct as the first member of its own repository. */
struct outbox_repository {
	const struct outbox_repository_ops *ops;
	const struct claim_repository *claims;
	/* shows the outbox's FAILED rows as dead letters; its put() must not be called */
	const struct dead_letter_repository *dead;
};

#endif
