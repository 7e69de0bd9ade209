/*
 * How a claim ends after an attempt: the rules that the relay of the outbox and the notification
 * worker share. Pure, but for claims_log_failed(). ports/claim_repository.h has the states of a
 * claim.
 */
#ifndef QUIPU_FLOW_CLAIMS_H
#define QUIPU_FLOW_CLAIMS_H

#include "base/random.h"
#include "ports/claim_repository.h"

/* How an attempt ended. */
enum claim_try {
	TRY_WORKED,
	TRY_FAILED,   /* counts as an attempt; the last attempt gives the row up */
	TRY_AWAY,     /* the receiver did not confirm it: does not count, because unavailability
			 must never give a row up; the row is due again in about a second */
	TRY_NOT_MADE, /* the receiver was away: does not count, and the row is due at once */
	TRY_REFUSED,  /* no further attempt can help: gives the row up */
};

/*
 * Returns min(60, 2^attempt) s, times a random factor from 0.5 to below 1.5. `attempt` is the
 * number of attempts before this one.
 */
int64_t claim_backoff_us(int32_t attempt, struct dice *dice);

/* Sets how `claim` ends. Keeps `error` without copying it. */
void claim_conclude(struct claim *claim, enum claim_try try, int32_t attempts_max,
	struct dice *dice, struct slice error);

/* Warns about each claim that has become a dead letter of `kind`, once that is committed. */
void claims_log_failed(const char *kind, const struct claim *claims, size_t count);

#endif
