/*
 * Finds the rows of `conversations` that a batch of new messages may change. For every pair of
 * users in the batch there is one row per user, and each row has the id of the batch's newest
 * message between these users. The rows are sorted and unique, so that all processes lock them in
 * the same order.
 */
#ifndef QUIPU_ADAPTERS_SHARED_CONVERSATION_ENDS_H
#define QUIPU_ADAPTERS_SHARED_CONVERSATION_ENDS_H

#include "ports/message_repository.h"

struct conversation_end {
	struct slice user_id;
	struct slice other_id;
	struct slice last_id;
};

/* Returns the rows, allocated from `arena` and sorted by the bytes of user_id, then of other_id.
 * Sets `*end_count`. Does not copy the ids. */
struct conversation_end *conversation_ends(struct arena *arena, const struct message *messages,
	size_t message_count, size_t *end_count);

#endif
