/*
 * Reads a list of objects in a body, such as the changes of a batch: between elements_enter() and
 * elements_leave(), the functions of inbound/input.h read the fields of one element, and errors
 * name it ("changes[3].amount"). Called on a loop's thread; never blocks.
 */
#ifndef QUIPU_INBOUND_ELEMENTS_H
#define QUIPU_INBOUND_ELEMENTS_H

#include "inbound/input.h"

#define ELEMENTS_MAX 1000

struct elements {
	struct input *input;
	const char *field; /* the name of the list */
	/* the names that an element may have; other names are refused */
	const char *const *members;
	/* NULL unless the field is a list of 1 to ELEMENTS_MAX elements */
	json_t *list;
	size_t count; /* 0 unless the field is such a list */

	json_t *body;       /* the body of the request, while an element is entered */
	size_t index;       /* the index of the element that is entered */
	size_t error_count; /* how many errors had been noted before this element */
};

/* Begins to read the required list `field` of the body. */
struct elements elements_of(struct input *input, const char *field, const char *const *members);

/* Enters an element. Returns false, after noting an error, if it is not an object. */
QP_MUST_CHECK bool elements_enter(struct elements *elements, size_t index);

/* Leaves the element that was entered. */
void elements_leave(struct elements *elements);

/* Returns the Idempotency-Key in the member `field` of the element, or {NULL, 0} if there is
 * none. */
struct slice elements_key(struct elements *elements, const char *field);

#endif
