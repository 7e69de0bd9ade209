/*
 * The parameter values for the SQL statements of the erasers. In the code of the erasers, each
 * statement is followed by a string with one letter for each parameter: "ul" means that the first
 * parameter is the person's id and the second is the limit. struct erase_values lists the letters.
 * Statements for SQLite may also use the letter t, for the current time.
 */
#ifndef QUIPU_ADAPTERS_SHARED_ERASE_VALUES_H
#define QUIPU_ADAPTERS_SHARED_ERASE_VALUES_H

#include "ports/eraser.h"

#define ERASE_VALUES_MAX 6
#define ERASE_STATEMENTS_MAX 3 /* per place of an eraser */

struct erase_values {
	struct slice user_id;   /* u: the person's id */
	struct slice pseudonym; /* p: the pseudonym that replaces the person's id */
	int64_t limit;          /* l: how many rows the statement may change */
	struct slice sender;    /* s: the JSON member "senderId":"<id>" in events of dialogs */
	struct slice nobody;    /* n: the JSON member "senderId":"<pseudonym>" */
	struct slice field;     /* f: the field user_id as encoded in events of entitlements */
};

/* Computes the values, allocated from `arena`. */
struct erase_values erase_values_of(struct arena *arena, const struct erasure *erasure);

/* Describes what one call of erase() has erased, for the table operator_actions, e.g. "dialogs: 3
 * messages received". */
struct slice erase_detail(
	struct arena *arena, const struct eraser *eraser, const struct erasure *erasure);

#endif
