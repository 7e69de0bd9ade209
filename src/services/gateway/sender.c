/*
 * One thread repeats: fetch, print, record, acknowledge. Printing comes before recording, so a
 * crash repeats a message and never loses one. Ids of messages that were printed but not yet
 * recorded are kept in memory, so that an outage of the store repeats nothing.
 *
 * Invariant: a fetch is acknowledged only after all of its good messages are recorded and all
 * others are on the dead letter channel.
 */
#include "services/gateway/sender.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "services/gateway/gateway.h"

#define FETCH_MAX 256
#define PRINTED_MAX (4 * FETCH_MAX)
#define FETCH_NS (1 * NS_PER_S)
#define DLQ_TIMEOUT_NS (5 * NS_PER_S)
#define RETRY_NS (100 * NS_PER_MS)
#define SHOWN_BYTES 64

/* One message of a fetch. */
struct sms {
	struct slice id;      /* recognises repeats: messageId, or the position on the bus */
	struct slice user_id; /* a number or string of the event, as text */
	struct slice text;
	bool is_good;
};

struct sender {
	struct sender_config config;
	struct consumer *consumer;
	struct producer *dead_letters;
	struct session *session;
	struct arena arena; /* of the current fetch */

	/*
	 * Ids of messages that were printed but not recorded. While the store is away the same
	 * messages are fetched again and must not be printed again. Empty after every success.
	 */
	struct arena printed_arena;
	struct slice printed[PRINTED_MAX];
	size_t printed_count;

	pthread_t thread;
	atomic_bool stopping;

	struct tally sent;
	struct tally repeated;
	struct tally malformed;
};

/* ---- reading ----------------------------------------------------------------------------- */

/* Returns a string or an integer as text, in `arena`; {NULL, 0} for anything else, and for text
 * with a NUL, which no store can keep. */
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

/* Returns userId, or user_id, which the gateway's own API accepts as well. */
static json_t *user_of(const json_t *event)
{
	json_t *user = json_object_get(event, "userId");

	return user ? user : json_object_get(event, "user_id");
}

/* Only userId and message are required. A message without an id is recognised by its position. */
static void read_sms(struct arena *arena, const struct bus_delivery *delivery, struct sms *sms)
{
	char why[JSON_WHY_SIZE];
	json_t *event = json_parse_event(delivery->value, why);
	json_t *text = json_object_get(event, "message");

	sms->user_id = id_text(arena, user_of(event));
	sms->id = id_text(arena, json_object_get(event, "messageId"));
	if (json_is_string(text))
		sms->text = id_text(arena, text);
	if (is_blank_id(sms->id))
		sms->id = arena_copy(arena, delivery->position);
	sms->is_good = event && !is_blank_id(sms->user_id) && sms->text.data;
	json_decref(event);
}

/* ---- sending ----------------------------------------------------------------------------- */

static int compare_records(const void *a, const void *b)
{
	return slice_compare(((const struct sent_message *)a)->message_id,
		((const struct sent_message *)b)->message_id);
}

/* Returns records for the ids of the good messages, sorted and without repetition. */
static struct sent_message *make_records(
	struct arena *arena, const struct sms *all, size_t count, size_t *record_count)
{
	struct sent_message *records = arena_array(arena, struct sent_message, count);
	size_t total = 0, kept = 0;

	for (size_t i = 0; i < count; i++) {
		if (all[i].is_good)
			records[total++].message_id = all[i].id;
	}
	qsort(records, total, sizeof(*records), compare_records);
	for (size_t i = 0; i < total; i++) {
		if (kept == 0 || compare_records(&records[kept - 1], &records[i]) != 0)
			records[kept++] = records[i];
	}
	*record_count = kept;
	return records;
}

static void print_sms(struct buffer *page, const struct sms *sms)
{
	buffer_text(page, "SMS SENT userId=");
	text_escape_log(page, sms->user_id);
	buffer_text(page, " message=");
	text_escape_log(page, sms->text);
	buffer_char(page, '\n');
}

