/*
 * What comes from brokers and goes to streams. The first byte chooses: an event of dialogs, the
 * properties of an AMQP message, the reply subject of JetStream, a time, the value of a stream.
 */
#include "adapters/bus/nats/nats_internal.h"
#include "adapters/bus/rabbitmq/rabbitmq_internal.h"
#include "base/text.h"
#include "events/message_event.h"
#include "http/stream_event.h"
#include "target.h"

static void check_id(struct slice id)
{
	MUST(id.len > 0 && id.len <= 128);
	MUST(text_is_utf8(id) && !text_has_control(id));
}

static void read_event(struct arena *arena, struct slice text, bool is_read)
{
	struct message_event event = {.is_read = is_read}, again = {.is_read = is_read};

	if (message_event_read(arena, text, &event))
		return;
	check_id(event.user_id);
	check_id(event.message_id);
	text = message_event_write(arena, &event, slice_of("e"), "Quipu.Dialogs");
	MUST(!message_event_read(arena, text, &again));
	MUST(slice_equal(event.user_id, again.user_id));
	MUST(slice_equal(event.message_id, again.message_id));
	MUST(event.at_us == again.at_us);
}

static void read_amqp(struct arena *arena, struct slice bytes)
{
	static const struct bus_channel channel = {.name = "message-events"};
	struct rabbitmq_delivery from = {.routing_key = amqp_cstring_bytes("message.new")};
	amqp_bytes_t encoded = {.len = bytes.len, .bytes = (void *)(uintptr_t)bytes.data};
	struct bus_delivery delivery;
	amqp_pool_t pool;
	void *properties;

	init_amqp_pool(&pool, 4096);
	if (amqp_decode_properties(AMQP_BASIC_CLASS, &pool, encoded, &properties) ==
		AMQP_STATUS_OK) {
		from.message.properties = *(amqp_basic_properties_t *)properties;
		rabbitmq_delivery_read(&delivery, arena, &channel, &from);
		MUST(delivery.header_count <= BUS_HEADERS_MAX);
		MUST(delivery.position.len > 0 && delivery.position.len <= 255);
		MUST(text_is_utf8(delivery.position) && !text_has_control(delivery.position));
		MUST(delivery.time_us >= 0);
	}
	empty_amqp_pool(&pool);
}

static void read_reply(struct arena *arena, struct slice text)
{
	struct nats_metadata metadata;

	if (nats_metadata_parse(arena_copy(arena, text).data, &metadata))
		MUST(metadata.sequence > 0);
}

static void read_time(struct arena *arena, struct slice text)
{
	struct buffer written = buffer_make(arena, 32);
	int64_t time_us, again_us;

	if (!text_to_time_us(text, &time_us))
		return;
	buffer_time(&written, time_us);
	MUST(text_to_time_us(buffer_slice(&written), &again_us) && time_us == again_us);
}

/* No value can end its event or name a field: every line of it is behind "data: ". */
static void frame_value(struct slice value)
{
	struct stream_event *event = stream_event_new(7, value);
	struct slice rest = slice_make(event->bytes, event->len);

	MUST(slice_starts_with(rest, "id: 7\ndata: "));
	slice_cut(&rest, '\n');
	while (rest.len > 1) {
		struct slice line = slice_cut(&rest, '\n');

		MUST(slice_starts_with(line, "data: "));
		MUST(!memchr(line.data, '\r', line.len));
	}
	MUST(rest.len == 1 && rest.data[0] == '\n');
	stream_event_drop(event);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice rest = slice_make(data + 1, size > 0 ? size - 1 : 0);
	struct arena arena;

	if (size == 0)
		return 0;
	arena_init(&arena, 16 * 1024);
	switch (data[0]) {
	case 'n':
	case 'r':
		read_event(&arena, rest, data[0] == 'r');
		break;
	case 'a':
		read_amqp(&arena, rest);
		break;
	case 'j':
		read_reply(&arena, rest);
		break;
	case 't':
		read_time(&arena, rest);
		break;
	default:
		frame_value(rest);
	}
	arena_release(&arena);
	return 0;
}
