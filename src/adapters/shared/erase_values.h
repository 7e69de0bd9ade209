/*
 * The values of the parameters in erasers' statements. Each statement lists its parameters in
 * order, one letter each: "ul" means the person's id, then the limit.
 */
#ifndef QUIPU_ADAPTERS_SHARED_ERASE_VALUES_H
#define QUIPU_ADAPTERS_SHARED_ERASE_VALUES_H

#include "ports/eraser.h"

#define ERASE_VALUES_MAX 6
#define ERASE_STATEMENTS_MAX 3 /* how many statements one place can have */

struct erase_values {
	struct slice user_id;   /* u */
	struct slice pseudonym; /* p */
	int64_t limit;          /* l */
	struct slice sender;    /* s: "senderId":"…" as events of dialogs contain it */
	struct slice nobody;    /* n: the same with the pseudonym */
	struct slice field;     /* f: the field user_id as events of entitlements contain it */
};

/* Computes the values, allocated in `arena`. */
struct erase_values erase_values_of(struct arena *arena, const struct erasure *erasure);

/* Describes a step for operator_actions, e.g. "dialogs: 3 messages received". */
struct slice erase_detail(
	struct arena *arena, const struct eraser *eraser, const struct erasure *erasure);

#endif
