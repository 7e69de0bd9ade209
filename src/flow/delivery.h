/*
 * A delivery sends claimed rows through a notifier: claim, send, end, on a thread of its own. It
 * serves every service whose rows stand for something to send (notifications, messages of the
 * gateway). ports/claim_repository.h has the states of a row, flow/claims.h the rules for retries.
 */
#ifndef QUIPU_FLOW_DELIVERY_H
#define QUIPU_FLOW_DELIVERY_H

#include "ports/claim_repository.h"
#include "ports/dead_letter_repository.h"
#include "ports/notifier.h"

struct delivery_config {
	const char *name;    /* of the thread: "notify" */
	struct store *store; /* nothing here is owned */
	const struct claim_repository *claims;
	const struct dead_letter_repository *dead;
	const char *letter_kind;  /* of the dead letters: "notification" */
	const char *announcement; /* of new rows */
	struct notifier *notifier;
	int64_t poll_us;
	int64_t lease_us; /* longer than the notifier can take for one row */
	int32_t attempts_max;

	/* Writes what is sent for a row, in memory of `arena`. Returns why that is impossible, or
	 * NULL. */
	const char *(*write_body)(
		struct arena *arena, const struct claim *claim, struct slice *body);
};

struct delivery;

/* Starts the thread. */
struct delivery *delivery_start(const struct delivery_config *config);

/* Ends the thread, returns unsent rows to the table, and frees the delivery. */
void delivery_stop(void *delivery);

struct delivery_counts {
	/* Rows by state, counted every few seconds. */
	int64_t pending;
	int64_t busy;
	int64_t failed;
	int64_t dead;      /* unresolved dead letters */
	int64_t oldest_us; /* age of the oldest row that is not sent */

	/* Since the start. */
	int64_t sent;
	int64_t retried; /* attempts that failed and will be repeated */
	int64_t given_up;
};

/* Any thread. */
struct delivery_counts delivery_counts(const struct delivery *delivery);

#endif
