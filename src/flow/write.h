/*
 * A write is a command that changes something: what a committer batches. Services embed it as the
 * first member of their own commands.
 *
 *   fate       set by                               next
 *   OPEN       committer, before each try           decide() must settle it
 *   ANSWERED   decide(), or a replayed key          delivered after COMMIT
 *   BUSY       decide(), row held by others; or     parked, tried again when due, as often as the
 *              its key is pending elsewhere         service waits (see committer.h)
 *   REPEATED   committer: same key twice in a      tried again after the first has committed
 *              batch
 *   UNAPPLIED  decide(), in TRANSACTION_SINGLE:     tried again in an ordinary transaction
 *              the one statement passed it over
 *   EFFECT     decide(): something is to be done    perform() after COMMIT, then a second
 *              outside the store                    transaction that settles it
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

/* How an effect outside the store ended; set by perform(). */
enum write_effect {
	EFFECT_DONE,    /* its answer stands, and is remembered under the key */
	EFFECT_FAILED,  /* it certainly did not happen: the key is forgotten */
	EFFECT_UNKNOWN, /* the key stays pending: a retry does it again */
};

struct write {
	struct command command;

	/*
	 * In the transaction, before the service decides the others: settles this write, or returns
	 * what the session returned. NULL: the service decides it.
	 */
	enum status (*decide)(struct write *write, struct session *session, struct arena *arena);
	struct idempotency_record *idempotency; /* NULL: sent without an Idempotency-Key */
	enum write_fate fate;
	enum write_effect effect;   /* of a write with the fate EFFECT */
	bool resumed;               /* its key was pending: the first transaction was another's */
	bool is_lost;               /* somebody else took the key over: nothing may be recorded */
	bool was_unapplied;         /* a single statement passed it over: its row is looked at */
	bool waits_for_idempotency; /* BUSY because of its key, not its row */
	unsigned tries;             /* that have found it BUSY */
	size_t position; /* in its batch: of two with one key, the earlier is the first */
};

/* Writes that are tried in one transaction, in the order they came. */
struct write_batch {
	struct write **writes;
	size_t count;
	enum transaction_mode mode;
	struct arena *arena; /* for this try only */
};

/* Returns the write that `command` is part of. Aborts if it is not a write. */
struct write *write_of(struct command *command);

/* Settles an open write. */
void write_answer(struct write *write, struct answer answer);

/* Settles an open write with something still to be done; the answer counts if that succeeds. */
void write_begin_effect(struct write *write, struct answer answer);

/*
 * Gives `write` an Idempotency-Key, in memory of its command's arena. The request (method, path,
 * body) is remembered as a fingerprint, so that another request under the same key is told apart.
 */
void write_set_idempotency(struct write *write, struct arena *arena, struct slice scope,
	struct slice key, const struct slice request[3]);

/* Whether an answer is remembered under a key: success, and refusals decided by state. */
bool write_answer_is_kept(const struct answer *answer);

#endif
