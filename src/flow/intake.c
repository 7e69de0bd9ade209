/*
 * One thread repeats three steps: it fetches messages, applies them in a transaction, and
 * acknowledges them. The transaction recognises repeated messages, so a crash between COMMIT and
 * the acknowledgement is harmless: the bus delivers the messages again and nothing changes. While
 * the store does not answer, nothing is fetched, because every failed delivery brings a message
 * closer to the bus's limit on deliveries.
 *
 * Invariant: a message is acknowledged only after the COMMIT of the transaction in which it was
 * applied, recognised as a repeat, or treated as poison.
 */
#include "flow/intake.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/metrics.h"
#include "runtime/bell.h"

#define FETCH_MAX 256
#define FETCH_NS (1 * NS_PER_S)
#define RETRY_NS (100 * NS_PER_MS)
#define TRIES_MAX 20
#define ARENA_SIZE (128 * 1024)
#define SHOWN_BYTES 64

struct intake {
	struct intake_config config;
	struct consumer *consumer;
	struct session *session;
	struct arena arena; /* memory of the current attempt */
	struct bell bell;
	pthread_t thread;

	struct bus_delivery deliveries[FETCH_MAX];
	struct intake_item items[FETCH_MAX];

	struct tally taken;
	struct tally repeated;
	struct tally poisoned;
};

/* ---- applying messages ------------------------------------------------------------------- */

static enum status try_once(
	struct intake *intake, struct intake_item *items, size_t count, size_t *repeated)
{
	struct session *session = intake->session;
	struct intake_batch batch = {.items = items, .count = count, .arena = &intake->arena};
	enum status status;

	arena_reset(&intake->arena);
	*repeated = 0;
	status = session->ops->begin(session, TRANSACTION_WAIT);
	if (status == STATUS_OK)
		status = intake->config.apply(intake->config.context, session, &batch, repeated);
	if (status != STATUS_OK)
		return status;
	FAILPOINT("intake.applied");
	status = session->ops->commit(session);
	if (status == STATUS_OK)
		FAILPOINT("intake.committed");
	return status;
}

static bool may_try_again(enum status status)
{
	return status == STATUS_RERUN || status == STATUS_LOCK_BUSY;
}

static enum status apply(struct intake *intake, struct intake_item *items, size_t count);

/* Called if the store refuses an item of the batch: finds the item by halving the batch, and marks
 * it as poison. */
static enum status isolate(struct intake *intake, struct intake_item *items, size_t count)
{
	enum status status;

	if (count > 1) {
		status = apply(intake, items, count / 2);
		if (status == STATUS_OK)
			status = apply(intake, items + count / 2, count - count / 2);
		return status;
	}
	if (items[0].poison)
		/* the store refuses the message even as a dead letter; retry later */
		return STATUS_STORE_UNAVAILABLE;
	items[0].poison = "the store refuses it";
	return apply(intake, items, 1);
}

static void count_taken(
	struct intake *intake, const struct intake_item *items, size_t count, size_t repeated)
{
	size_t poisoned = 0;

	for (size_t i = 0; i < count; i++)
		poisoned += items[i].poison != NULL;
	tally_add(&intake->poisoned, (int64_t)poisoned);
	tally_add(&intake->repeated, (int64_t)repeated);
	tally_add(&intake->taken, (int64_t)(count - poisoned - repeated));
}

static enum status apply(struct intake *intake, struct intake_item *items, size_t count)
{
	size_t repeated = 0;
	enum status status = STATUS_RERUN;

	for (int i = 0; i < TRIES_MAX && may_try_again(status); i++)
		status = try_once(intake, items, count, &repeated);
	if (status == STATUS_POISON)
		return isolate(intake, items, count);
	if (status != STATUS_OK)
		return status;
	count_taken(intake, items, count, repeated);
	intake->config.committed(intake->config.context);
	return STATUS_OK;
}

/* ---- the intake's thread ----------------------------------------------------------------- */

static void log_poison(const struct intake *intake, const struct intake_item *item)
{
	const struct bus_delivery *delivery = item->delivery;
	size_t shown = delivery->value.len < SHOWN_BYTES ? delivery->value.len : SHOWN_BYTES;

	log_line(LOG_ERROR, "intake",
		"%s: message at %.*s is put aside: %s; it has %zu byte%s and begins: %.*s",
		intake->config.name, (int)delivery->position.len, delivery->position.data,
		item->poison, delivery->value.len, delivery->value.len == 1 ? "" : "s", (int)shown,
		delivery->value.data);
}

static void report_poison(struct intake *intake, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!intake->items[i].poison)
			continue;
		log_poison(intake, &intake->items[i]);
		consumer_poison(intake->consumer, i, intake->items[i].poison);
	}
}

/* Applies and acknowledges the first `count` messages of intake->deliveries. Returns false if the
 * bus has to deliver these messages again. */
static bool take(struct intake *intake, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		bool exhausted = intake->deliveries[i].is_exhausted;

		intake->items[i].delivery = &intake->deliveries[i];
		intake->items[i].poison = exhausted ? "delivery failed too many times" : NULL;
	}
	if (apply(intake, intake->items, count) != STATUS_OK)
		return false;
	if (intake->config.put_aside &&
		!intake->config.put_aside(intake->config.context, intake->items, count))
		return false;
	report_poison(intake, count);
	return intake->consumer->ops->ack(intake->consumer, count) == STATUS_OK;
}

