/*
 * What becomes of a claim whose work has been tried: the rules that the relay of the outbox and the
 * worker of notifications share. Pure. The states are in ports/claim_repository.h.
 */
#ifndef QUIPU_FLOW_CLAIMS_H
#define QUIPU_FLOW_CLAIMS_H

#include "base/random.h"
#include "ports/claim_repository.h"

/* How a try ended. */
enum claim_try {
	TRY_WORKED,
	TRY_FAILED,   /* counts as an attempt; the last one gives the row up */
	TRY_AWAY,     /* it was not taken, as far as is known: counts, and never gives the row up */
	TRY_NOT_MADE, /* nobody was there to take it: nothing counts, and it is due at once */
	TRY_REFUSED,  /* no further try can help */
};

/*
 * min(60, 2^attempt) s, times a random factor from 0.5 to below 1.5. `attempt` is the number of
 * tries before this one.
 */
int64_t claim_backoff_us(int32_t attempt, struct dice *dice);

/* Sets how `claim` ends. `error` is kept, not copied. */
void claim_conclude(struct claim *claim, enum claim_try try, int32_t attempts_max,
	struct dice *dice, struct slice error);

#endif
