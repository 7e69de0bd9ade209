/*
 * Reads a list of objects in a body, such as the changes of a batch request. Between
 * elements_enter() and elements_leave(), the functions of inbound/input.h read the fields of one
 * element, and errors name that element ("changes[3].amount"). Called on a loop's thread; never
 * blocks.
 */
#ifndef QUIPU_INBOUND_ELEMENTS_H
#define QUIPU_INBOUND_ELEMENTS_H

#include "inbound/input.h"

#define ELEMENTS_MAX 1000

struct elements {
	struct input *input;
	const char *field; /* the name of the list */
	/* the names of the members that an element may have; other members are refused */
	const char *const *members;
	/* the list, or NULL if the field is not a list of 1 to ELEMENTS_MAX elements */
	json_t *list;
	size_t count; /* the length of `list`; 0 if `list` is NULL */

	/* The body of the request, kept here by elements_enter(), which sets input->body to the
	 * element. elements_leave() sets input->body to the body of the request again. */
	json_t *body;
	size_t index;       /* the index of the element that was entered */
	size_t error_count; /* how many errors had been noted before this element */
};

/* Begins to read the required list `field` of the body. */
struct elements elements_of(struct input *input, const char *field, const char *const *members);

/* Enters the element at `index`. If the element is not an object, notes an error and returns
 * false. */
QP_MUST_CHECK bool elements_enter(struct elements *elements, size_t index);

/* Leaves the element that was entered. */
void elements_leave(struct elements *elements);

/* Returns the Idempotency-Key in the member `field` of the element that was entered, or {NULL, 0}
 * if there is no such member. */
struct slice elements_key(struct elements *elements, const char *field);

#endif
