/*
 * Reads events from the bus and stores them as rows to be sent. Only userId and message are
 * required, because other programs may also write to the channel.
 */
#include "services/gateway/sender.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/text.h"
#include "base/uuid.h"
#include "services/gateway/gateway.h"

#define DLQ_TIMEOUT_NS (5 * NS_PER_S)

/* Headers of a dead letter: where the message was, and the size of its value if the letter does not
 * have all of it. */
#define POSITION "position"
#define TRUNCATED "truncated"

/* How much of a value a shortened letter keeps at most. */
#define SHORTENED_MAX ((size_t)64 * 1024)

/* ---- reading ----------------------------------------------------------------------------- */

/* Returns a string or an integer as text, allocated from `arena`. Returns {NULL, 0} for all other
 * values, and for text with a NUL character, which not every store accepts. */
static struct slice id_text(struct arena *arena, const json_t *value)
{
	struct slice text = slice_make(json_string_value(value), json_string_length(value));
	struct buffer digits = {.arena = arena};

	if (json_is_string(value) && !memchr(text.data, '\0', text.len))
		return arena_copy(arena, text);
	if (!json_is_integer(value))
		return (struct slice){0};
	buffer_int(&digits, json_integer_value(value));
	return buffer_slice(&digits);
}

static bool is_blank_id(struct slice id)
{
	return id.len == 0 || text_is_blank(id);
}

/* Returns the member userId or, if it is absent, user_id. The gateway's own API also accepts both
 * names. */
static json_t *user_of(const json_t *event)
{
	json_t *user = json_object_get(event, "userId");

	return user ? user : json_object_get(event, "user_id");
}

/* Returns a UUID for a message. The gateway's ids already are UUIDs; other programs may use any
 * text. */
static struct slice row_id(struct arena *arena, struct slice message_id)
{
	struct buffer name = buffer_make(arena, message_id.len + 16);
	char *id = arena_alloc(arena, UUID_SIZE);

	if (uuid_is_canonical(message_id))
		return message_id;
	buffer_text(&name, GATEWAY_CHANNEL);
	buffer_char(&name, '\0');
	buffer_add(&name, message_id);
	uuid_of_name(buffer_slice(&name), id);
	return slice_of(id);
}

static struct slice write_payload(
	struct arena *arena, const struct outbound_message *message, struct slice text)
{
	struct buffer body = buffer_make(arena, 160 + text.len);

	buffer_char(&body, '{');
	buffer_member(&body, "messageId", message->message_id);
	buffer_member(&body, "userId", message->user_id);
	buffer_member(&body, "message", text);
	buffer_member_time(&body, "createdAt", message->created_us);
	buffer_char(&body, '}');
	return buffer_slice(&body);
}

/* Reads an event. Returns NULL if the event can be used, otherwise the reason why it cannot. */
static const char *read_event(struct arena *arena, const struct bus_delivery *delivery,
	const json_t *event, struct outbound_message *message)
{
	const json_t *text = json_object_get(event, "message");
	const json_t *created = json_object_get(event, "createdAt");

	message->user_id = id_text(arena, user_of(event));
	message->message_id = id_text(arena, json_object_get(event, "messageId"));
	if (is_blank_id(message->user_id))
		return "it has no userId";
	if (!json_is_string(text) || !id_text(arena, text).data)
		return "it has no message";
	message->position = (struct slice){0};
	if (is_blank_id(message->message_id)) {
		message->message_id = arena_copy(arena, delivery->identity);
		message->position = arena_copy(arena, delivery->position);
	} else if (message->message_id.len > ID_BYTES_MAX) {
		/* PostgreSQL cannot add an id of more than about 2700 bytes to sent_messages, so
		 * the user of such a message could not be erased */
		return "its messageId has more than 128 bytes";
	}
	message->id = row_id(arena, message->message_id);
	message->trace = intake_trace(delivery);
	if (!json_is_string(created) ||
		!text_to_time_us(slice_of(json_string_value(created)), &message->created_us))
		message->created_us = clock_wall_us(&clock_system);
	message->payload = write_payload(arena, message, id_text(arena, text));
	return NULL;
}

