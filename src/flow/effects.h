/*
 * The effects of a committer's writes outside the store. An effect is carried out after the COMMIT
 * that reserved it, and a second transaction records how it ended. Then the write is answered.
 *
 *   effect   set by                                       next
 *   BEGUN    effects_carry_out(), after the first COMMIT  perform() ends it, or the publisher does
 *   DONE     perform() or the publisher                   recorded; the answer stands and is kept
 *                                                         under the Idempotency-Key
 *   FAILED   the same: it certainly did not happen        recorded; the Idempotency-Key is deleted
 *   UNKNOWN  the same                                     recorded: the Idempotency-Key stays
 *                                                         pending, and a retry repeats the effect
 *
 * If possible, the first transaction of the next batch also records these effects
 * (effects_settling()): while a lane is busy, its effects cost no COMMIT of their own. If that
 * transaction fails in a way that certainly changed nothing, the effects are recorded by a
 * transaction of their own. If its outcome is unknown, it is never repeated, and effects that are
 * DONE are answered with OUTCOME_UNKNOWN.
 *
 * Private to flow/; used only on the committer's thread.
 */
#ifndef QUIPU_FLOW_EFFECTS_H
#define QUIPU_FLOW_EFFECTS_H

#include "flow/committer.h"

struct effects;

/* Uses the callbacks and the session of `config`. Calls `ended` on the publisher's thread when
 * effects have ended, for effects_gather() to take. */
struct effects *effects_new(
	const struct committer_config *config, void (*ended)(void *context), void *context);

/* Start and stop the publisher's thread. Both do nothing if the service publishes nothing. */
void effects_start(struct effects *effects);
void effects_stop(struct effects *effects);

/* No effect may be under way. */
void effects_free(struct effects *effects);

/* Returns whether the publisher would carry out the effect of this write. */
bool effects_wants(const struct effects *effects, const struct write *write);

/*
 * Returns how many writes with an effect for the publisher should be decided now. If it returns 0,
 * more can be decided when effects have ended, or at the steady time `*until_ns` (INT64_MAX: only
 * when effects have ended).
 */
size_t effects_room(struct effects *effects, int64_t *until_ns);

/* Returns how many writes wait for an effect to end or to be recorded. */
size_t effects_count(const struct effects *effects);

/* Notes a write whose fate is EFFECT and whose transaction has committed. */
void effects_add(struct effects *effects, struct write *write);

/* Begins the effects of the writes that were added. */
void effects_carry_out(struct effects *effects);

/* Takes the writes whose effects the publisher has ended. */
void effects_gather(struct effects *effects);

/*
 * Returns writes whose effects have ended, for a transaction to record them with
 * keyed_writes_settle() and the service's decide(); NULL if there are none. Call effects_conclude()
 * with the result of the transaction before you call any other function here.
 */
const struct write_batch *effects_settling(struct effects *effects);
void effects_conclude(struct effects *effects, enum status status);

/* Records all effects that have ended, in transactions of their own, and answers their writes. */
void effects_settle(struct effects *effects);

#endif
