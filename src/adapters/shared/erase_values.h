/*
 * The values that statements of erasers use. Each statement names the ones it takes by letters, in
 * the order of its parameters: "ul" is the person's id and the limit.
 */
#ifndef QUIPU_ADAPTERS_SHARED_ERASE_VALUES_H
#define QUIPU_ADAPTERS_SHARED_ERASE_VALUES_H

#include "ports/eraser.h"

#define ERASE_VALUES_MAX 6
#define ERASE_STATEMENTS_MAX 3 /* of one place */

struct erase_values {
	struct slice user_id;   /* u */
	struct slice pseudonym; /* p */
	int64_t limit;          /* l */
	struct slice sender;    /* s: "senderId":"…" as events of dialogs have it */
	struct slice nobody;    /* n: the same with the pseudonym */
	struct slice field;     /* f: the field user_id as events of entitlements have it */
};

/* Computes the values in memory of `arena`. */
struct erase_values erase_values_of(struct arena *arena, const struct erasure *erasure);

/* Returns what operator_actions says about a step: "dialogs: 3 messages received". */
struct slice erase_detail(
	struct arena *arena, const struct eraser *eraser, const struct erasure *erasure);

#endif
