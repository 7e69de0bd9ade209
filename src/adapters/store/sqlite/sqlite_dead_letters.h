/*
 * Dead letters (ports/dead_letter_repository.h) in SQLite. The dead letters of an outbox are its
 * FAILED rows. The dead letters of notifications and of outbound messages have tables of their own,
 * notification_dlq and outbound_dlq. All kinds of dead letters share the same functions; only the
 * statements differ.
 */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_DEAD_LETTERS_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_DEAD_LETTERS_H

#include "adapters/store/sqlite/sqlite_internal.h"
#include "ports/dead_letter_repository.h"

/*
 * The statements for the dead letters of an outbox, of notifications or of outbound messages:
 *
 *   put      stores a letter: id, kind, type, key, position, error, payload, attempt_count, time
 *   list     takes kind, the id of the last letter seen, and a limit
 *   find     takes kind and id; like `list` it returns id, kind, type, key, position, error,
 *            attempt_count, created, payload
 *   row      takes kind, id and the new status (PENDING or DISCARDED); changes the row that failed
 *   letter   takes the parameters of `row` and the time; marks the letter as resolved
 *   depth    takes kind, which may be empty; counts unresolved letters
 *
 * `put` and `letter` are NULL if the letters have no table of their own. To resolve a letter, `row`
 * runs first; if `letter` is not NULL, it runs next. The letter has been resolved if the last of
 * these statements has changed exactly one row.
 */
struct sqlite_dead_letters {
	struct dead_letter_repository base;
	const char *target; /* the table's name, as recorded in operator_actions */
	const char *list;
	const char *find;
	const char *row;
	const char *put;
	const char *letter;
	const char *depth;
};

extern const struct dead_letter_repository_ops sqlite_dead_letters_ops;

#endif
