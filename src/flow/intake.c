/*
 * One thread repeats three steps: it fetches messages, applies them in a transaction, and
 * acknowledges them. The transaction recognises repeated messages, so a crash between COMMIT and
 * the acknowledgement is harmless: the bus delivers the messages again and nothing changes. If the
 * store cannot apply the fetched messages, the intake retries until it does. Even a connected store
 * may refuse messages for a long time: its disk may be full, or another session may have locked a
 * table.
 *
 * After a second or two of refusals, the intake fetches the same messages again, because a consumer
 * that does not fetch would hold up the other members of its group (on Kafka, they wait for it
 * whenever a member joins or leaves). But on a bus that counts deliveries, the intake keeps what it
 * has fetched: there, each delivery in vain would bring the messages closer to the limit.
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
#include "base/trace.h"
#include "runtime/bell.h"

#define FETCH_MAX 256
#define FETCH_NS (1 * NS_PER_S)
#define RETRY_NS (100 * NS_PER_MS)  /* the first pause; each later pause is twice as long */
#define RETRY_MAX_NS (1 * NS_PER_S) /* the longest pause */
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

	/* how many of the fetched messages, from the first on, are applied and committed */
	size_t applied;
	/* how long the pause after the last failed attempt was; 0 after a successful attempt */
	int64_t pause_ns;
	/* the log says that a message can neither be used nor put aside, and no message has been
	 * taken since then */
	bool has_logged_poison;
	/* the log says that the store refuses the fetched messages, and no message has been taken
	 * since then */
	bool has_logged_refusal;

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
		return STATUS_POISON; /* the store refuses the message even as a dead letter */
	items[0].poison = "the store refuses it";
	return apply(intake, items, 1);
}

/* Counts applied and repeated messages. Poison is counted later, by report_poison(). */
static void count_taken(
	struct intake *intake, const struct intake_item *items, size_t count, size_t repeated)
{
	size_t poisoned = 0;

	for (size_t i = 0; i < count; i++)
		poisoned += items[i].poison != NULL;
	tally_add(&intake->repeated, (int64_t)repeated);
	tally_add(&intake->taken, (int64_t)(count - poisoned - repeated));
}

/* Applies items that follow the applied ones. If it fails, some of these items may be applied. */
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
	assert(items == intake->items + intake->applied);
	intake->applied += count;
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

/* Waits before the next attempt, longer each time. Returns early if the intake is stopped. */
static void pause_intake(struct intake *intake)
{
	int64_t longer_ns = 2 * intake->pause_ns;

	intake->pause_ns = longer_ns == 0             ? RETRY_NS
			   : longer_ns < RETRY_MAX_NS ? longer_ns
						      : RETRY_MAX_NS;
	bell_wait(&intake->bell, intake->pause_ns);
}

/* Logs once that the store refuses the messages, when the pause has reached RETRY_MAX_NS. Logs
 * nothing while the store is down, because the store's adapter logs an outage. */
static void report_refusal(struct intake *intake, size_t count, enum status status)
{
	struct store *store = intake->config.store;

	if (intake->has_logged_refusal || intake->pause_ns < RETRY_MAX_NS ||
		!store->ops->is_up(store))
		return;
	log_line(LOG_WARN, "intake",
		"%s: %zu fetched message%s cannot be applied, although the store is up (%s); "
		"trying again every second",
		intake->config.name, count, count == 1 ? "" : "s", status_code(status));
	intake->has_logged_refusal = true;
}

static enum status apply_rest(struct intake *intake, size_t count)
{
	return apply(intake, intake->items + intake->applied, count - intake->applied);
}

/* Returns whether the intake should keep the messages that the store refuses, and try again. */
static bool keeps_trying(const struct intake *intake)
{
	return intake->config.bus->counts_deliveries || intake->pause_ns < RETRY_MAX_NS;
}

/* Applies the first `count` items, and retries while the store refuses them and keeps_trying().
 * Returns OK, POISON if the store refuses an item even as a dead letter, or the status of the last
 * refusal. */
static enum status apply_all(struct intake *intake, size_t count)
{
	enum status status;