/* Waits until the store completes an empty transaction, or until the intake is stopped. */
static void wait_for_store(struct intake *intake)
{
	struct session *session = intake->session;

	while (!bell_is_stopping(&intake->bell)) {
		enum status status = session->ops->begin(session, TRANSACTION_WAIT);

		if (status == STATUS_OK)
			status = session->ops->commit(session);
		if (status == STATUS_OK && intake->config.store->ops->is_up(intake->config.store))
			return;
		bell_wait(&intake->bell, RETRY_NS);
	}
}

static void *intake_main(void *argument)
{
	struct intake *intake = argument;

	pthread_setname_np(pthread_self(), "intake");
	wait_for_store(intake);
	while (!bell_is_stopping(&intake->bell)) {
		int64_t until_ns = clock_steady_ns(&clock_system) + FETCH_NS;
		size_t count = 0;

		if (IS_SWITCHED_OFF("intake.fetch")) {
			bell_wait(&intake->bell, FETCH_NS);
			continue;
		}
		if (intake->consumer->ops->fetch(intake->consumer, intake->deliveries, FETCH_MAX,
			    &count, until_ns) != STATUS_OK) {
			bell_wait(&intake->bell, RETRY_NS);
			continue;
		}
		if (count > 0 && !take(intake, count)) {
			intake->consumer->ops->again(intake->consumer);
			wait_for_store(intake);
		}
	}
	return NULL;
}

struct intake *intake_start(const struct intake_config *config)
{
	struct intake *intake = qp_calloc(1, sizeof(*intake));
	int failed;

	intake->config = *config;
	intake->consumer =
		config->bus->ops->open_consumer(config->bus, config->channel, config->group);
	intake->session = config->store->ops->open_session(config->store, SESSION_WRITE);
	arena_init(&intake->arena, ARENA_SIZE);
	bell_init(&intake->bell);
	failed = pthread_create(&intake->thread, NULL, intake_main, intake);
	assert(!failed);
	return intake;
}

void intake_stop(void *context)
{
	struct intake *intake = context;

	bell_stop(&intake->bell);
	intake->consumer->ops->wake(intake->consumer);
	pthread_join(intake->thread, NULL);
	intake->consumer->ops->close(intake->consumer);
	session_close(intake->session);
	bell_release(&intake->bell);
	arena_release(&intake->arena);
	free(intake);
}

static const struct family {
	const char *name;
	const char *help;
	size_t offset; /* the offset of this family's tally in struct intake */
} families[] = {
	{"quipu_inbox_taken_total", "Events that were applied.", offsetof(struct intake, taken)},
	{"quipu_inbox_repeated_total", "Events that were delivered again and had no second effect.",
		offsetof(struct intake, repeated)},
	{"quipu_inbox_poison_total", "Messages that could not be used and were put aside.",
		offsetof(struct intake, poisoned)},
};

static void sample(struct buffer *page, const struct intake *intake, const struct family *family)
{
	const char *tally = (const char *)intake + family->offset;
	char labels[64];

	snprintf(labels, sizeof(labels), "inbox=\"%s\"", intake->config.name);
	metrics_sample(
		page, family->name, labels, tally_read((const struct tally *)(const void *)tally));
}

void intakes_collect(struct intake *const *intakes, size_t count, struct buffer *page)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]) && count > 0; i++) {
		metrics_family(page, families[i].name, "counter", families[i].help);
		for (size_t k = 0; k < count; k++)
			sample(page, intakes[k], &families[i]);
	}
}

/* ---- recording event ids ----------------------------------------------------------------- */

/* An id and its index in the batch. */
struct numbered {
	struct slice id;
	size_t place;
};

static int compare_numbered(const void *a, const void *b)
{
	const struct numbered *left = a, *right = b;
	int order = slice_compare(left->id, right->id);

	return order ? order : (left->place > right->place) - (left->place < right->place);
}

/* Returns the ids that are not empty, sorted, and sets `*kept` to their number. Equal ids keep the
 * order of the batch. */
static struct numbered *number(
	struct arena *arena, const struct slice *ids, size_t count, size_t *kept)
{
	struct numbered *numbered = arena_array(arena, struct numbered, count);

	*kept = 0;
	for (size_t i = 0; i < count; i++) {
		if (ids[i].len > 0)
			numbered[(*kept)++] = (struct numbered){.id = ids[i], .place = i};
	}
	qsort(numbered, *kept, sizeof(*numbered), compare_numbered);
	return numbered;
}

enum status inbox_keep_new(const struct inbox_repository *inbox, struct session *session,
	struct arena *arena, const struct slice *ids, bool *is_new, size_t count)
{
	size_t total, unique = 0;
	struct numbered *numbered = number(arena, ids, count, &total);
	struct inbox_event *events = arena_array(arena, struct inbox_event, total);
	size_t *places = arena_array(arena, size_t, total);
	enum status status;

	for (size_t i = 0; i < count; i++)
		is_new[i] = false;
	for (size_t i = 0; i < total; i++) {
		if (unique > 0 && slice_equal(events[unique - 1].event_id, numbered[i].id))
			continue;
		events[unique].event_id = numbered[i].id;
		places[unique++] = numbered[i].place;
	}
	if (unique == 0)
		return STATUS_OK;
	status = inbox->ops->put(inbox, session, events, unique);
	for (size_t i = 0; i < unique && status == STATUS_OK; i++)
		is_new[places[i]] = events[i].is_new;
	return status;
}