static bool write_all(struct slice text)
{
	while (text.len > 0) {
		ssize_t written = write(STDOUT_FILENO, text.data, text.len);

		if (written <= 0)
			return false;
		text = slice_make(text.data + written, text.len - (size_t)written);
	}
	return true;
}

static bool was_printed(const struct sender *sender, struct slice id)
{
	for (size_t i = 0; i < sender->printed_count; i++) {
		if (slice_equal(sender->printed[i], id))
			return true;
	}
	return false;
}

static bool is_known(const struct sent_message *records, size_t count, struct slice id)
{
	struct sent_message wanted = {.message_id = id};
	const struct sent_message *record =
		bsearch(&wanted, records, count, sizeof(*records), compare_records);

	assert(record);
	return record->known;
}

static void forget_printed(struct sender *sender)
{
	sender->printed_count = 0;
	arena_reset(&sender->printed_arena);
}

/* Prints messages that were not sent before, in order. Returns false if standard output fails. */
static bool send_new(struct sender *sender, const struct sms *all, size_t count,
	const struct sent_message *records, size_t record_count)
{
	struct buffer page = buffer_make(&sender->arena, 128 * count);

	/* After several failures with different messages, which the bus may deliver in between, the
	 * oldest are forgotten: they may be printed again, as after a crash. */
	if (sender->printed_count + count > PRINTED_MAX)
		forget_printed(sender);
	for (size_t i = 0; i < count; i++) {
		const struct sms *sms = &all[i];

		if (!sms->is_good)
			continue;
		if (is_known(records, record_count, sms->id) || was_printed(sender, sms->id)) {
			tally_add(&sender->repeated, 1);
			continue;
		}
		sender->printed[sender->printed_count++] =
			arena_copy(&sender->printed_arena, sms->id);
		print_sms(&page, sms);
		tally_add(&sender->sent, 1);
	}
	return write_all(buffer_slice(&page));
}

/* Sends the good messages of a fetch and records them. */
static enum status send_batch(struct sender *sender, struct sms *all, size_t count)
{
	struct session *session = sender->session;
	size_t record_count;
	struct sent_message *records = make_records(&sender->arena, all, count, &record_count);
	enum status status;

	if (record_count == 0)
		return STATUS_OK;
	status = session->ops->begin(session, TRANSACTION_WAIT);
	if (status == STATUS_OK)
		status = sender->config.repository->ops->find(
			sender->config.repository, session, records, record_count);
	if (status != STATUS_OK)
		return status;
	if (!send_new(sender, all, count, records, record_count)) {
		session->ops->rollback(session);
		forget_printed(sender);
		return STATUS_STORE_UNAVAILABLE; /* standard output failed: the fetch is retried */
	}
	FAILPOINT("sender.printed");
	status = sender->config.repository->ops->put(
		sender->config.repository, session, records, record_count);
	if (status == STATUS_OK)
		status = session->ops->commit(session);
	if (status == STATUS_OK)
		forget_printed(sender);
	return status;
}

/* ---- dead letters ------------------------------------------------------------------------ */

static void log_malformed(const struct bus_delivery *delivery)
{
	size_t shown = delivery->value.len < SHOWN_BYTES ? delivery->value.len : SHOWN_BYTES;

	log_line(LOG_ERROR, "sender", "malformed message at %.*s, %zu bytes, begins: %.*s",
		(int)delivery->position.len, delivery->position.data, delivery->value.len,
		(int)shown, delivery->value.data);
}

/* Copies the malformed messages to the dead letter channel. Returns false if the bus has not
 * confirmed all of them. */
static bool bury_malformed(struct sender *sender, const struct bus_delivery *deliveries,
	const struct sms *all, size_t count)
{
	struct bus_message *letters = arena_array(&sender->arena, struct bus_message, count);
	size_t letter_count = 0;

	for (size_t i = 0; i < count; i++) {
		struct bus_message *letter = &letters[letter_count];

		if (all[i].is_good)
			continue;
		letter->channel = slice_of(GATEWAY_DLQ_CHANNEL);
		letter->key = deliveries[i].key;
		letter->id = arena_copy(&sender->arena, deliveries[i].position);
		bus_message_add_header(letter, "position", letter->id);
		letter->value = deliveries[i].value;
		letter_count++;
	}
	if (letter_count == 0)
		return true;
	if (sender->dead_letters->ops->publish(sender->dead_letters, letters, letter_count,
		    clock_steady_ns(&clock_system) + DLQ_TIMEOUT_NS) != STATUS_OK)
		return false;
	for (size_t i = 0; i < letter_count; i++) {
		if (letters[i].fate != BUS_CONFIRMED)
			return false;
	}
	for (size_t i = 0; i < count; i++) {
		if (!all[i].is_good)
			log_malformed(&deliveries[i]);
	}
	tally_add(&sender->malformed, (int64_t)letter_count);
	return true;
}

