#include "events/entitlement_event.h"

#include <entitlements.pb-c.h>

#include "base/text.h"

#define US_PER_S 1000000
#define SECONDS_MAX 253402300799 /* the end of the year 9999 */

typedef Quipu__Entitlements__V1__EntitlementEvent EventMessage;

struct slice entitlement_aggregate_key(struct arena *arena, struct slice user_id, struct slice unit)
{
	struct buffer key = buffer_make(arena, user_id.len + unit.len + 1);

	buffer_add(&key, user_id);
	buffer_char(&key, ':');
	buffer_add(&key, unit);
	return buffer_slice(&key);
}

/* ---- packing ----------------------------------------------------------------------------- */

/* protobuf-c requires a char * that ends with NUL, but does not write to it. */
static char *as_text(struct arena *arena, struct slice text)
{
	return (char *)(uintptr_t)arena_copy(arena, text).data;
}

struct slice entitlement_event_pack(struct arena *arena, const struct entitlement_event *event)
{
	Google__Protobuf__Timestamp occurred_at = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
	EventMessage message = QUIPU__ENTITLEMENTS__V1__ENTITLEMENT_EVENT__INIT;
	size_t size;
	uint8_t *packed;

	occurred_at.seconds = event->occurred_us / US_PER_S;
	occurred_at.nanos = (int32_t)(event->occurred_us % US_PER_S) * 1000;
	message.event_id = as_text(arena, event->event_id);
	message.event_type = as_text(arena, event->event_type);
	message.occurred_at = &occurred_at;
	message.user_id = as_text(arena, event->user_id);
	message.stock_keeping_unit = as_text(arena, event->unit);
	message.source = as_text(arena, event->source);
	message.source_id = as_text(arena, event->source_id);
	message.version = event->version;
	size = quipu__entitlements__v1__entitlement_event__get_packed_size(&message);
	packed = arena_alloc(arena, size);
	quipu__entitlements__v1__entitlement_event__pack(&message, packed);
	return slice_make(packed, size);
}

/* ---- unpacking --------------------------------------------------------------------------- */

static void *allocate(void *arena, size_t size)
{
	return arena_alloc(arena, size);
}

static void release(void *arena, void *memory)
{
	(void)arena;
	(void)memory;
}

static bool is_good_text(const char *text)
{
	struct slice slice = slice_of(text);

	return slice.len > 0 && slice.len <= ID_BYTES_MAX && text_is_utf8(slice) &&
	       !text_has_control(slice);
}

static bool is_good_time(const Google__Protobuf__Timestamp *time)
{
	return time && time->seconds >= 0 && time->seconds <= SECONDS_MAX && time->nanos >= 0 &&
	       time->nanos < 1000 * US_PER_S;
}

/* Returns NULL if the message is valid, otherwise a sentence that says what is wrong with it. */
static const char *check(const EventMessage *message)
{
	if (!is_good_text(message->event_id))
		return "its event_id is missing or not 1 to 128 bytes of plain text";
	if (!slice_is(slice_of(message->event_type), ENTITLEMENT_GRANTED) &&
		!slice_is(slice_of(message->event_type), ENTITLEMENT_REVOKED))
		return "its event_type is neither EntitlementGranted nor EntitlementRevoked";
	if (!is_good_time(message->occurred_at))
		return "its occurred_at is missing or not a time";
	if (!is_good_text(message->user_id))
		return "its user_id is missing or not 1 to 128 bytes of plain text";
	if (!is_good_text(message->stock_keeping_unit))
		return "its stock_keeping_unit is missing or not 1 to 128 bytes of plain text";
	if (!text_is_utf8(slice_of(message->source)) || !text_is_utf8(slice_of(message->source_id)))
		return "its source or source_id is not UTF-8";
	if (message->version < 1)
		return "its version is missing or below 1";
	return NULL;
}

const char *entitlement_event_unpack(
	struct arena *arena, struct slice packed, struct entitlement_event *event)
{
	ProtobufCAllocator allocator = {
		.alloc = allocate, .free = release, .allocator_data = arena};
	EventMessage *message = quipu__entitlements__v1__entitlement_event__unpack(
		&allocator, packed.len, (const uint8_t *)packed.data);
	const char *wrong;

	if (!message)
		return "it is not an EntitlementEvent";
	/* protobuf-c silently cuts a text at a NUL. If the message had a NUL in a text, packing it
	 * again therefore needs fewer bytes than `packed` has. */
	if (quipu__entitlements__v1__entitlement_event__get_packed_size(message) < packed.len)
		return "it is not encoded as protobuf encodes an EntitlementEvent";
	wrong = check(message);
	if (wrong)
		return wrong;
	event->event_id = slice_of(message->event_id);
	event->event_type = slice_of(message->event_type);
	event->occurred_us =
		message->occurred_at->seconds * US_PER_S + message->occurred_at->nanos / 1000;
	event->user_id = slice_of(message->user_id);
	event->unit = slice_of(message->stock_keeping_unit);
	event->source = slice_of(message->source);
	event->source_id = slice_of(message->source_id);
	event->version = message->version;
	return NULL;
}

/* ---- JSON -------------------------------------------------------------------------------- */

void entitlement_event_write_json(struct buffer *body, const struct entitlement_event *event)
{
	buffer_member(body, "event_id", event->event_id);
	buffer_member(body, "event_type", event->event_type);
	buffer_member_time(body, "occurred_at", event->occurred_us);
	buffer_member(body, "user_id", event->user_id);
	buffer_member(body, "stock_keeping_unit", event->unit);
	buffer_member(body, "source", event->source);
	buffer_member(body, "source_id", event->source_id);
	buffer_member_int(body, "version", event->version);
}
