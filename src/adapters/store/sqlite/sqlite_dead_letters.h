/*
 * Dead letters (ports/dead_letter_repository.h) in SQLite, as views on the tables that they wait
 * in, and the record of what people did.
 */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_DEAD_LETTERS_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_DEAD_LETTERS_H

#include "adapters/store/sqlite/sqlite_internal.h"
#include "ports/dead_letter_repository.h"

/*
 * `put` takes the same fields as they are listed below, and the time. `list` takes kind, id of the
 * last one seen, and how many; `find` takes kind and id. Both return the fields of struct
 * dead_letter in this order: id, kind, type, key, position, error, attempt_count, created, payload.
 * `row` takes kind, id and the new status, PENDING or DISCARDED, of the row that was given up.
 * Where letters are kept in a table of their own, `letter` takes the same and the time, and says
 * that the letter is resolved. The last of them changes a row if there was one to change.
 */
struct sqlite_dead_letters {
	struct dead_letter_repository base;
	const char *target; /* what operator_actions calls it */
	const char *list;
	const char *find;
	const char *row;
	const char *put;    /* NULL: letters have no table of their own */
	const char *letter; /* the same */
	const char *depth;
};

extern const struct dead_letter_repository_ops sqlite_dead_letters_ops;

/* In a transaction. */
QP_MUST_CHECK enum status sqlite_record_action(struct sqlite_session *session, const char *action,
	struct slice target, struct slice detail);

#endif
