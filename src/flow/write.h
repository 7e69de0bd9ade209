/*
 * A write is a command that changes something. Committers run writes in batches. Services embed
 * struct write as the first member of their own commands.
 *
 *   fate       set by                                  next
 *   OPEN       committer, before each attempt          decide() must set another fate
 *   ANSWERED   decide(); committer, if an answer is    delivered after COMMIT
 *              stored under the Idempotency-Key
 *   BUSY       decide(), if another session holds the  parked and retried when due, as often as
 *              row; committer, if the Idempotency-Key  the service allows (see committer.h)
 *              is pending for another attempt
 *   REPEATED   committer, if the Idempotency-Key       retried after the first write with that
 *              occurs twice in a batch                 Idempotency-Key has committed
 *   UNAPPLIED  decide(), if the one statement of a     retried in an ordinary transaction
 *              TRANSACTION_SINGLE skipped it
 *   EFFECT     decide(), if something outside the      carried out after COMMIT, then recorded by
 *              store has to be done                    a second transaction: see flow/effects.h
 */
#ifndef QUIPU_FLOW_WRITE_H
#define QUIPU_FLOW_WRITE_H

#include "ports/store.h"
#include "runtime/command.h"

enum write_fate {
	WRITE_OPEN,
	WRITE_ANSWERED,
	WRITE_BUSY,
	WRITE_REPEATED,
	WRITE_UNAPPLIED,
	WRITE_EFFECT,
};

/* Whether an effect outside the store has ended, and how: see flow/effects.h. */
enum write_effect {
	EFFECT_BEGUN,
	EFFECT_DONE,    /* the answer is final and is kept under the Idempotency-Key */
	EFFECT_FAILED,  /* the effect certainly did not happen: the Idempotency-Key is deleted */
	EFFECT_UNKNOWN, /* the Idempotency-Key stays pending: a retry repeats the effect */
};

struct write {
	struct command command;

	/*
	 * Sets the fate of this write alone, in the transaction, before the service decides the
	 * other writes. Returns OK, or the status of this session or of another one that it has
	 * used; the caller then rolls back. NULL if the service decides this write with the other
	 * writes.
	 */
	enum status (*decide)(struct write *write, struct session *session, struct arena *arena);
	struct idempotency_record *idempotency; /* NULL if the write has no Idempotency-Key */
	enum write_fate fate;
	enum write_effect effect; /* valid if the fate is EFFECT */
	/* monotonic time just after the COMMIT of the transaction that began the effect */
	int64_t reserved_ns;
	/* its Idempotency-Key is pending: an earlier attempt decided this write and stored its note
	 * and answer, but did not record how its effect ended */
	bool resumed;
	bool is_lost;       /* another owner took over its Idempotency-Key: record nothing */
	bool was_unapplied; /* a single statement skipped it: its row must be read */
	bool waits_for_idempotency; /* BUSY because of its Idempotency-Key, not its row */
	unsigned tries;             /* attempts that found it BUSY */
	size_t position;            /* its index in the batch, in order of arrival */
};

/* Writes of one transaction, in the order in which they arrived. */
struct write_batch {
	struct write **writes;
	size_t count;
	enum transaction_mode mode;
	struct arena *arena; /* reset before the next attempt */

	/* Writes of earlier batches whose effects this transaction also records; NULL if there are
	 * none. decide() must record these effects as settle() does. */
	const struct write_batch *ended;
};

/* Returns the write that `command` is part of. Aborts if it is not a write. */
struct write *write_of(struct command *command);

/* Sets the answer of an OPEN write, whose fate becomes ANSWERED. */
void write_answer(struct write *write, struct answer answer);

/* Sets the fate of an OPEN write to EFFECT. The write gets `answer` if the effect succeeds. */
void write_begin_effect(struct write *write, struct answer answer);

/* Sets the fate of an OPEN, `resumed` write to EFFECT: its effect begins again, with the note and
 * answer that were stored. */
void write_resume_effect(struct write *write);

/*
 * Sets the Idempotency-Key of `write`. In `record`, `scope`, `key` and `fingerprint` must be set;
 * `typed` may be empty. The record is copied into `arena`. The arena and everything that the record
 * points to must live as long as the write.
 */
void write_set_idempotency(
	struct write *write, struct arena *arena, const struct idempotency_record *record);

/* Returns whether an answer is kept under an Idempotency-Key: true for successes, and for refusals
 * that depend on stored state (404, 409, 412). */
bool write_answer_is_kept(const struct answer *answer);

#endif
