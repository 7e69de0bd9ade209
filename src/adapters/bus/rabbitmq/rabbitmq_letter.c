/*
 * Converts messages to AMQP and back.
 *
 * Id and content type become properties of AMQP. The other headers and the key become AMQP headers:
 * text if the value is valid UTF-8, bytes otherwise. Other programs may send headers of other
 * types: numbers and booleans are converted to text, tables and lists are dropped. Data is copied
 * only if it must change, so letters and deliveries point into the messages from which they were
 * converted.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "adapters/bus/rabbitmq/rabbitmq_internal.h"
#include "base/digest.h"
#include "base/text.h"

#define PERSISTENT 2
/* The year 10000 in seconds. Later timestamps are ignored. */
#define SECONDS_MAX 253402300800
#define CONTENT_TYPE "content-type"
#define EVENT_ID "event-id"
#define KEY "key"

/* The maximum length of AMQP's short strings: routing keys, ids, names of headers. */
#define SHORT_MAX 255

/* The longest id that becomes part of a position unchanged; see add_id(). */
#define ID_MAX 128

/* How many bytes of a properties frame are reserved for everything except the headers: eight short
 * strings with their lengths (a copy has neither a user id nor an expiration), 10 bytes for
 * delivery mode, priority and timestamp, and 22 bytes around the properties. */
#define PROPERTIES_MAX (8 * (SHORT_MAX + 1) + 10 + 22)

/* The maximum size of a body, as in the local bus. By default, RabbitMQ 3 itself allows 128 MiB. */
#define BODY_MAX (64u * 1024 * 1024)

/* For the headers that MassTransit adds to a message in an error queue: the value of the header
 * MT-Fault-ExceptionType, the number of these headers, and the maximum length of a reason. */
#define FAULT_TYPE "Quipu.UnusableMessage"
#define FAULT_HEADERS 4
#define WHY_MAX 1024

/* ---- writing ----------------------------------------------------------------------------- */

static amqp_table_entry_t header_of(struct slice name, struct slice value)
{
	return (amqp_table_entry_t){
		.key = rabbitmq_bytes(name),
		.value = {.kind = text_is_utf8(value) ? AMQP_FIELD_KIND_UTF8
						      : AMQP_FIELD_KIND_BYTES,
			.value.bytes = rabbitmq_bytes(value)},
	};
}

static void add_header(amqp_table_t *table, struct slice name, struct slice value)
{
	table->entries[table->num_entries++] = header_of(name, value);
}

static void write_headers(
	amqp_basic_properties_t *properties, struct arena *arena, const struct bus_message *message)
{
	amqp_table_t *table = &properties->headers;

	table->entries = arena_array(arena, amqp_table_entry_t, message->header_count + 1);
	for (size_t i = 0; i < message->header_count; i++) {
		struct bus_header header = message->headers[i];

		if (slice_is(header.name, CONTENT_TYPE) && properties->content_type.len == 0)
			properties->content_type = rabbitmq_bytes(header.value);
		else
			add_header(table, header.name, header.value);
	}
	if (message->key.len > 0)
		add_header(table, slice_of(KEY), message->key);
}

static bool has_room(const struct rabbitmq_letter *letter, int frame_max)
{
	const amqp_basic_properties_t *properties = &letter->properties;
	const amqp_table_t *table = &properties->headers;
	size_t bytes = PROPERTIES_MAX;

	for (int i = 0; i < table->num_entries; i++) {
		if (table->entries[i].key.len > SHORT_MAX)
			return false;
		bytes += table->entries[i].key.len + table->entries[i].value.value.bytes.len + 6;
	}
	return letter->routing_key.len <= SHORT_MAX && properties->message_id.len <= SHORT_MAX &&
	       properties->content_type.len <= SHORT_MAX && bytes <= (size_t)frame_max &&
	       letter->body.len <= BODY_MAX;
}

bool rabbitmq_letter_write(struct rabbitmq_letter *letter, struct arena *arena,
	const struct rabbitmq_bus *bus, const struct bus_message *message)
{
	const struct bus_channel *channel = rabbitmq_bus_channel(bus, message->channel);
	amqp_basic_properties_t *properties = &letter->properties;
	struct slice routing_key = message->subject.len > 0 ? message->subject : message->channel;

	assert(message->header_count <= BUS_HEADERS_MAX);
	if (!channel)
		return false;
	memset(letter, 0, sizeof(*letter));
	write_headers(properties, arena, message);
	properties->message_id = rabbitmq_bytes(message->id);
	properties->delivery_mode = PERSISTENT;
	properties->_flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_HEADERS_FLAG |
			     (message->id.len > 0 ? AMQP_BASIC_MESSAGE_ID_FLAG : 0) |
			     (properties->content_type.len > 0 ? AMQP_BASIC_CONTENT_TYPE_FLAG : 0);
	letter->exchange = amqp_cstring_bytes(channel->name);
	letter->routing_key = rabbitmq_bytes(routing_key);
	letter->body = rabbitmq_bytes(message->value);
	letter->fate = BUS_NOT_PERSISTED;
	return has_room(letter, atomic_load(&bus->frame_max));
}

