/*
 * Erases a person from the tables of one service. An eraser knows the places where its service
 * keeps something about a person, in the order in which they must be emptied: rows of a later place
 * may be needed to find the rows of an earlier place. Each service's repository has its own eraser,
 * so that a new table is added there and nowhere else.
 *
 * Rows that also belong to others stay, with a pseudonym instead of the person's id and without
 * text, so that nobody else's numbers change. Rows that only serve to recognise repeated messages
 * stay as they are. Otherwise a redelivered message would bring the person back.
 */
#ifndef QUIPU_PORTS_ERASER_H
#define QUIPU_PORTS_ERASER_H

#include "ports/store.h"

#define ERASER_PLACES_MAX 8

/* One step of erasing a person. */
struct erasure {
	struct slice user_id;
	struct slice pseudonym;
	struct slice who; /* recorded with each step: the id of the operator's key, or empty */
	size_t limit;     /* how many rows the step may change */

	/* Set by count() or erase(). */
	int64_t rows[ERASER_PLACES_MAX]; /* the number of rows in each place */
};

struct eraser;

struct eraser_ops {
	/* In a transaction: counts all rows that repeated calls of erase() would change. */
	QP_MUST_CHECK enum status (*count)(
		const struct eraser *eraser, struct session *session, struct erasure *erasure);

	/*
	 * In a transaction: changes up to `limit` rows of the first place that has any, and records
	 * the step in operator_actions, under the pseudonym. If no place has rows left, the person
	 * is erased, and the call changes and records nothing.
	 */
	QP_MUST_CHECK enum status (*erase)(
		const struct eraser *eraser, struct session *session, struct erasure *erasure);
};

/* The first member of each adapter's own eraser. */
struct eraser {
	const struct eraser_ops *ops;
	const char *service;                   /* e.g. "dialogs" */
	const char *places[ERASER_PLACES_MAX]; /* e.g. "messages received" */
	size_t place_count;
};

#endif
