/*
 * Converts messages of the port to messages of NATS, and back.
 *
 * A header of NATS is a line of text. Some values cannot be sent unchanged: values that contain
 * control characters, values that begin or end with a space, and empty values, which cnats reads
 * wrongly. The adapter writes such a value in the notation of RFC 8187, e.g.
 * UTF-8''with%20percents, and appends a * to the header's name. All other values stay readable for
 * any program.
 */
#include <stdlib.h>

#include "adapters/bus/nats/nats_internal.h"
#include "base/text.h"

#define ID "Nats-Msg-Id"
#define ID_ELSE "event-id"
#define KEY "key"
#define ENCODED "UTF-8''"

#define LINE_OVERHEAD 4   /* ": " and CR LF */
#define BLOCK_OVERHEAD 12 /* "NATS/1.0" CR LF, and an empty line */

/* ---- values ------------------------------------------------------------------------------ */

static bool is_control(char c)
{
	return (unsigned char)c < ' ' || c == 0x7f;
}

static bool can_stand_in_a_line(struct slice value)
{
	for (size_t i = 0; i < value.len; i++) {
		if (is_control(value.data[i]))
			return false;
	}
	return value.len > 0 && value.data[0] != ' ' && value.data[value.len - 1] != ' ';
}

static bool is_name(struct slice name)
{
	for (size_t i = 0; i < name.len; i++) {
		char c = name.data[i];

		if (is_control(c) || c == ' ' || c == ':' || c == '*')
			return false;
	}
	return name.len > 0;
}

