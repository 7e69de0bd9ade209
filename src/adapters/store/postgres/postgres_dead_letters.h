/*
 * Dead letters (ports/dead_letter_repository.h) in PostgreSQL. An outbox's dead letters are its
 * FAILED rows; the dead letters of notifications and outbound messages have tables of their own.
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_DEAD_LETTERS_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_DEAD_LETTERS_H

#include "adapters/store/postgres/postgres_claims.h"
#include "ports/dead_letter_repository.h"

/*
 * The statements for dead letters, which are rows of an outbox or of a table of dead letters:
 *
 *   put          takes arrays of id, kind, type, key, position, error, payload and attempt_count;
 *                stores the letters, except those of the kind "poison"
 *   put_poison   takes the parameters of `put` and stores only letters of the kind "poison"
 *   list         takes kind, the id of the previous page's last letter, and a limit
 *   find         takes kind and id; like `list`, returns id, kind, type, key, position, error,
 *                attempt_count, created_at, payload (empty in `list`)
 *   row          takes kind, id and the new status (PENDING or DISCARDED); changes the row that
 *                failed
 *   letter       takes the parameters of `row` and marks the letter as resolved
 *   depth        counts unresolved letters
 *
 * For an outbox, `put`, `put_poison` and `letter` have no SQL. `letter` returns a row if it
 * resolved the letter. If `letter` has no SQL, `row` itself resolves the letter, and returns a row
 * if it did.
 */
struct pg_dead_letters {
	struct dead_letter_repository base;
	const char *target; /* the table's name in operator_actions */
	/* the table in which a replay sets a row back to PENDING */
	const struct pg_claims *reopens;
	struct pg_statement put;
	struct pg_statement put_poison;
	struct pg_statement list;
	struct pg_statement find;
	struct pg_statement row;
	struct pg_statement letter;
	struct pg_statement depth;
};

extern const struct dead_letter_repository_ops pg_dead_letters_ops;

#endif
