#include "adapters/shared/conversation_ends.h"

#include <stdlib.h>

static int compare_users(const struct conversation_end *a, const struct conversation_end *b)
{
	int order = slice_compare(a->user_id, b->user_id);

	return order ? order : slice_compare(a->other_id, b->other_id);
}

/* Sorts by the two users; within a conversation, the newest message comes first. */
static int compare_ends(const void *a, const void *b)
{
	const struct conversation_end *left = a, *right = b;
	int order = compare_users(left, right);

	return order ? order : slice_compare(right->last_id, left->last_id);
}

struct conversation_end *conversation_ends(struct arena *arena, const struct message *messages,
	size_t message_count, size_t *end_count)
{
	struct conversation_end *ends =
		arena_array(arena, struct conversation_end, 2 * message_count);
	size_t count = 0, kept = 0;

	for (size_t i = 0; i < message_count; i++) {
		const struct message *message = &messages[i];

		ends[count++] = (struct conversation_end){
			message->sender_id, message->receiver_id, message->id};
		if (!slice_equal(message->sender_id, message->receiver_id))
			ends[count++] = (struct conversation_end){
				message->receiver_id, message->sender_id, message->id};
	}
	qsort(ends, count, sizeof(*ends), compare_ends);
	for (size_t i = 0; i < count; i++) {
		if (kept == 0 || compare_users(&ends[kept - 1], &ends[i]) != 0)
			ends[kept++] = ends[i];
	}
	*end_count = kept;
	return ends;
}
