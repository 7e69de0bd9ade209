/*
 * Writes and reads the events of dialogs. Reading is lenient in form, because services by other
 * authors publish the same events: with or without the envelope, in camelCase or PascalCase, with
 * ids that are numbers. It is strict in content: a missing id or a wrong type makes the event
 * invalid, and the returned sentence says why.
 */
#include "events/message_event.h"

#include <ctype.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/text.h"
#include "base/uuid.h"

/* ---- writing ----------------------------------------------------------------------------- */

static void write_message(struct buffer *body, const struct message_event *event)
{
	buffer_text(body, ",\"message\":{");
	buffer_member(body, event->is_read ? "userId" : "recipientId", event->user_id);
	buffer_member(body, "messageId", event->message_id);
	if (!event->is_read)
		buffer_member(body, "senderId", event->sender_id);
	buffer_member_time(body, "timestamp", event->at_us);
	buffer_char(body, '}');
}

struct slice message_event_write(struct arena *arena, const struct message_event *event,
	struct slice event_id, const char *name_space)
{
	struct buffer body = buffer_make(arena, 512);

	buffer_char(&body, '{');
	buffer_member(&body, "messageId", event_id);
	buffer_format(&body, ",\"messageType\":[\"urn:message:%s:%s\"]", name_space,
		event->is_read ? MESSAGE_READ : MESSAGE_NEW);
	write_message(&body, event);
	buffer_member_time(&body, "sentTime", event->at_us);
	buffer_text(&body, ",\"headers\":{}}");
	return buffer_slice(&body);
}

/* ---- reading ----------------------------------------------------------------------------- */

/* Returns the member that has the camelCase name `name`. If there is none, returns the member that
 * has the same name in PascalCase. */
static json_t *member(const json_t *object, const char *name)
{
	json_t *value = json_object_get(object, name);
	char pascal[32];

	if (value)
		return value;
	snprintf(pascal, sizeof(pascal), "%s", name);
	pascal[0] = (char)toupper((unsigned char)pascal[0]);
	return json_object_get(object, pascal);
}

/* Returns the id in the member `name` as text. The member may be a string or an integer. Returns
 * {NULL, 0} if the member is missing or not an id. */
static struct slice read_id(struct arena *arena, const json_t *object, const char *name)
{
	const json_t *value = member(object, name);
	struct slice id = slice_make(json_string_value(value), json_string_length(value));
	struct buffer digits = {.arena = arena};

	if (json_is_integer(value)) {
		buffer_int(&digits, json_integer_value(value));
		return buffer_slice(&digits);
	}
	if (!json_is_string(value) || id.len == 0 || id.len > ID_BYTES_MAX || text_has_control(id))
		return (struct slice){0};
	return arena_copy(arena, id);
}

/* Reads a time of RFC 3339. A time without an offset is UTC. */
static bool read_time(struct arena *arena, const json_t *value, int64_t *time_us)
{
	struct slice text = slice_make(json_string_value(value), json_string_length(value));
	struct buffer in_utc = {.arena = arena};

	if (!json_is_string(value))
		return false;
	if (text_to_time_us(text, time_us))
		return true;
	buffer_add(&in_utc, text);
	buffer_char(&in_utc, 'Z');
	return text_to_time_us(buffer_slice(&in_utc), time_us);
}

/* Returns whether the envelope is of the type `wanted`. An envelope that names no type matches
 * every type. */
static bool is_of_type(const json_t *envelope, const char *wanted)
{
	const json_t *types = member(envelope, "messageType");
	size_t index;
	json_t *type;

	if (!json_is_array(types) || json_array_size(types) == 0)
		return true;
	json_array_foreach(types, index, type)
	{
		const char *urn = json_string_value(type);
		const char *name = urn ? strrchr(urn, ':') : NULL;

		if (name && strcmp(name + 1, wanted) == 0)
			return true;
	}
	return false;
}

static bool is_absent(const json_t *value)
{
	return !value || json_is_null(value);
}

/* Returns the first argument that is neither missing nor null. If every argument is missing or
 * null, returns `c`. */
static const json_t *first_of(const json_t *a, const json_t *b, const json_t *c)
{
	const json_t *found = is_absent(a) ? b : a;

	return is_absent(found) ? c : found;
}

/* Reads `message` into `event`. Returns NULL if the message is valid, otherwise a sentence that
 * says what is wrong with it. `envelope` is NULL if the message has no envelope. */
static const char *read_message(struct arena *arena, const json_t *envelope, const json_t *message,
	struct message_event *event)
{
	const json_t *time = first_of(member(message, "timestamp"), member(message, "createdAt"),
		member(envelope, "sentTime"));

	event->user_id = read_id(arena, message, event->is_read ? "userId" : "recipientId");
	if (!event->user_id.data)
		return event->is_read ? "its userId is missing or not an id"
				      : "its recipientId is missing or not an id";
	event->message_id = read_id(arena, message, "messageId");
	if (!event->message_id.data && !event->is_read && is_absent(member(message, "messageId")))
		event->message_id = read_id(arena, envelope, "messageId");
	if (!event->message_id.data)
		return "its messageId is missing or not an id";
	event->message_id = uuid_lower(arena, event->message_id);
	event->sender_id = read_id(arena, message, "senderId");
	event->at_us = 0;
	if (time && !json_is_null(time) && !read_time(arena, time, &event->at_us))
		return "its timestamp is not a time";
	return NULL;
}

const char *message_event_read(struct arena *arena, struct slice text, struct message_event *event)
{
	char why[JSON_WHY_SIZE];
	json_t *body = json_parse_event(text, why);
	json_t *message = member(body, "message");
	const char *wrong;

	if (!body)
		return "it is not a JSON object";
	if (json_is_object(message) &&
		!is_of_type(body, event->is_read ? MESSAGE_READ : MESSAGE_NEW))
		wrong = "its messageType names another event";
	else
		wrong = json_is_object(message) ? read_message(arena, body, message, event)
						: read_message(arena, NULL, body, event);
	json_decref(body);
	return wrong;
}