	intake->applied = 0;
	status = apply_rest(intake, count);
	while (status != STATUS_OK && status != STATUS_POISON) {
		report_refusal(intake, count - intake->applied, status);
		if (!keeps_trying(intake))
			break;
		pause_intake(intake);
		if (bell_is_stopping(&intake->bell))
			break;
		status = apply_rest(intake, count);
	}
	return status;
}

/* Puts the poison among the first `count` messages aside, then acknowledges these messages. Returns
 * false if one of the steps fails. */
static bool acknowledge(struct intake *intake, size_t count)
{
	if (intake->config.put_aside &&
		!intake->config.put_aside(intake->config.context, intake->items, count))
		return false;
	for (size_t i = 0; i < count; i++) {
		if (intake->items[i].poison)
			consumer_poison(intake->consumer, i, intake->items[i].poison);
	}
	return intake->consumer->ops->ack(intake->consumer, count) == STATUS_OK;
}

/* Logs and counts the messages that are poison, after all `count` messages were acknowledged. */
static void report_poison(struct intake *intake, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!intake->items[i].poison)
			continue;
		log_poison(intake, &intake->items[i]);
		tally_add(&intake->poisoned, 1);
	}
}

/* The items from `first` on could not be taken. Logs the first poison among them as the likely
 * reason. Logs nothing if it has logged such a message before and no messages have been taken since
 * then. */
static void report_stuck_poison(struct intake *intake, size_t first, size_t count)
{
	const struct intake_item *poison = NULL;

	for (size_t i = first; i < count && !poison; i++)
		poison = intake->items[i].poison ? &intake->items[i] : NULL;
	if (!poison || intake->has_logged_poison)
		return;
	log_line(LOG_WARN, "intake",
		"%s: message at %.*s cannot be used (%s) and could not be acknowledged as "
		"unusable yet; it is tried again, and later messages may have to wait",
		intake->config.name, (int)poison->delivery->position.len,
		poison->delivery->position.data, poison->poison);
	intake->has_logged_poison = true;
}

static void note_taken(struct intake *intake)
{
	if (intake->has_logged_refusal)
		log_line(LOG_INFO, "intake", "%s: messages are applied again", intake->config.name);
	intake->has_logged_refusal = false;
	intake->has_logged_poison = false;
	intake->pause_ns = 0;
}

/* Applies and acknowledges the first `count` messages of intake->deliveries. Returns false if the
 * bus has to deliver the unacknowledged messages again. */
static bool take(struct intake *intake, size_t count)
{
	enum status status;
	bool is_acknowledged;

	for (size_t i = 0; i < count; i++) {
		bool exhausted = intake->deliveries[i].is_exhausted;

		intake->items[i].delivery = &intake->deliveries[i];
		intake->items[i].poison = exhausted ? "delivery failed too many times" : NULL;
	}
	status = apply_all(intake, count);
	is_acknowledged = intake->applied == 0 || acknowledge(intake, intake->applied);
	if (is_acknowledged)
		report_poison(intake, intake->applied);
	if (is_acknowledged && status == STATUS_OK) {
		note_taken(intake);
		return true;
	}
	if ((!is_acknowledged || status == STATUS_POISON) && !bell_is_stopping(&intake->bell))
		report_stuck_poison(intake, is_acknowledged ? intake->applied : 0, count);
	return false;
}

/* Waits until the store is up, or until the intake is stopped. Called only before the first fetch.
 * Later the intake tries its own session instead, because a store also counts as down while only
 * other sessions fail. */
static void wait_for_store(struct intake *intake)
{
	struct store *store = intake->config.store;

	while (!bell_is_stopping(&intake->bell) && !store->ops->is_up(store))
		bell_wait(&intake->bell, RETRY_NS);
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
			pause_intake(intake);
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

struct slice intake_trace(const struct bus_delivery *delivery)
{
	for (size_t i = 0; i < delivery->header_count; i++) {
		if (slice_is_nocase(delivery->headers[i].name, "traceparent") &&
			trace_is_valid(delivery->headers[i].value))
			return delivery->headers[i].value;
	}
	return (struct slice){0};
}