static bool is_unreserved(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

static void encode(struct buffer *out, struct slice value)
{
	buffer_text(out, ENCODED);
	for (size_t i = 0; i < value.len; i++) {
		if (is_unreserved(value.data[i]))
			buffer_char(out, value.data[i]);
		else
			buffer_format(out, "%%%02X", (unsigned)(unsigned char)value.data[i]);
	}
}

/* Decodes %XX. Leaves malformed sequences unchanged. */
static struct slice decode(struct arena *arena, struct slice text)
{
	struct buffer out = buffer_make(arena, text.len);

	for (size_t i = 0; i < text.len; i++) {
		int high = text.len - i > 2 ? text_hex_digit(text.data[i + 1]) : -1;
		int low = high >= 0 ? text_hex_digit(text.data[i + 2]) : -1;

		if (text.data[i] == '%' && low >= 0) {
			buffer_char(&out, (char)(high * 16 + low));
			i += 2;
		} else {
			buffer_char(&out, text.data[i]);
		}
	}
	return buffer_slice(&out);
}

/* ---- sending ----------------------------------------------------------------------------- */

struct making {
	natsMsg *message;
	struct arena *scratch;
	size_t size; /* the size of headers and value, as the server counts it */
	bool failed;
};

static void add_header(struct making *making, struct slice name, struct slice value)
{
	bool plain = can_stand_in_a_line(value);
	struct buffer line_name = buffer_make(making->scratch, name.len + 2);
	struct buffer text = buffer_make(making->scratch, value.len + 1);

	if (!is_name(name)) {
		making->failed = true;
		return;
	}
	buffer_add(&line_name, name);
	if (plain) {
		buffer_add(&text, value);
	} else {
		buffer_char(&line_name, '*');
		encode(&text, value);
	}
	making->size += line_name.len + text.len + LINE_OVERHEAD;
	buffer_char(&line_name, '\0');
	buffer_char(&text, '\0');
	if (natsMsgHeader_Add(making->message, line_name.data, text.data) != NATS_OK)
		making->failed = true;
}

static void add_headers(struct making *making, const struct bus_message *message)
{
	assert(message->header_count <= BUS_HEADERS_MAX);
	if (message->id.len > 0)
		add_header(making, slice_of(ID), message->id);
	if (message->key.len > 0)
		add_header(making, slice_of(KEY), message->key);
	for (size_t i = 0; i < message->header_count; i++)
		add_header(making, message->headers[i].name, message->headers[i].value);
	if (making->size > message->value.len)
		making->size += BLOCK_OVERHEAD;
}

static bool has_subject(const struct nats_channel *channel, struct slice subject)
{
	if (!nats_subject_is_plain(subject))
		return false;
	for (size_t i = 0; i < channel->subject_count; i++) {
		if (nats_subject_covers(channel->subjects[i], subject))
			return true;
	}
	return false;
}

natsMsg *nats_message_new(const struct nats_channel *channel, const struct bus_message *message,
	const char *reply, int64_t payload_max, struct arena *scratch)
{
	struct slice subject = message->subject.len ? message->subject : slice_of(channel->name);
	struct making making = {.scratch = scratch, .size = message->value.len};

	if (!has_subject(channel, subject) || message->value.len > (size_t)payload_max)
		return NULL;
	subject = arena_copy(scratch, subject);
	if (natsMsg_Create(&making.message, subject.data, reply,
		    message->value.len ? message->value.data : "",
		    (int)message->value.len) != NATS_OK)
		return NULL;
	add_headers(&making, message);
	if (!making.failed && making.size <= (size_t)payload_max)
		return making.message;
	natsMsg_Destroy(making.message);
	return NULL;
}

/* ---- receiving --------------------------------------------------------------------------- */

struct reading {
	struct bus_delivery *delivery;
	struct arena *arena;
	struct slice id;      /* from JetStream's header, Nats-Msg-Id */
	struct slice id_else; /* from the header event-id, which other engines use */
};

static void keep_header(struct reading *reading, struct slice name, struct slice value)
{
	struct bus_delivery *delivery = reading->delivery;

	if (slice_is(name, ID) && reading->id.len == 0)
		reading->id = value;
	else if (slice_is(name, KEY) && delivery->key.len == 0)
		delivery->key = value;
	else if (slice_is(name, ID_ELSE) && !reading->id_else.data)
		reading->id_else = value;
	else if (delivery->header_count < BUS_HEADERS_MAX)
		delivery->headers[delivery->header_count++] = (struct bus_header){name, value};
}

static void read_header(struct reading *reading, const char *line_name, const char *text)
{
	struct slice name = slice_of(line_name);
	struct slice value = slice_of(text ? text : "");
	size_t skip = strlen(ENCODED);

	if (name.len > 1 && name.data[name.len - 1] == '*' && slice_starts_with(value, ENCODED)) {
		name.len--;
		value = decode(reading->arena, slice_make(value.data + skip, value.len - skip));
	}
	keep_header(reading, name, value);
}

static void read_values(struct reading *reading, natsMsg *message, const char *name)
{
	const char **values = NULL;
	int count = 0;

	if (natsMsgHeader_Values(message, name, &values, &count) != NATS_OK)
		return;
	for (int i = 0; i < count; i++)
		read_header(reading, name, values[i]);
	free((void *)values);
}

/* If the headers are not readable, treats the message as a message without headers, because the
 * message's value does not depend on its headers. */
static void read_headers(struct reading *reading, natsMsg *message)
{
	const char **names = NULL;
	int count = 0;

	if (natsMsgHeader_Keys(message, &names, &count) != NATS_OK)
		return;
	for (int i = 0; i < count; i++)
		read_values(reading, message, names[i]);
	free((void *)names);
}

/* Uses the header event-id as the id only if JetStream's id is missing; otherwise keeps event-id as
 * an ordinary header. */
static void settle_id(struct reading *reading)
{
	struct bus_delivery *delivery = reading->delivery;
	bool both = reading->id.len > 0 && reading->id_else.data;

	delivery->id = reading->id.len > 0 ? reading->id : reading->id_else;
	if (both && delivery->header_count < BUS_HEADERS_MAX)
		delivery->headers[delivery->header_count++] =
			(struct bus_header){slice_of(ID_ELSE), reading->id_else};
}

void nats_message_read(natsMsg *message, const struct nats_channel *channel, struct arena *arena,
	struct bus_delivery *delivery)
{
	struct reading reading = {.delivery = delivery, .arena = arena};
	struct slice subject = slice_of(natsMsg_GetSubject(message));

	memset(delivery, 0, sizeof(*delivery));
	delivery->channel = slice_of(channel->name);
	if (!slice_is(subject, channel->name))
		delivery->subject = subject;
	delivery->value =
		slice_make(natsMsg_GetData(message), (size_t)natsMsg_GetDataLength(message));
	read_headers(&reading, message);
	settle_id(&reading);
}

/* ---- the subject for acknowledgements ---------------------------------------------------- */

/*
 * The subject has the form
 * $JS.ACK.stream.consumer.deliveries.sequence.consumer-sequence.time.pending. A longer form has a
 * domain and the hash of an account after ACK, and another token at the end.
 */
bool nats_metadata_parse(const char *reply, struct nats_metadata *metadata)
{
	struct slice tokens[13];
	struct slice rest = slice_of(reply);
	size_t count = 0;
	size_t skip;

	while (rest.data && count < 13)
		tokens[count++] = slice_cut(&rest, '.');
	if (count < 9 || !slice_is(tokens[0], "$JS") || !slice_is(tokens[1], "ACK"))
		return false;
	skip = count == 9 ? 4 : 6;
	if (skip + 3 >= count)
		return false;
	/* strtoull() stops at the dot */
	metadata->deliveries = strtoull(tokens[skip].data, NULL, 10);
	metadata->sequence = strtoull(tokens[skip + 1].data, NULL, 10);
	metadata->time_us = strtoll(tokens[skip + 3].data, NULL, 10) / 1000;
	return metadata->sequence > 0;
}
