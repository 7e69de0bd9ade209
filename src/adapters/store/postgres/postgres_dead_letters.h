/*
 * Dead letters (ports/dead_letter_repository.h) in PostgreSQL, as views on the tables that they
 * wait in, and the record of what people did.
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_DEAD_LETTERS_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_DEAD_LETTERS_H

#include "adapters/store/postgres/postgres_claims.h"
#include "ports/dead_letter_repository.h"

/*
 * `put` and `put_poison` take arrays of id, kind, type, key, position, error, payload and
 * attempt_count; they and `letter` are empty where letters have no table of their own. `list` takes
 * kind, id of the last one seen, and how many; `find` takes kind and id. Both return the fields of
 * struct dead_letter in this order: id, kind, type, key, position, error, attempt_count, created,
 * payload. `row` takes kind, id and the new status, PENDING or DISCARDED, of the row that was given
 * up. Where letters are kept in a table of their own, `letter` takes the same and says that the
 * letter is resolved. The last of them returns a row if there was one to change.
 */
struct pg_dead_letters {
	struct dead_letter_repository base;
	const char *target;              /* what operator_actions calls it */
	const struct pg_claims *reopens; /* where a replay makes a row PENDING */
	struct pg_statement put;         /* of all letters but poison */
	struct pg_statement put_poison;
	struct pg_statement list;
	struct pg_statement find;
	struct pg_statement row;
	struct pg_statement letter;
	struct pg_statement depth;
};

extern const struct dead_letter_repository_ops pg_dead_letters_ops;

/* In a transaction. */
QP_MUST_CHECK enum status pg_record_action(
	struct session *session, const char *action, struct slice target, struct slice detail);

#endif