/* ---- the thread -------------------------------------------------------------------------- */

/* Returns false if the fetch has to be delivered again. */
static bool handle(struct sender *sender, const struct bus_delivery *deliveries, size_t count)
{
	struct sms *all = arena_array(&sender->arena, struct sms, count);

	for (size_t i = 0; i < count; i++)
		read_sms(&sender->arena, &deliveries[i], &all[i]);
	return send_batch(sender, all, count) == STATUS_OK &&
	       bury_malformed(sender, deliveries, all, count) &&
	       sender->consumer->ops->ack(sender->consumer, count) == STATUS_OK;
}

static void pause_before_retry(void)
{
	struct timespec pause = {.tv_nsec = RETRY_NS};

	nanosleep(&pause, NULL);
}

static void *sender_main(void *argument)
{
	struct sender *sender = argument;
	struct bus_delivery *deliveries = qp_calloc(FETCH_MAX, sizeof(*deliveries));

	pthread_setname_np(pthread_self(), "sender");
	while (!atomic_load(&sender->stopping)) {
		int64_t until_ns = clock_steady_ns(&clock_system) + FETCH_NS;
		size_t count = 0;

		arena_reset(&sender->arena);
		if (sender->consumer->ops->fetch(sender->consumer, deliveries, FETCH_MAX, &count,
			    until_ns) != STATUS_OK) {
			pause_before_retry();
			continue;
		}
		if (count > 0 && !handle(sender, deliveries, count)) {
			sender->consumer->ops->again(sender->consumer);
			pause_before_retry();
		}
	}
	free(deliveries);
	return NULL;
}

struct sender *sender_start(const struct sender_config *config)
{
	struct sender *sender = qp_calloc(1, sizeof(*sender));
	int failed;

	sender->config = *config;
	sender->consumer =
		config->bus->ops->open_consumer(config->bus, GATEWAY_CHANNEL, GATEWAY_GROUP);
	sender->dead_letters = config->bus->ops->open_producer(config->bus);
	sender->session = config->store->ops->open_session(config->store, SESSION_WRITE);
	arena_init(&sender->arena, 64 * 1024);
	arena_init(&sender->printed_arena, 16 * 1024);
	failed = pthread_create(&sender->thread, NULL, sender_main, sender);
	assert(!failed);
	return sender;
}

void sender_stop(void *context)
{
	struct sender *sender = context;

	atomic_store(&sender->stopping, true);
	sender->consumer->ops->wake(sender->consumer);
	pthread_join(sender->thread, NULL);
	sender->consumer->ops->close(sender->consumer);
	sender->dead_letters->ops->close(sender->dead_letters);
	session_close(sender->session);
	arena_release(&sender->arena);
	arena_release(&sender->printed_arena);
	free(sender);
}

void sender_collect(void *context, struct buffer *page)
{
	const struct sender *sender = context;

	metrics_family(page, "quipu_sender_sent_total", "counter", "Messages sent.");
	metrics_sample(page, "quipu_sender_sent_total", "", tally_read(&sender->sent));
	metrics_family(page, "quipu_sender_repeated_total", "counter",
		"Messages that were delivered again and not sent again.");
	metrics_sample(page, "quipu_sender_repeated_total", "", tally_read(&sender->repeated));
	metrics_family(page, "quipu_sender_malformed_total", "counter",
		"Messages that could not be read and went to the dead letters.");
	metrics_sample(page, "quipu_sender_malformed_total", "", tally_read(&sender->malformed));
}
