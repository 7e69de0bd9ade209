/*
 * Decides how a claim ends after an attempt, by the rules that relays and deliveries share. Pure,
 * except for claims_log_failed(). The states of a claim are in ports/claim_repository.h.
 */
#ifndef QUIPU_FLOW_CLAIMS_H
#define QUIPU_FLOW_CLAIMS_H

#include "base/random.h"
#include "ports/claim_repository.h"

/* How an attempt to publish or send a claimed row ended. */
enum claim_try {
	TRY_WORKED,
	TRY_FAILED, /* counts as an attempt; after the last attempt the row is given up */
	/* the receiver did not confirm, could not be reached, or refused just after an outage; this
	 * does not count as an attempt, so that an outage never causes a row to be given up; the
	 * row is due again in about a second */
	TRY_AWAY,
	/* nothing was sent, because the receiver was away or there was no time left; this does not
	 * count as an attempt; the row is due at once */
	TRY_NOT_MADE,
	TRY_REFUSED, /* no further attempt can help: the row is given up */
};

/*
 * Returns the pause before the next attempt: min(60, 2^attempt) seconds, times a random factor from
 * 0.5 to below 1.5. `attempt` is 0 after the first failed attempt, 1 after the second, and so on.
 */
int64_t claim_backoff_us(int32_t attempt, struct dice *dice);

/* Sets how `claim` ends after an attempt: its `end` and, if needed, its `delay_us` and `error`.
 * Does not copy the text of `error`. */
void claim_conclude(struct claim *claim, enum claim_try try, int32_t attempts_max,
	struct dice *dice, struct slice error);

/* Logs a warning for each claim that has become a dead letter of `kind`. Call it after COMMIT. */
void claims_log_failed(const char *kind, const struct claim *claims, size_t count);

#endif