static const char *read_delivery(
	struct arena *arena, const struct bus_delivery *delivery, struct outbound_message *message)
{
	char why[JSON_WHY_SIZE];
	json_t *event = json_parse_event(delivery->value, why);
	const char *wrong =
		event ? read_event(arena, delivery, event, message) : "it is not a JSON object";

	json_decref(event);
	return wrong;
}

/* ---- applying ---------------------------------------------------------------------------- */

static int compare_sent(const void *a, const void *b)
{
	return slice_compare(((const struct sent_message *)a)->message_id,
		((const struct sent_message *)b)->message_id);
}

/* Looks up which messages have an entry in sent_messages and therefore must not be sent again.
 * Sorts `sent` by id and drops duplicates. */
static enum status find_sent(const struct sender *sender, struct session *session,
	struct sent_message *sent, size_t *count)
{
	size_t kept = 0;

	qsort(sent, *count, sizeof(*sent), compare_sent);
	for (size_t i = 0; i < *count; i++) {
		if (kept == 0 || compare_sent(&sent[kept - 1], &sent[i]) != 0)
			sent[kept++] = sent[i];
	}
	*count = kept;
	return kept == 0 ? STATUS_OK : sender->sent->ops->find(sender->sent, session, sent, kept);
}

static bool is_sent(struct sent_message *sent, size_t count, struct slice message_id)
{
	struct sent_message wanted = {.message_id = message_id};
	const struct sent_message *found =
		bsearch(&wanted, sent, count, sizeof(*sent), compare_sent);

	return found && found->known;
}

static bool has_former_id(const struct outbound_message *message)
{
	return message->position.len > 0 && !slice_equal(message->position, message->message_id);
}

/* Drops the messages that find_sent() has found. Of several messages with the same id, keeps only
 * the first. Returns how many remain. */
static size_t keep_unsent(struct outbound_message *messages, size_t count,
	struct sent_message *sent, size_t sent_count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		struct sent_message wanted = {.message_id = messages[i].message_id};
		struct sent_message *found =
			bsearch(&wanted, sent, sent_count, sizeof(*sent), compare_sent);

		assert(found);
		if (!found->known)
			messages[kept++] = messages[i];
		found->known = true;
	}
	return kept;
}

/* Drops the messages that an earlier version of Quipu has stored or sent under their former ids. A
 * former id is a message's position on the bus. `former` has an entry for each message with a
 * former id, in the order of `messages`; `sent` has the positions of these messages, sorted.
 * Returns how many messages remain. */
static size_t drop_former(struct outbound_message *messages, size_t count,
	const struct outbound_message *former, struct sent_message *sent, size_t sent_count)
{
	size_t kept = 0;

	for (size_t i = 0, k = 0; i < count; i++) {
		if (has_former_id(&messages[i]) &&
			(former[k++].exists || is_sent(sent, sent_count, messages[i].position)))
			continue;
		messages[kept++] = messages[i];
	}
	return kept;
}

/*
 * Drops each message that has no id and that an earlier version of Quipu has already stored. That
 * version identified such messages by their position alone, and its records are kept for 30 days.
 * Rows are looked up before sent_messages, because an erasure may move a message from one to the
 * other between the two statements.
 */
static enum status drop_known_by_position(const struct sender *sender, struct session *session,
	struct arena *arena, struct outbound_message *messages, size_t *count)
{
	struct outbound_message *former;
	struct sent_message *sent;
	size_t wanted = 0, sent_count = 0;
	enum status status;

	for (size_t i = 0; i < *count; i++)
		wanted += has_former_id(&messages[i]);
	if (wanted == 0)
		return STATUS_OK;
	former = arena_array(arena, struct outbound_message, wanted);
	sent = arena_array(arena, struct sent_message, wanted);
	for (size_t i = 0; i < *count; i++) {
		if (!has_former_id(&messages[i]))
			continue;
		former[sent_count].id = row_id(arena, messages[i].position);
		sent[sent_count++].message_id = messages[i].position;
	}
	status = sender->repository->ops->know(sender->repository, session, former, wanted);
	if (status == STATUS_OK)
		status = find_sent(sender, session, sent, &sent_count);
	if (status == STATUS_OK)
		*count = drop_former(messages, *count, former, sent, sent_count);
	return status;
}

