/*
 * Decodes a message that JetStream has read from a stream: JSON, with headers and data in base64.
 * cnats has a decoder too (js_GetMsg()), but that function also sends the request itself, and
 * receives the reply at a subscription that cnats releases too early; see nats_link.c.
 */
#include "adapters/bus/nats/nats_consuming.h"
#include "base/text.h"

#define SCRATCH_SIZE 4096

static bool read_base64(
	struct arena *scratch, const json_t *stored, const char *name, struct slice *bytes)
{
	return text_from_base64(scratch, slice_of(nats_json_text(stored, name)), bytes);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static struct slice trim(struct slice text)
{
	while (text.len > 0 && is_blank(text.data[0]))
		text = slice_make(text.data + 1, text.len - 1);
	while (text.len > 0 && is_blank(text.data[text.len - 1]))
		text.len--;
	return text;
}

/* Adds the header in `line`. Skips the line if it is not a header or if cnats refuses the header's
 * name, because the message's value does not depend on its headers. */
static void add_line(natsMsg *message, struct arena *scratch, struct slice line)
{
	bool has_name = memchr(line.data, ':', line.len) != NULL;
	struct slice name = slice_cut(&line, ':');

	if (has_name && name.len > 0 && trim(name).len == name.len)
		natsMsgHeader_Add(message, arena_copy(scratch, name).data,
			arena_copy(scratch, trim(line)).data);
}

static void add_headers(natsMsg *message, struct arena *scratch, struct slice headers)
{
	if (!slice_is(trim(slice_cut(&headers, '\n')), "NATS/1.0"))
		return;
	while (headers.len > 0)
		add_line(message, scratch, slice_cut(&headers, '\n'));
}

static bool decode(const json_t *stored, struct arena *scratch, natsMsg **message, int64_t *time_us)
{
	const char *subject = nats_json_text(stored, "subject");
	struct slice headers, data;

	if (!*subject || !text_to_time_us(slice_of(nats_json_text(stored, "time")), time_us) ||
		!read_base64(scratch, stored, "hdrs", &headers) ||
		!read_base64(scratch, stored, "data", &data))
		return false;
	if (natsMsg_Create(message, subject, NULL, data.data, (int)data.len) != NATS_OK)
		return false;
	add_headers(*message, scratch, headers);
	return true;
}

bool nats_stored_read(const json_t *stored, natsMsg **message, int64_t *time_us)
{
	struct arena scratch;
	bool done;

	arena_init(&scratch, SCRATCH_SIZE);
	done = decode(stored, &scratch, message, time_us);
	arena_release(&scratch);
	return done;
}
