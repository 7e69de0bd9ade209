/*
 * Claims and releases the rows of outboxes, notifications and outbound messages. Each of these rows
 * stands for work outside the store: an event to publish, or a notification or message to send. A
 * worker claims a row under a lease, works on it outside any transaction, and ends the claim with
 * an UPDATE that checks the row's status, owner and epoch. So if a worker stalls and another worker
 * claims its row meanwhile, the stalled worker changes nothing when it wakes up.
 *
 *   state     event                     next       columns
 *   PENDING   claim, when it is due     BUSY       locked_by, locked_at, lease_until set;
 *                                                  claim_epoch + 1; last_error empty
 *   BUSY      claim, lease is over      BUSY       as above
 *   BUSY      end: CLAIM_DONE           DONE       published_at or sent_at
 *   BUSY      end: CLAIM_RETRY          PENDING    attempt_count + 1, next_retry_at, last_error
 *   BUSY      end: CLAIM_DELAYED        PENDING    attempt_count unchanged, next_retry_at,
 *                                                  last_error
 *   BUSY      end: CLAIM_FAILED         FAILED     attempt_count + 1, last_error
 *   BUSY      end: CLAIM_RETURNED       PENDING    due at once, attempt_count unchanged
 *   FAILED    reopen                    PENDING    attempt_count 0, due at once
 *   FAILED    discard                   DISCARDED
 *   DONE      resend (outbox)           PENDING    attempt_count 0, due at once
 *
 * Every end of a claim empties lease_until. For the states BUSY and DONE, the column status
 * contains IN_FLIGHT and PUBLISHED in outboxes, PROCESSING and SENT in notifications, and SENDING
 * and SENT in outbound messages. Functions block and return a status that ports/store.h lists.
 */
#ifndef QUIPU_PORTS_CLAIM_REPOSITORY_H
#define QUIPU_PORTS_CLAIM_REPOSITORY_H

#include "ports/store.h"

enum claim_end { CLAIM_DONE, CLAIM_RETRY, CLAIM_DELAYED, CLAIM_FAILED, CLAIM_RETURNED };

#define CLAIM_ERROR_MAX 500 /* how many bytes of last_error are kept */

struct claim {
	struct slice id;
	struct slice type;  /* the column event_type */
	struct slice key;   /* the column aggregate_key */
	struct slice trace; /* the column trace_id; may be empty */
	struct slice payload;
	int64_t occurred_us;
	int32_t attempt_count; /* attempts before this claim */
	int64_t epoch;         /* how often the row has been claimed, including this claim */

	/* The caller sets the next three members before it calls end(). */
	enum claim_end end;
	/* for CLAIM_RETRY and CLAIM_DELAYED: the time until the row is due again, counted from now
	 * by the store's clock */
	int64_t delay_us;
	struct slice error; /* for CLAIM_RETRY, CLAIM_DELAYED and CLAIM_FAILED */

	/* set by end() and renew(): true if the row was changed; false if the caller no longer
	 * holds the claim, e.g. because another worker has claimed the row */
	bool was_ours;
};

struct claim_terms {
	struct slice owner; /* names this worker; unique among all processes */
	int64_t lease_us;
	size_t max;
};

struct claim_stats {
	int64_t pending;
	int64_t busy;
	int64_t failed;
	/* age of the oldest row that is pending or busy, or 0 if there is no such row */
	int64_t oldest_us;
};

/* A row as it is stored, for `quipu verify`. */
struct claim_row {
	struct slice id;
	struct slice status; /* the word that the row's table uses for the state */
	int32_t attempt_count;
	int64_t epoch;
	int64_t created_us;
	int64_t done_us; /* the column published_at or sent_at; 0 if it is NULL */
	/* Each member below is true if the column named beside it is not NULL. */
	bool has_retry; /* next_retry_at */
	bool has_owner; /* locked_by */
	bool has_lock;  /* locked_at */
	bool has_lease; /* lease_until */
	bool has_error; /* last_error */
};

struct claim_repository;

struct claim_repository_ops {
	/*
	 * Claims up to `terms->max` rows that are due, oldest first, and skips rows that other
	 * sessions are claiming. Fills `claims`, whose slices are allocated from `arena`. Must be
	 * called in a transaction.
	 */
	QP_MUST_CHECK enum status (*claim)(const struct claim_repository *repository,
		struct session *session, struct arena *arena, const struct claim_terms *terms,
		struct claim *claims, size_t *count);

	/* Ends each claim that `owner` still holds, in the way that the claim's member `end` says.
	 * Must be called in a transaction. */
	QP_MUST_CHECK enum status (*end)(const struct claim_repository *repository,
		struct session *session, struct slice owner, struct claim *claims, size_t count);

	/* Renews the lease of each claim that terms->owner still holds. Must be called in a
	 * transaction. */
	QP_MUST_CHECK enum status (*renew)(const struct claim_repository *repository,
		struct session *session, const struct claim_terms *terms, struct claim *claims,
		size_t count);

	/* Fills in all members of `stats`. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*count)(const struct claim_repository *repository,
		struct session *session, struct claim_stats *stats);

	/*
	 * Deletes up to `limit` rows that have been DONE for longer than `age_us`, in a transaction
	 * of its own. In notifications and outbound messages, also deletes FAILED and DISCARDED
	 * rows that were created more than `age_us` ago.
	 */
	QP_MUST_CHECK enum status (*sweep)(const struct claim_repository *repository,
		struct session *session, int64_t age_us, size_t limit, size_t *deleted);

	/* Reads a page of all rows, sorted by id. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*list)(const struct claim_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct claim_row *rows);
};

/* Each adapter embeds this struct as the first member of its own repository. */
struct claim_repository {
	const struct claim_repository_ops *ops;
};

#endif
