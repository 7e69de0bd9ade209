#include "adapters/shared/erase_values.h"

static struct slice sender_member(struct arena *arena, struct slice id)
{
	struct buffer member = buffer_make(arena, 160);

	buffer_text(&member, "\"senderId\":");
	buffer_json_string(&member, id);
	return buffer_slice(&member);
}

/* Encodes `id` as the field user_id of the Protobuf message EntitlementEvent: the tag (field 4, a
 * string), the length as a varint, and the bytes. */
static struct slice user_field(struct arena *arena, struct slice id)
{
	struct buffer field = buffer_make(arena, 4 + id.len);

	buffer_char(&field, 4 << 3 | 2);
	if (id.len >= 128)
		buffer_char(&field, (char)(id.len & 127) | (char)128);
	buffer_char(&field, id.len >= 128 ? (char)(id.len >> 7) : (char)id.len);
	buffer_add(&field, id);
	return buffer_slice(&field);
}

struct erase_values erase_values_of(struct arena *arena, const struct erasure *erasure)
{
	return (struct erase_values){
		.user_id = erasure->user_id,
		.pseudonym = erasure->pseudonym,
		.limit = (int64_t)erasure->limit,
		.sender = sender_member(arena, erasure->user_id),
		.nobody = sender_member(arena, erasure->pseudonym),
		.field = user_field(arena, erasure->user_id),
	};
}

struct slice erase_detail(
	struct arena *arena, const struct eraser *eraser, const struct erasure *erasure)
{
	struct buffer detail = buffer_make(arena, 128);

	buffer_format(&detail, "%s:", eraser->service);
	for (size_t i = 0; i < eraser->place_count; i++) {
		if (erasure->rows[i] == 0)
			continue;
		buffer_char(&detail, ' ');
		buffer_counted(&detail, erasure->rows[i], slice_of(eraser->places[i]));
	}
	return buffer_slice(&detail);
}