/* ---- poisoned messages ------------------------------------------------------------------- */

/* Returns true if the copy of a poisoned message must not have this header: the header describes an
 * earlier fault, or would make the broker route the copy to other queues too. */
static bool is_left_out(struct slice name)
{
	static const char *const names[] = {"MT-Reason", "MT-Fault-ExceptionType",
		"MT-Fault-Message", "MT-Fault-Timestamp", "CC", "BCC"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (slice_is(name, names[i]))
			return true;
	}
	return false;
}

static amqp_table_t fault_headers(struct arena *arena, const char *why, size_t more)
{
	struct buffer time = buffer_make(arena, 40);
	struct slice words = slice_of(why);
	amqp_table_t table = {0, arena_array(arena, amqp_table_entry_t, FAULT_HEADERS + more)};

	buffer_time(&time, clock_wall_us(&clock_system));
	if (words.len > WHY_MAX)
		words.len = WHY_MAX;
	add_header(&table, slice_of("MT-Reason"), slice_of("fault"));
	add_header(&table, slice_of("MT-Fault-ExceptionType"), slice_of(FAULT_TYPE));
	add_header(&table, slice_of("MT-Fault-Message"), words);
	add_header(&table, slice_of("MT-Fault-Timestamp"), buffer_slice(&time));
	return table;
}

/* Returns whether the headers fit into a frame. */
static bool fits(struct arena *arena, amqp_table_t *table, int frame_max)
{
	size_t size = (size_t)frame_max - PROPERTIES_MAX;
	amqp_bytes_t encoded = {.len = size, .bytes = arena_alloc(arena, size)};
	size_t offset = 0;

	return amqp_encode_table(encoded, table, &offset) == AMQP_STATUS_OK;
}

/* Returns the message's own headers together with the headers that describe the fault. If not all
 * of them fit into a frame, returns only the headers that describe the fault. */
static amqp_table_t headers_with_fault(
	struct arena *arena, const amqp_table_t *from, const char *why, int frame_max)
{
	amqp_table_t table = fault_headers(arena, why, (size_t)from->num_entries);

	for (int i = 0; i < from->num_entries; i++) {
		if (!is_left_out(rabbitmq_slice(from->entries[i].key)))
			table.entries[table.num_entries++] = from->entries[i];
	}
	if (!fits(arena, &table, frame_max))
		table.num_entries = FAULT_HEADERS;
	return table;
}

/*
 * Copies the properties, but adds the headers that describe the fault, makes the copy persistent,
 * and omits two properties: the user id, which the broker would refuse because it is not the user
 * of our connection, and the expiration, after which the broker would delete the copy.
 */
void rabbitmq_letter_write_fault(struct rabbitmq_letter *letter, struct arena *arena,
	const struct rabbitmq_bus *bus, const struct rabbitmq_delivery *from, const char *queue)
{
	amqp_basic_properties_t *properties = &letter->properties;

	memset(letter, 0, sizeof(*letter));
	*properties = from->message.properties;
	if (!(properties->_flags & AMQP_BASIC_HEADERS_FLAG))
		properties->headers = amqp_empty_table;
	properties->headers = headers_with_fault(
		arena, &properties->headers, from->why, atomic_load(&bus->frame_max));
	properties->delivery_mode = PERSISTENT;
	properties->_flags |= AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG;
	properties->_flags &= ~(amqp_flags_t)(AMQP_BASIC_USER_ID_FLAG | AMQP_BASIC_EXPIRATION_FLAG);
	letter->exchange = amqp_empty_bytes;
	letter->routing_key = amqp_cstring_bytes(queue);
	letter->body = from->message.body;
	letter->fate = BUS_NOT_PERSISTED;
}

/* ---- reading ----------------------------------------------------------------------------- */

static struct slice number_text(struct arena *arena, const amqp_field_value_t *value)
{
	struct buffer text = buffer_make(arena, 24);

	switch (value->kind) {
	case AMQP_FIELD_KIND_I8:
		buffer_int(&text, value->value.i8);
		break;
	case AMQP_FIELD_KIND_U8:
		buffer_int(&text, value->value.u8);
		break;
	case AMQP_FIELD_KIND_I16:
		buffer_int(&text, value->value.i16);
		break;
	case AMQP_FIELD_KIND_U16:
		buffer_int(&text, value->value.u16);
		break;
	case AMQP_FIELD_KIND_I32:
		buffer_int(&text, value->value.i32);
		break;
	case AMQP_FIELD_KIND_U32:
		buffer_int(&text, value->value.u32);
		break;
	case AMQP_FIELD_KIND_I64:
		buffer_int(&text, value->value.i64);
		break;
	case AMQP_FIELD_KIND_U64:
	case AMQP_FIELD_KIND_TIMESTAMP:
		buffer_format(&text, "%" PRIu64, value->value.u64);
		break;
	default:
		break;
	}
	return buffer_slice(&text);
}

