/*
 * A committer takes whatever waits in its lane, runs ONE transaction for all of it, and answers
 * after COMMIT. There is no timer: while one batch commits, the next gathers.
 *
 * What the store may say of a transaction, and what follows:
 *
 *   OK                 answers are delivered; busy writes are parked; repeated keys run again
 *   RERUN              the same batch again, a bounded number of times
 *   LOCK_BUSY          the same batch again with TRANSACTION_SKIP: rows held by others come back as
 * busy. If it happens under TRANSACTION_SKIP too (a key or a new row that another session has not
 * committed yet), the batch is halved until the one is found: parked POISON             halved
 * until the one command is found, which gets 500; the rest is applied STORE_UNAVAILABLE  503 for
 * all, nothing was applied OUTCOME_UNKNOWN    503 for all, and the answer says so
 *
 * A committer is a thread of its own, or, in tests, a function called by hand.
 */
#ifndef QUIPU_FLOW_COMMITTER_H
#define QUIPU_FLOW_COMMITTER_H

#include "base/clock.h"
#include "flow/write.h"
#include "runtime/lane.h"

/* How a write waits for a row that others hold. */
struct waiting {
	int64_t retry_ns; /* tried again after this, give or take half of it; 0: WAITING_RETRY_NS */
	unsigned tries_max; /* in all, then give_up() answers it; 0: tried until its deadline */
	struct answer (*give_up)(struct write *write);
};

#define WAITING_RETRY_NS (20 * NS_PER_MS)

struct committer_config {
	struct lane *lane;       /* not owned */
	struct session *session; /* owned */
	size_t batch_max;
	size_t parked_max;
	int64_t idempotency_ttl_us;
	struct waiting waiting;
	const struct clock *clock;

	/*
	 * Optional. Before the transaction and outside any: answers what can be answered without
	 * the store. May use the session for transactions of its own.
	 */
	void (*prepare)(void *service, struct session *session, const struct write_batch *batch);

	/*
	 * Optional. Whether the batch is one statement, so that TRANSACTION_SINGLE may run it. No
	 * write of it has an Idempotency-Key or a decide() of its own. NULL: never.
	 */
	bool (*is_single)(void *service, const struct write_batch *batch);

	/*
	 * Settles every OPEN write of the batch with the rules of the service, in the transaction
	 * that has begun on `session`. May be called again for the same writes after a rollback.
	 * Returns OK, or what the session returned.
	 */
	enum status (*decide)(
		void *service, struct session *session, const struct write_batch *batch);

	/*
	 * For services whose decide() leaves writes with the fate EFFECT. perform() carries the
	 * effects out, after COMMIT and outside any transaction, and sets the `effect` of each (and
	 * the answer of those that failed). settle() records in a second transaction what became of
	 * those that are not `is_lost`; it may be called again after a rollback. If that cannot be
	 * recorded, the answer is OUTCOME_UNKNOWN.
	 */
	void (*perform)(void *service, const struct write_batch *batch);

	/* Optional. After every COMMIT, once its answers are on their way. Must not block. */
	void (*committed)(void *service);
	enum status (*settle)(
		void *service, struct session *session, const struct write_batch *batch);
	void *service;
};

struct committer;

struct committer *committer_new(const struct committer_config *config);

/* Runs it on a thread of its own until the lane is closed and everything taken is answered. */
void committer_start(struct committer *committer);

/* From now on, whatever would wait or run is answered with OVERLOADED. Any thread. */
void committer_abort(struct committer *committer);

/* Waits for the thread, if one was started. The lane must be closed. */
void committer_join(struct committer *committer);

/* Frees it, after committer_join(). */
void committer_free(struct committer *committer);

/*
 * One round without a thread, for tests: takes what waits, runs what is due. false: the lane is
 * closed and nothing is left.
 */
bool committer_step(struct committer *committer);

/* Metrics of all committers of the program, `count` of them. Families are written once. */
void committers_collect(struct committer *const *committers, size_t count, struct buffer *page);

#endif