enum status sender_apply(
	void *context, struct session *session, const struct intake_batch *batch, size_t *repeated)
{
	struct sender *sender = context;
	struct outbound_message *messages =
		arena_array(batch->arena, struct outbound_message, batch->count);
	struct sent_message *sent = arena_array(batch->arena, struct sent_message, batch->count);
	size_t good = 0, sent_count, kept, fresh = 0;
	enum status status;

	for (size_t i = 0; i < batch->count; i++) {
		struct intake_item *item = &batch->items[i];

		if (!item->poison)
			item->poison = read_delivery(batch->arena, item->delivery, &messages[good]);
		if (!item->poison)
			sent[good].message_id = messages[good].message_id, good++;
	}
	sent_count = good;
	status = find_sent(sender, session, sent, &sent_count);
	if (status != STATUS_OK)
		return status;
	kept = keep_unsent(messages, good, sent, sent_count);
	status = drop_known_by_position(sender, session, batch->arena, messages, &kept);
	if (kept > 0 && status == STATUS_OK)
		status = sender->repository->ops->put(sender->repository, session, messages, kept);
	for (size_t i = 0; i < kept && status == STATUS_OK; i++)
		fresh += messages[i].is_new;
	*repeated = good - fresh;
	sender->repeated_now = *repeated;
	return status;
}

static void announce(void *context)
{
	struct store *store = ((struct sender *)context)->store;

	store->ops->announce(store, SENDER_ANNOUNCEMENT);
}

void sender_taken(void *context)
{
	struct sender *sender = context;

	tally_add(&sender->repeated, (int64_t)sender->repeated_now);
	announce(sender);
}

/* ---- dead letters ------------------------------------------------------------------------ */

/* Builds the copies of the unusable messages and returns their number. */
static size_t write_letters(
	struct bus_message *letters, const struct intake_item *items, size_t count)
{
	size_t written = 0;

	for (size_t i = 0; i < count; i++) {
		struct bus_message *letter = &letters[written];

		if (!items[i].poison)
			continue;
		letter->channel = slice_of(GATEWAY_DLQ_CHANNEL);
		letter->key = items[i].delivery->key;
		letter->id = items[i].delivery->identity;
		bus_message_add_header(letter, POSITION, items[i].delivery->position);
		letter->value = items[i].delivery->value;
		written++;
	}
	return written;
}

static bool is_shortened(const struct bus_message *letter)
{
	return slice_is(letter->headers[letter->header_count - 1].name, TRUNCATED);
}

static void add_truncated(struct arena *arena, struct bus_message *letter)
{
	struct buffer digits = {.arena = arena};

	buffer_int(&digits, (int64_t)letter->value.len);
	bus_message_add_header(letter, TRUNCATED, buffer_slice(&digits));
}

/* Shortens a letter that the bus cannot carry: first omits the key and all but the beginning of the
 * value, then each time half of the value. Returns false if nothing is left to omit. */
static bool shorten(struct arena *arena, struct bus_message *letter)
{
	if (!is_shortened(letter)) {
		add_truncated(arena, letter);
		letter->key = (struct slice){0};
		if (letter->value.len > SHORTENED_MAX)
			letter->value.len = SHORTENED_MAX;
		return true;
	}
	letter->value.len /= 2;
	return letter->value.len > 0;
}

/* Publishes a letter again, shorter each time, until the bus can carry it. A letter that the bus
 * has refused for another reason stays whole. Returns true if the letter is confirmed. */
static bool confirm(const struct sender *sender, struct arena *arena, struct bus_message *letter,
	int64_t until_ns)
{
	while (letter->fate == BUS_NOT_PERSISTED && letter->is_unfit && shorten(arena, letter)) {
		letter->is_unfit = false;
		if (sender->dead_letters->ops->publish(sender->dead_letters, letter, 1, until_ns) !=
			STATUS_OK)
			return false;
	}
	return letter->fate == BUS_CONFIRMED;
}

