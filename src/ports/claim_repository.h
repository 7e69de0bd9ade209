/*
 * Rows that stand for work to be done outside the store: events to publish, notifications to send.
 * A row is claimed under a lease, worked on outside any transaction, and ended by a write that
 * checks its status, its owner and its epoch; so a worker that stalled past its lease and wakes
 * late changes nothing.
 *
 *   state     what happens              next       columns
 *   PENDING   claim, when it is due     BUSY       locked_by, locked_at, lease_until set;
 *                                                  claim_epoch + 1; last_error empty
 *   BUSY      claim, lease is over      BUSY       the same
 *   BUSY      end: CLAIM_DONE           DONE       the time of it; lease_until empty
 *   BUSY      end: CLAIM_RETRY          PENDING    attempt_count + 1, next_retry_at, last_error
 *   BUSY      end: CLAIM_FAILED         FAILED     attempt_count + 1, last_error
 *   BUSY      end: CLAIM_RETURNED       PENDING    due at once, nothing counted
 *   FAILED    reopen                    PENDING    attempt_count 0, due at once
 *   FAILED    discard                   DISCARDED
 *   DONE      resend (outbox)           PENDING    attempt_count 0, due at once
 *
 * In the outbox BUSY is called IN_FLIGHT and DONE is PUBLISHED (published_at); of notifications
 * PROCESSING and SENT (sent_at). Functions block and return what ports/store.h lists.
 */
#ifndef QUIPU_PORTS_CLAIM_REPOSITORY_H
#define QUIPU_PORTS_CLAIM_REPOSITORY_H

#include "ports/store.h"

enum claim_end { CLAIM_DONE, CLAIM_RETRY, CLAIM_FAILED, CLAIM_RETURNED };

#define CLAIM_ERROR_MAX 500 /* bytes of last_error that are kept */

struct claim {
	struct slice id;
	struct slice type;  /* event_type */
	struct slice key;   /* aggregate_key */
	struct slice trace; /* trace_id, may be empty */
	struct slice payload;
	int64_t occurred_us;
	int32_t attempt_count; /* before this claim */
	int64_t epoch;         /* of this claim */

	/* Set before end(). */
	enum claim_end end;
	int64_t delay_us;   /* CLAIM_RETRY: when it is due again, from the store's now */
	struct slice error; /* CLAIM_RETRY and CLAIM_FAILED */

	bool was_ours; /* set by end() and renew(): false: somebody else has it, nothing changed */
};

struct claim_terms {
	struct slice owner; /* of this worker; unique among all processes */
	int64_t lease_us;
	size_t max;
};

struct claim_stats {
	int64_t pending;
	int64_t busy;
	int64_t failed;
	int64_t oldest_us; /* age of the oldest that is pending or busy, 0 if there is none */
};

/* A row as it is, for `quipu verify`. */
struct claim_row {
	struct slice id;
	struct slice status; /* in the words of its table */
	int32_t attempt_count;
	int64_t epoch;
	int64_t created_us;
	int64_t done_us; /* 0: the column is empty */
	bool has_retry;  /* whether these columns have something: next_retry_at, */
	bool has_owner;  /* locked_by, */
	bool has_lock;   /* locked_at, */
	bool has_lease;  /* lease_until, */
	bool has_error;  /* last_error */
};

struct claim_repository;

struct claim_repository_ops {
	/*
	 * In a transaction: claims up to `terms->max` rows that are due, oldest first, passing over
	 * what others are claiming, into `claims`, in memory of `arena`.
	 */
	QP_MUST_CHECK enum status (*claim)(const struct claim_repository *repository,
		struct session *session, struct arena *arena, const struct claim_terms *terms,
		struct claim *claims, size_t *count);

	/* In a transaction: ends each claim as its `end` says, where it is still ours. */
	QP_MUST_CHECK enum status (*end)(const struct claim_repository *repository,
		struct session *session, struct slice owner, struct claim *claims, size_t count);

	/* In a transaction: a new lease from now on, where the claim is still ours. */
	QP_MUST_CHECK enum status (*renew)(const struct claim_repository *repository,
		struct session *session, const struct claim_terms *terms, struct claim *claims,
		size_t count);

	/* Outside a transaction. */
	QP_MUST_CHECK enum status (*count)(const struct claim_repository *repository,
		struct session *session, struct claim_stats *stats);

	/*
	 * A transaction of its own: deletes up to `limit` rows that are DONE for longer than
	 * `age_us` (where they are kept for people, FAILED and DISCARDED ones too).
	 */
	QP_MUST_CHECK enum status (*sweep)(const struct claim_repository *repository,
		struct session *session, int64_t age_us, size_t limit, size_t *deleted);

	/* Outside a transaction: a page of all rows, by id. */
	QP_MUST_CHECK enum status (*list)(const struct claim_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct claim_row *rows);
};

/* The head of each adapter's own repository. */
struct claim_repository {
	const struct claim_repository_ops *ops;
};

#endif
