/*
 * Events that wait to be published: written in the transaction of the change that they tell of,
 * published afterwards by flow/relay, at least once. Every service that publishes has a table of
 * this shape. Functions block and return what ports/store.h lists.
 */
#ifndef QUIPU_PORTS_OUTBOX_REPOSITORY_H
#define QUIPU_PORTS_OUTBOX_REPOSITORY_H

#include "ports/claim_repository.h"
#include "ports/dead_letter_repository.h"

struct outbox_event {
	struct slice id;    /* UUID */
	struct slice type;  /* "EntitlementGranted" */
	struct slice key;   /* aggregate_key */
	struct slice trace; /* traceparent of the request, may be empty */
	struct slice payload;
	int64_t occurred_us; /* also created_at */
};

struct outbox_repository;

struct outbox_repository_ops {
	/* In a transaction. */
	QP_MUST_CHECK enum status (*put)(const struct outbox_repository *repository,
		struct session *session, const struct outbox_event *events, size_t count);

	/*
	 * In a transaction: what was published at `since_us` or later becomes PENDING again. Tells
	 * how many, and records that it was done.
	 */
	QP_MUST_CHECK enum status (*resend)(const struct outbox_repository *repository,
		struct session *session, int64_t since_us, size_t *count);
};

/* The head of each adapter's own repository. */
struct outbox_repository {
	const struct outbox_repository_ops *ops;
	const struct claim_repository *claims;
	const struct dead_letter_repository *dead; /* its FAILED rows; without put */
};

#endif
