/*
 * A committer takes all writes that wait in its lane, up to a bound, runs ONE transaction for them,
 * and answers after COMMIT. There is no timer: while one batch commits, the next batch gathers.
 *
 * How the committer reacts to each status that the store may return for a transaction:
 *
 *   OK                 delivers the answers, parks BUSY writes, and runs REPEATED and UNAPPLIED
 *                      writes again (flow/write.h explains these fates)
 *   RERUN              runs the same batch again, a bounded number of times
 *   LOCK_BUSY          runs the same batch again with TRANSACTION_SKIP, which reports as BUSY
 *                      the rows that other sessions hold. If LOCK_BUSY comes again (because
 *                      another session has not yet committed an Idempotency-Key or a new row),
 *                      halves the batch until it has found the write that is blocked, and
 *                      parks that write
 *   POISON             halves the batch until it has found the write that the store refuses,
 *                      answers that write with 500, and applies the other writes
 *   STORE_UNAVAILABLE  answers all writes with 503; nothing was applied
 *   OUTCOME_UNKNOWN    answers all writes with 503; the answers say that the outcome is unknown
 *
 * A committer runs on a thread of its own or, in tests, one step at a time.
 */
#ifndef QUIPU_FLOW_COMMITTER_H
#define QUIPU_FLOW_COMMITTER_H

#include "base/clock.h"
#include "flow/publisher.h"
#include "flow/write.h"
#include "runtime/lane.h"

/* How a write whose fate is BUSY waits for its next attempt. */
struct waiting {
	/* The average pause before a retry. Each pause is chosen at random, from 0.5 to
	 * 1.5 times this value. 0 stands for WAITING_RETRY_NS. */
	int64_t retry_ns;

	/* How many attempts a write gets in total before give_up() answers it; 0 to retry until its
	 * deadline. */
	unsigned tries_max;
	struct answer (*give_up)(struct write *write);
};

#define WAITING_RETRY_NS (20 * NS_PER_MS)

struct committer_config {
	struct lane *lane;       /* not owned */
	struct session *session; /* owned */
	size_t batch_max;        /* the most changes in one transaction */
	/* `held_max` limits how many changes may wait outside the lane, and `held_bytes_max` limits
	 * the bytes of their writes. Both limits apply to the parked writes and, separately, to the
	 * writes that are set aside. `held_bytes_max` also applies to writes whose effects are
	 * under way. A single write may have more changes than `batch_max` or `held_max`. */
	size_t held_max;
	size_t held_bytes_max;
	int64_t idempotency_ttl_us;
	struct waiting waiting;
	const struct clock *clock;

	/*
	 * Optional. Runs before the transaction and answers writes that need no transaction. May
	 * use the session for transactions of its own.
	 */
	void (*prepare)(void *service, struct session *session, const struct write_batch *batch);

	/*
	 * Optional. Returns true if one statement can apply the whole batch, which may then run as
	 * a TRANSACTION_SINGLE. Called only if no write has an Idempotency-Key or a decide() of its
	 * own.
	 */
	bool (*is_single)(void *service, const struct write_batch *batch);

	/*
	 * Sets the fate of every OPEN write of the batch by the rules of the service, in the
	 * transaction that has begun on `session`. May be called again for the same writes after a
	 * rollback. If a write is `resumed`, decide() either begins its effect again or refuses the
	 * write; if it refuses, the write's Idempotency-Key stays pending. Returns OK, or the
	 * session's status.
	 */
	enum status (*decide)(
		void *service, struct session *session, const struct write_batch *batch);

	/*
	 * `perform` and `publishing` are optional. They carry out the effects of the writes whose
	 * fate decide() has set to EFFECT (see flow/effects.h). perform() runs after COMMIT,
	 * outside any transaction. It carries out the effects that take no longer than a
	 * transaction. It sets the `effect` of each of their writes and, unless the effect is DONE,
	 * the answer. It leaves all other effects BEGUN. The publisher carries those out with
	 * `publishing`, on a thread of its own (flow/publisher.h).
	 */
	void (*perform)(void *service, const struct write_batch *batch);
	const struct publish_ops *publishing;

	/*
	 * In the transaction that has begun on `session`, records how the effects of the writes
	 * ended. Skips writes that are `is_lost`. May be called again after a rollback. If
	 * recording fails, the writes are answered with OUTCOME_UNKNOWN. While the lane is busy,
	 * settle() is not called, and the next call of decide() records these effects: decide()
	 * gets their writes as the `ended` of its batch, so that it can lock all rows in one order.
	 */
	enum status (*settle)(
		void *service, struct session *session, const struct write_batch *batch);

	/*
	 * Optional. Called outside any transaction, before the committer answers `writes` with a
	 * failure. Each answer says either that nothing was changed or that the outcome is unknown.
	 * Undoes what prepare() did for `writes`, so that the first kind of answer is true. Also
	 * called if it is not certain that the effects of `writes` are recorded.
	 */
	void (*failed)(void *service, const struct command_list *writes);

	/* Optional. Called after each COMMIT, and before the answers of its writes are delivered.
	 * Delays these answers if it blocks. */
	void (*committed)(void *service);

	/* First argument of the callbacks that take a `service`. All callbacks run on the
	 * committer's thread, except those of `publishing`: flow/publisher.h says on which thread
	 * each of them runs. */
	void *service;
};

struct committer;

/* Creates a committer without starting it. */
struct committer *committer_new(const struct committer_config *config);

/* Runs the committer on a thread of its own until the lane is closed and every write is
 * answered. */
void committer_start(struct committer *committer);

/* From now on, the committer answers writes with 503 and neither runs them nor lets them wait.
 * Thread-safe. */
void committer_abort(struct committer *committer);

/* Waits for the thread, if one was started. The lane must be closed. */
void committer_join(struct committer *committer);

/* Frees the committer. Call it after committer_join(). */
void committer_free(struct committer *committer);

/*
 * Takes and runs the writes that wait in the lane, and retries the parked writes that are due.
 * Returns false if the lane is closed and no write is left. The committer's thread calls it in a
 * loop; tests call it without a thread.
 */
bool committer_step(struct committer *committer);

/* Writes the metrics of all committers together, because samples of one name must be adjacent. */
void committers_collect(struct committer *const *committers, size_t count, struct buffer *page);

#endif
