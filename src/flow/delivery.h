/*
 * A delivery sends rows through a notifier, on a thread of its own: it claims a row, sends it, and
 * ends the claim with the result. Services use it for rows that have to be sent to somebody
 * (notifications, messages of the gateway). The states of a row are listed in
 * ports/claim_repository.h, the rules for retries in flow/claims.h.
 */
#ifndef QUIPU_FLOW_DELIVERY_H
#define QUIPU_FLOW_DELIVERY_H

#include "ports/claim_repository.h"
#include "ports/dead_letter_repository.h"
#include "ports/notifier.h"

struct delivery_config {
	const char *name;    /* the name of the thread, e.g. "notify" */
	struct store *store; /* not owned, like all pointers in this struct */
	const struct claim_repository *claims;
	const struct dead_letter_repository *dead;
	const char *letter_kind;  /* the kind of the delivery's dead letters, e.g. "notification" */
	const char *announcement; /* the name under which the store announces new rows */
	struct notifier *notifier;
	int64_t poll_us;
	int64_t lease_us; /* must be at least the notifier's longest_ns */
	int32_t attempts_max;

	/* Sets `*body` to the body to send for a row. The body points into the claim or is
	 * allocated from `arena`. Returns NULL on success, otherwise the reason for the failure. */
	const char *(*write_body)(
		struct arena *arena, const struct claim *claim, struct slice *body);
};

struct delivery;

/* Starts the thread. */
struct delivery *delivery_start(const struct delivery_config *config);

/* Ends the thread, records the results that are known, and frees the delivery. Also ends the claims
 * of the rows that are still on their way, so that these rows are sent again later. */
void delivery_stop(void *delivery);

struct delivery_counts {
	/* The members down to `oldest_us` describe what is stored. They are updated every few
	 * seconds. */
	int64_t pending;
	int64_t busy;
	int64_t failed;
	int64_t dead;      /* unresolved dead letters */
	int64_t oldest_us; /* age of the oldest row that is pending or busy; 0 if there is none */

	/* The members below count what has happened since the delivery was started. */
	int64_t sent;
	int64_t retried; /* failed attempts that will be retried */
	int64_t given_up;
};

/* Thread-safe. */
struct delivery_counts delivery_counts(const struct delivery *delivery);

#endif
