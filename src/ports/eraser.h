/*
 * Erases a person from the tables of one service. An eraser knows the places where its service
 * keeps something of a person, in the order in which they are emptied: a later place may be needed
 * to find the rows of an earlier one. Each service's repository has its own, so that a new table is
 * added beside its service and nowhere else.
 *
 * Rows that belong to others as well stay, with a pseudonym instead of the person's id and without
 * text, so that nobody else's numbers change. Rows that only tell repeats apart stay as they are: a
 * redelivery would otherwise bring the person back.
 */
#ifndef QUIPU_PORTS_ERASER_H
#define QUIPU_PORTS_ERASER_H

#include "ports/store.h"

#define ERASER_PLACES_MAX 8

/* One step. */
struct erasure {
	struct slice user_id;
	struct slice pseudonym;
	struct slice who; /* recorded with each step: the id of the operator's key, or empty */
	size_t limit;     /* the most rows that it changes */

	/* Set by count() or erase(). */
	int64_t rows[ERASER_PLACES_MAX]; /* by place */
};

struct eraser;

struct eraser_ops {
	/* In a transaction: counts the rows that erase() would change in all. */
	QP_MUST_CHECK enum status (*count)(
		const struct eraser *eraser, struct session *session, struct erasure *erasure);

	/*
	 * In a transaction: changes up to `limit` rows of the first place that has any, and records
	 * the step in operator_actions, under the pseudonym. If no place has any left, it changes
	 * and records nothing: the person is erased.
	 */
	QP_MUST_CHECK enum status (*erase)(
		const struct eraser *eraser, struct session *session, struct erasure *erasure);
};

/* The head of each adapter's own eraser. */
struct eraser {
	const struct eraser_ops *ops;
	const char *service;                   /* "dialogs" */
	const char *places[ERASER_PLACES_MAX]; /* "messages received", … */
	size_t place_count;
};

#endif
