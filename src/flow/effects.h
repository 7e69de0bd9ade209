/*
 * Carries out and records the effects that a committer's writes have outside the store. An effect
 * begins after the first transaction of its write has committed, and a second transaction records
 * how the effect ended. Then the write is answered.
 *
 *   effect   set by                                 next
 *   BEGUN    effects_add(), after the first COMMIT  perform() or the publisher carries it out
 *   DONE     perform() or the publisher             recorded; the answer stands and is kept under
 *                                                   the Idempotency-Key
 *   FAILED   perform() or the publisher, if the     recorded; the Idempotency-Key is deleted
 *            effect certainly did not happen
 *   UNKNOWN  perform() or the publisher, if the     recorded; the Idempotency-Key stays pending,
 *            effect may have happened               and a retry repeats the effect
 *
 * If possible, the first transaction of the next batch also records the effects that have ended
 * (effects_settling()). So while a lane is busy, its effects cost no COMMIT of their own. If that
 * transaction fails in a way that certainly changed nothing, the effects are recorded by a
 * transaction of their own. If its outcome is unknown, the transaction is never repeated, and the
 * writes whose effects are DONE or FAILED are answered with OUTCOME_UNKNOWN, because their effects
 * may or may not be recorded. For example, the slot of a failed send may or may not have been given
 * back.
 *
 * Private to flow/; used only on the committer's thread.
 */
#ifndef QUIPU_FLOW_EFFECTS_H
#define QUIPU_FLOW_EFFECTS_H

#include "flow/committer.h"

struct effects;

/* Uses the callbacks and the session of `config`. Calls `ended` on the publisher's thread when
 * effects have ended and effects_gather() can take their writes. */
struct effects *effects_new(
	const struct committer_config *config, void (*ended)(void *context), void *context);

/* Start and stop the publisher's thread. Both do nothing if the service publishes nothing. */
void effects_start(struct effects *effects);
void effects_stop(struct effects *effects);

/* Frees `effects`. No effect may be under way. */
void effects_free(struct effects *effects);

/* Returns whether the publisher would carry out the effect of this write. */
bool effects_wants(const struct effects *effects, const struct write *write);

/*
 * Returns how many writes that need the publisher (see effects_wants()) may run now. If it returns
 * 0, call it again when effects have ended, or at monotonic time `*until_ns` if that is not
 * INT64_MAX.
 */
size_t effects_room(struct effects *effects, int64_t *until_ns);

/* Returns how many writes wait for an effect to end or to be recorded. */
size_t effects_count(const struct effects *effects);

/* Adds a write whose fate is EFFECT and whose first transaction has committed. */
void effects_add(struct effects *effects, struct write *write);

/* Begins the effects of the writes that effects_add() has added. */
void effects_carry_out(struct effects *effects);

/* Takes back from the publisher the writes whose effects have ended. */
void effects_gather(struct effects *effects);

/*
 * Returns writes whose effects have ended, or NULL if there are no such writes. The caller's next
 * transaction should record these effects, with keyed_writes_settle() and the service's decide() or
 * settle(). Then call effects_conclude() with the result of that transaction, before you call any
 * other function of this header.
 */
const struct write_batch *effects_settling(struct effects *effects);
void effects_conclude(struct effects *effects, enum status status);

/* Records all effects that have ended, in transactions of their own, and answers their writes. */
void effects_settle(struct effects *effects);

#endif