static bool publish_letters(
	const struct sender *sender, struct arena *arena, struct bus_message *letters, size_t count)
{
	int64_t until_ns = clock_steady_ns(&clock_system) + DLQ_TIMEOUT_NS;
	bool is_done = sender->dead_letters->ops->publish(
			       sender->dead_letters, letters, count, until_ns) == STATUS_OK;

	for (size_t i = 0; i < count && is_done; i++)
		is_done = confirm(sender, arena, &letters[i], until_ns);
	return is_done;
}

static void log_shortened(const struct bus_message *letters, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct slice position = letters[i].headers[0].value;
		struct slice size = letters[i].headers[letters[i].header_count - 1].value;

		if (is_shortened(&letters[i]))
			log_line(LOG_WARN, "sender",
				"the message at %.*s is too large for " GATEWAY_DLQ_CHANNEL
				": its copy has no key and the first %zu of %.*s bytes",
				(int)position.len, position.data, letters[i].value.len,
				(int)size.len, size.data);
	}
}

/* Copies unusable messages to the dead letter channel. Returns true if the bus has confirmed all
 * copies. */
bool sender_put_aside(void *context, const struct intake_item *items, size_t count)
{
	struct sender *sender = context;
	struct bus_message *letters = qp_calloc(count, sizeof(*letters));
	size_t letter_count = write_letters(letters, items, count);
	struct arena arena; /* the headers of shortened letters */
	bool is_done;

	arena_init(&arena, 1024);
	is_done = letter_count == 0 || publish_letters(sender, &arena, letters, letter_count);
	if (is_done) {
		log_shortened(letters, letter_count);
		tally_add(&sender->malformed, (int64_t)letter_count);
	}
	arena_release(&arena);
	free(letters);
	return is_done;
}

/* ---- sending ----------------------------------------------------------------------------- */

const char *sender_write_body(struct arena *arena, const struct claim *claim, struct slice *body)
{
	(void)arena;
	*body = claim->payload;
	return NULL;
}

struct lane_service sender_lane_service(struct sender *sender)
{
	return (struct lane_service){
		.name = "sender",
		.context = sender,
		.committed = announce,
	};
}

/* ---- metrics ----------------------------------------------------------------------------- */

static void write_one(
	struct buffer *page, const char *name, const char *type, const char *help, int64_t value)
{
	metrics_family(page, name, type, help);
	metrics_sample(page, name, "", value);
}

static void write_states(const struct delivery_counts *counts, struct buffer *page)
{
	const char *name = "quipu_sender_messages";

	metrics_family(page, name, "gauge",
		"Messages that are not sent yet, by state, counted every few seconds.");
	metrics_sample(page, name, "state=\"QUEUED\"", counts->pending);
	metrics_sample(page, name, "state=\"SENDING\"", counts->busy);
	metrics_sample(page, name, "state=\"FAILED\"", counts->failed);
}

void sender_collect(
	const struct sender *sender, const struct delivery_counts *counts, struct buffer *page)
{
	write_states(counts, page);
	write_one(page, "quipu_sender_oldest_seconds", "gauge",
		"Age of the oldest message that is not sent yet.", counts->oldest_us / 1000000);
	write_one(page, "quipu_sender_dead_letters", "gauge",
		"Messages that were given up and wait for an operator.", counts->dead);
	write_one(page, "quipu_sender_sent_total", "counter", "Messages sent.", counts->sent);
	write_one(page, "quipu_sender_retried_total", "counter",
		"Attempts to send that failed and will be retried.", counts->retried);
	write_one(page, "quipu_sender_given_up_total", "counter",
		"Messages that were refused, or failed too many times.", counts->given_up);
	write_one(page, "quipu_sender_repeated_total", "counter",
		"Repeated deliveries of a message, which were not sent again.",
		tally_read(&sender->repeated));
	write_one(page, "quipu_sender_malformed_total", "counter",
		"Messages that could not be read and were put aside as dead letters.",
		tally_read(&sender->malformed));
}