/* Converts a value to text. Returns false if that is not possible. */
static bool read_value(struct arena *arena, const amqp_field_value_t *value, struct slice *text)
{
	switch (value->kind) {
	case AMQP_FIELD_KIND_UTF8:
	case AMQP_FIELD_KIND_BYTES:
		*text = rabbitmq_slice(value->value.bytes);
		return true;
	case AMQP_FIELD_KIND_BOOLEAN:
		*text = slice_of(value->value.boolean ? "true" : "false");
		return true;
	case AMQP_FIELD_KIND_VOID:
		*text = slice_make(NULL, 0);
		return true;
	default:
		*text = number_text(arena, value);
		return text->len > 0;
	}
}

static void take_header(struct bus_delivery *delivery, struct bus_header header)
{
	if (slice_is(header.name, KEY) && delivery->key.len == 0)
		delivery->key = header.value;
	else if (slice_is(header.name, EVENT_ID) && delivery->id.len == 0)
		delivery->id = header.value;
	else if (delivery->header_count < BUS_HEADERS_MAX)
		delivery->headers[delivery->header_count++] = header;
}

static void read_properties(
	struct bus_delivery *delivery, struct arena *arena, const amqp_basic_properties_t *from)
{
	int headers = from->_flags & AMQP_BASIC_HEADERS_FLAG ? from->headers.num_entries : 0;

	if (from->_flags & AMQP_BASIC_MESSAGE_ID_FLAG)
		delivery->id = rabbitmq_slice(from->message_id);
	if (from->_flags & AMQP_BASIC_TIMESTAMP_FLAG && from->timestamp < SECONDS_MAX)
		delivery->time_us = (int64_t)from->timestamp * 1000000;
	for (int i = 0; i < headers; i++) {
		const amqp_table_entry_t *entry = &from->headers.entries[i];
		struct bus_header header = {.name = rabbitmq_slice(entry->key)};

		if (read_value(arena, &entry->value, &header.value))
			take_header(delivery, header);
	}
	if (from->_flags & AMQP_BASIC_CONTENT_TYPE_FLAG)
		take_header(delivery, (struct bus_header){.name = slice_of(CONTENT_TYPE),
					      .value = rabbitmq_slice(from->content_type)});
}

/* Appends the id. Other programs may choose ids that a store refuses, or that make a position too
 * long for a short string of AMQP; instead of such an id, appends its digest. */
static void add_id(struct buffer *text, struct slice id)
{
	unsigned char digest[SHA256_SIZE];

	if (id.len <= ID_MAX && text_is_utf8(id) && !text_has_control(id)) {
		buffer_add(text, id);
		return;
	}
	digest_sha256(id, digest);
	for (size_t i = 0; i < sizeof(digest); i++)
		buffer_format(text, "%02x", digest[i]);
}

/*
 * Returns the position of a message. A queue has no offsets, so the position is the message's id.
 * If the message has no id, the position identifies only this delivery.
 */
static struct slice position_of(struct arena *arena, const struct bus_channel *channel,
	const struct rabbitmq_delivery *from, struct slice id)
{
	struct buffer text = buffer_make(arena, 64);

	buffer_format(&text, "%s/0/", channel->name);
	if (id.len > 0)
		add_id(&text, id);
	else
		buffer_format(&text, "%016" PRIx64 "-%" PRIu64, from->serial, from->tag);
	return buffer_slice(&text);
}

void rabbitmq_delivery_read(struct bus_delivery *delivery, struct arena *arena,
	const struct bus_channel *channel, const struct rabbitmq_delivery *from)
{
	memset(delivery, 0, sizeof(*delivery));
	delivery->channel = slice_of(channel->name);
	delivery->subject = rabbitmq_slice(from->routing_key);
	if (slice_equal(delivery->subject, delivery->channel))
		delivery->subject = slice_make(NULL, 0);
	delivery->value = rabbitmq_slice(from->message.body);
	delivery->handle = from->tag;
	read_properties(delivery, arena, &from->message.properties);
	delivery->position = delivery->identity = position_of(arena, channel, from, delivery->id);
}

void rabbitmq_delivery_free(struct rabbitmq_delivery *delivery)
{
	amqp_destroy_message(&delivery->message);
	amqp_bytes_free(delivery->routing_key);
	free(delivery);
}
