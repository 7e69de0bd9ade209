/*
 * The Idempotency-Keys of a batch of writes: replays the answers stored under them, and stores new
 * answers. The committer calls these functions between BEGIN and COMMIT of its transactions; each
 * returns the session's status.
 *
 * A write without an effect outside the store needs one transaction: look up the key, decide, store
 * the answer. A write with an effect stores its answer as pending, owned by this attempt until its
 * lease ends; a second transaction then records how the effect ended.
 *
 * Private to flow/; used only on the committer's thread.
 */
#ifndef QUIPU_FLOW_KEYED_WRITES_H
#define QUIPU_FLOW_KEYED_WRITES_H

#include "flow/committer.h"

/* Writes whose Idempotency-Keys have to be written in this transaction, sorted by scope and key. */
struct keyed_writes {
	struct write **fresh; /* the store has no records for these keys */
	size_t fresh_count;
	struct write **resumed; /* these keys are pending, and their leases have ended */
	size_t resumed_count;
};

/*
 * Collects the writes with an Idempotency-Key. If several share a key, keeps the first and marks
 * the other writes as REPEATED: once this transaction has committed, they get the answer that is
 * stored under the key. The arrays live in the batch's arena.
 */
struct keyed_writes keyed_writes_of(const struct write_batch *batch);

/* Settles the writes whose Idempotency-Keys are known; the other writes stay in `keyed`. */
enum status keyed_writes_replay(
	struct keyed_writes *keyed, struct session *session, const struct write_batch *batch);

/*
 * Takes over the pending Idempotency-Keys of the writes that decide() has resumed, and replaces
 * their notes and answers. Returns RERUN, after a rollback, if another process took one of them
 * over first.
 */
enum status keyed_writes_claim(
	const struct keyed_writes *keyed, struct session *session, const struct write_batch *batch);

/* Stores the answers of fresh writes under their Idempotency-Keys for `ttl_us`. The answers of
 * writes with an effect stay pending. */
enum status keyed_writes_keep(const struct keyed_writes *keyed, struct session *session,
	const struct write_batch *batch, int64_t ttl_us);

/*
 * In the second transaction: records how the effect of each write has ended. Marks a write that no
 * longer owns its Idempotency-Key as `is_lost`, because the key's new owner records the outcome.
 */
enum status keyed_writes_settle(struct session *session, const struct write_batch *batch);

#endif
