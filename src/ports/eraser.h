/*
 * Erases a person from the tables of one service. An eraser lists the places where its service
 * keeps something about a person, in the order in which they must be emptied: rows of a later place
 * may be needed to find the rows of an earlier place. Each service's repository has its own eraser,
 * so a new table has to be added only to the eraser of its service.
 *
 * Rows that also belong to other users stay, with a pseudonym instead of the person's id and
 * without text, so that the unread messages of other users are still counted correctly. Rows that
 * only serve to recognise repeated messages stay too, because otherwise a redelivered message would
 * create new rows about the person.
 */
#ifndef QUIPU_PORTS_ERASER_H
#define QUIPU_PORTS_ERASER_H

#include "ports/store.h"

#define ERASER_PLACES_MAX 8

/* One step of erasing a person. */
struct erasure {
	struct slice user_id;
	struct slice pseudonym;
	struct slice who; /* recorded with each step: the id of the operator's API key, or empty */
	size_t limit;     /* how many rows the step may change */

	/* One number for each place. count() sets it to the number of rows that erasing would
	 * change, erase() to the number of rows that the step has changed. */
	int64_t rows[ERASER_PLACES_MAX];
};

struct eraser;

struct eraser_ops {
	/* Counts all rows that repeated calls of erase() would change. Must be called in a
	 * transaction. */
	QP_MUST_CHECK enum status (*count)(
		const struct eraser *eraser, struct session *session, struct erasure *erasure);

	/*
	 * Changes up to `limit` rows of the first place that still has rows of the person, and
	 * records the step in operator_actions, under the pseudonym. If no place has rows left, the
	 * person is erased, and the call changes and records nothing. Returns RERUN if other
	 * sessions have changed all rows that the step had chosen. Must be called in a transaction.
	 */
	QP_MUST_CHECK enum status (*erase)(
		const struct eraser *eraser, struct session *session, struct erasure *erasure);
};

/* Each adapter embeds this struct as the first member of its own eraser. */
struct eraser {
	const struct eraser_ops *ops;
	const char *service;                   /* e.g. "dialogs" */
	const char *places[ERASER_PLACES_MAX]; /* e.g. "messages received" */
	size_t place_count;
};

#endif
