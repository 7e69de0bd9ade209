/*
 * Handles the Idempotency-Keys of a batch of writes: replays the answers that are stored under
 * these keys, and stores new answers. Functions that return a status must be called between BEGIN
 * and COMMIT, and return the session's status.
 *
 * A write without an effect outside the store needs one transaction: look up the key, decide, store
 * the answer. A write with an effect needs two: the first stores a pending answer, with a lease,
 * under the key, and until the lease ends, no other attempt may take the key over. The second
 * records how the effect ended.
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
 * Collects the writes with an Idempotency-Key as `fresh`. If several writes share a key, keeps the
 * first write and marks the others as REPEATED: once this transaction has committed, they get the
 * answer that is stored under the key. The arrays are allocated from the batch's arena.
 */
struct keyed_writes keyed_writes_of(const struct write_batch *batch);

/*
 * Looks up the Idempotency-Keys. A write whose key is stored gets the stored answer, or 409 if the
 * key belongs to another request. If the key is pending, the write becomes BUSY or, after the end
 * of the lease, moves to keyed->resumed. Writes with new keys stay in keyed->fresh.
 */
enum status keyed_writes_replay(
	struct keyed_writes *keyed, struct session *session, const struct write_batch *batch);

/*
 * Takes over the pending Idempotency-Keys of the writes that decide() has resumed, and replaces the
 * stored notes and answers with those of the writes. If another process took over one of these keys
 * first, rolls back and returns RERUN.
 */
enum status keyed_writes_claim(
	const struct keyed_writes *keyed, struct session *session, const struct write_batch *batch);

/* Stores those answers of keyed->fresh for which write_answer_is_kept() returns true, under their
 * Idempotency-Keys and for `ttl_us`. The answers of writes with an effect are stored as pending. */
enum status keyed_writes_keep(const struct keyed_writes *keyed, struct session *session,
	const struct write_batch *batch, int64_t ttl_us);

/*
 * Records under each write's Idempotency-Key how the write's effect ended. Must be called in the
 * second transaction of the writes. Marks a write that no longer owns its key as `is_lost`, because
 * the key's new owner records the outcome.
 */
enum status keyed_writes_settle(struct session *session, const struct write_batch *batch);

#endif
