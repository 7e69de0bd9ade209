/*
 * One thread claims notifications, hands them to the notifier and records how they ended. The
 * notifier has slots, each with one notification on its way, so a receiver that hangs costs one
 * slot and not the queue behind it. Claims therefore end as results come in, not batch by batch as
 * in a relay.
 *
 * Invariants:
 *   1. A slot is used from the claim until its end is recorded. While the store does not answer,
 *      the result is kept and recorded later.
 *   2. A notification that is given up and its dead letter are committed together, and only if the
 *      claim is still ours.
 *   3. A notification is sent at least once; a crash after sending and before recording repeats it
 *      under the same id.
 */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/metrics.h"
#include "base/uuid.h"
#include "events/entitlement_event.h"
#include "flow/claims.h"
#include "services/entitlements/notifications.h"

#define RETRY_NS (100 * NS_PER_MS)
#define LOOK_NS (5 * NS_PER_S)

/* A claimed notification, which is on its way or whose end is not recorded yet. */
struct sending {
	struct arena arena;
	struct claim claim;
	bool is_used;
	bool is_known; /* the claim says how it ended */
};

struct notification_worker {
	struct notification_worker_config config;
	struct session *session;
	char owner[UUID_SIZE];
	struct dice dice;
	pthread_t thread;
	atomic_bool stopping;

	struct sending *sendings; /* one for each slot of the notifier */
	struct claim *claims;     /* of one transaction; room for all slots */
	struct notice_result *results;
	struct arena arena;    /* of one transaction */
	int64_t look_again_ns; /* when to claim again at the latest */
	int64_t counted_ns;    /* when notifications were last counted */
	atomic_bool woken;     /* there may be more to claim; any thread */

	struct tally pending;
	struct tally processing;
	struct tally failed;
	struct tally dead;
	struct tally oldest_us;
	struct tally sent;
	struct tally retried;
	struct tally given_up;
};

static int64_t now_ns(void)
{
	return clock_steady_ns(&clock_system);
}

static const struct notification_repository *repository_of(const struct notification_worker *worker)
{
	return worker->config.notifications->repository;
}

static size_t slots_of(const struct notification_worker *worker)
{
	return worker->config.notifier->slots;
}

/* ---- sending ----------------------------------------------------------------------------- */

static void conclude(struct notification_worker *worker, struct sending *sending,
	enum claim_try try, const char *error)
{
	struct slice kept = arena_copy(&sending->arena, slice_of(error));

	claim_conclude(&sending->claim, try, worker->config.attempts_max, &worker->dice, kept);
	sending->is_known = true;
}

static struct slice write_body(struct sending *sending, const struct entitlement_event *event)
{
	struct buffer body = buffer_make(&sending->arena, 512);

	buffer_char(&body, '{');
	buffer_member(&body, "notification_id", sending->claim.id);
	entitlement_event_write_json(&body, event);
	buffer_char(&body, '}');
	return buffer_slice(&body);
}

static void send_claimed(struct notification_worker *worker, size_t slot)
{
	struct notifier *notifier = worker->config.notifier;
	struct sending *sending = &worker->sendings[slot];
	struct entitlement_event event;
	struct notice notice = {
		.id = sending->claim.id, .trace = sending->claim.trace, .tag = slot};
	const char *wrong =
		entitlement_event_unpack(&sending->arena, sending->claim.payload, &event);

	if (wrong) {
		conclude(worker, sending, TRY_REFUSED, wrong);
		return;
	}
	notice.body = write_body(sending, &event);
	notifier->ops->send(notifier, &notice);
}

static size_t free_slot(const struct notification_worker *worker)
{
	size_t slot = 0;

	while (worker->sendings[slot].is_used)
		slot++;
	assert(slot < slots_of(worker));
	return slot;
}

/* Copies a claim out of the arena of its transaction and sends it. */
static void begin_sending(struct notification_worker *worker, const struct claim *claim)
{
	size_t slot = free_slot(worker);
	struct sending *sending = &worker->sendings[slot];

	arena_reset(&sending->arena);
	sending->claim = *claim;
	sending->claim.id = arena_copy(&sending->arena, claim->id);
	sending->claim.type = arena_copy(&sending->arena, claim->type);
	sending->claim.key = arena_copy(&sending->arena, claim->key);
	sending->claim.trace = arena_copy(&sending->arena, claim->trace);
	sending->claim.payload = arena_copy(&sending->arena, claim->payload);
	sending->is_used = true;
	sending->is_known = false;
	send_claimed(worker, slot);
}

static size_t used_slots(const struct notification_worker *worker)
{
	size_t used = 0;

	for (size_t i = 0; i < slots_of(worker); i++)
		used += worker->sendings[i].is_used;
	return used;
}

/* Claims a notification for every free slot. Returns false if the store does not answer. */
static bool claim_more(struct notification_worker *worker)
{
	struct session *session = worker->session;
	struct claim_terms terms = {
		.owner = slice_of(worker->owner),
		.lease_us = worker->config.lease_us,
		.max = slots_of(worker) - used_slots(worker),
	};
	size_t count = 0;
	enum status status;

	atomic_store(&worker->woken, false);
	arena_reset(&worker->arena);
	status = session->ops->begin(session, TRANSACTION_WAIT);
	if (status == STATUS_OK)
		status = repository_of(worker)->claims->ops->claim(repository_of(worker)->claims,
			session, &worker->arena, &terms, worker->claims, &count);
	if (status == STATUS_OK)
		status = session->ops->commit(session);
	if (status != STATUS_OK)
		return false;
	if (count > 0)
		FAILPOINT("notify.claimed");
	for (size_t i = 0; i < count; i++)
		begin_sending(worker, &worker->claims[i]);
	if (count == terms.max)
		atomic_store(&worker->woken, true); /* there may be more */
	worker->look_again_ns = now_ns() + worker->config.poll_us * NS_PER_US;
	return true;
}

/* ---- recording --------------------------------------------------------------------------- */

static size_t known_claims(struct notification_worker *worker)
{
	size_t count = 0;

	for (size_t i = 0; i < slots_of(worker); i++) {
		const struct sending *sending = &worker->sendings[i];

		if (sending->is_used && sending->is_known)
			worker->claims[count++] = sending->claim;
	}
	return count;
}

/* Stores the notifications that are given up as dead letters, in the same transaction. */
static enum status bury_failed(struct notification_worker *worker, size_t count)
{
	struct dead_letter *letters = arena_array(&worker->arena, struct dead_letter, count);
	size_t letter_count = 0;

	for (size_t i = 0; i < count; i++) {
		const struct claim *claim = &worker->claims[i];

		if (claim->end != CLAIM_FAILED || !claim->was_ours)
			continue;
		letters[letter_count++] = (struct dead_letter){
			.id = claim->id,
			.kind = slice_of("notification"),
			.type = claim->type,
			.key = claim->key,
			.error = claim->error,
			.payload = claim->payload,
			.attempt_count = claim->attempt_count + 1,
		};
	}
	if (letter_count == 0)
		return STATUS_OK;
	return repository_of(worker)->dead->ops->put(
		repository_of(worker)->dead, worker->session, letters, letter_count);
}

static void count_ends(struct notification_worker *worker, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct claim *claim = &worker->claims[i];

		if (!claim->was_ours)
			continue;
		if (claim->end == CLAIM_DONE)
			tally_add(&worker->sent, 1);
		else if (claim->end == CLAIM_RETRY)
			tally_add(&worker->retried, 1);
		else if (claim->end == CLAIM_FAILED)
			tally_add(&worker->given_up, 1);
	}
}

/* Frees the slots of the notifications whose end is recorded. */
static void forget_known(struct notification_worker *worker)
{
	for (size_t i = 0; i < slots_of(worker); i++) {
		struct sending *sending = &worker->sendings[i];

		if (sending->is_used && sending->is_known)
			sending->is_used = false;
	}
}

/* Records how notifications ended. Returns false, and keeps them, if the store does not answer. */
static bool record(struct notification_worker *worker)
{
	struct session *session = worker->session;
	size_t count = known_claims(worker);
	enum status status;

	if (count == 0)
		return true;
	FAILPOINT("notify.sent");
	arena_reset(&worker->arena);
	status = session->ops->begin(session, TRANSACTION_WAIT);
	if (status == STATUS_OK)
		status = repository_of(worker)->claims->ops->end(repository_of(worker)->claims,
			session, slice_of(worker->owner), worker->claims, count);
	if (status == STATUS_OK)
		status = bury_failed(worker, count);
	if (status == STATUS_OK)
		status = session->ops->commit(session);
	if (status != STATUS_OK)
		return false;
	FAILPOINT("notify.recorded");
	count_ends(worker, count);
	forget_known(worker);
	return true;
}

/* ---- the thread -------------------------------------------------------------------------- */

/* The receiver may ask for a longer pause than ours. */
static void retry_later(struct notification_worker *worker, struct sending *sending,
	const struct notice_result *result)
{
	conclude(worker, sending, TRY_FAILED, result->error);
	if (sending->claim.delay_us < result->retry_after_us)
		sending->claim.delay_us = result->retry_after_us;
}

static void take_results(struct notification_worker *worker, int64_t until_ns)
{
	struct notifier *notifier = worker->config.notifier;
	size_t count = notifier->ops->wait(notifier, worker->results, slots_of(worker), until_ns);

	for (size_t i = 0; i < count; i++) {
		const struct notice_result *result = &worker->results[i];
		struct sending *sending = &worker->sendings[result->tag];

		if (result->fate == NOTICE_SENT)
			conclude(worker, sending, TRY_WORKED, "");
		else if (result->fate == NOTICE_FAILED)
			retry_later(worker, sending, result);
		else
			conclude(worker, sending, TRY_REFUSED, result->error);
	}
}

/* Counts notifications for the metrics, every few seconds. */
static void look(struct notification_worker *worker)
{
	struct claim_stats stats;
	int64_t dead;

	if (worker->counted_ns != 0 && now_ns() - worker->counted_ns < LOOK_NS)
		return;
	worker->counted_ns = now_ns();
	if (repository_of(worker)->claims->ops->count(
		    repository_of(worker)->claims, worker->session, &stats) != STATUS_OK ||
		repository_of(worker)->dead->ops->depth(
			repository_of(worker)->dead, worker->session, &dead) != STATUS_OK)
		return;
	atomic_store(&worker->pending.value, stats.pending);
	atomic_store(&worker->processing.value, stats.busy);
	atomic_store(&worker->failed.value, stats.failed);
	atomic_store(&worker->oldest_us.value, stats.oldest_us);
	atomic_store(&worker->dead.value, dead);
}

static bool is_time_to_claim(const struct notification_worker *worker)
{
	return used_slots(worker) < slots_of(worker) &&
	       (atomic_load(&worker->woken) || now_ns() >= worker->look_again_ns);
}

/* One round: record, claim, wait for results. Pauses if the store does not answer. */
static void step(struct notification_worker *worker)
{
	bool answers = record(worker) && (!is_time_to_claim(worker) || claim_more(worker));

	if (answers)
		look(worker);
	else
		worker->look_again_ns = now_ns() + RETRY_NS;
	if (answers && is_time_to_claim(worker))
		take_results(worker, 0);
	else
		take_results(worker, worker->look_again_ns);
}

static void *worker_main(void *argument)
{
	struct notification_worker *worker = argument;

	pthread_setname_np(pthread_self(), "notify");
	while (!atomic_load(&worker->stopping))
		step(worker);
	return NULL;
}

/* New notifications were announced. Any thread. */
static void hear(void *context)
{
	struct notification_worker *worker = context;

	atomic_store(&worker->woken, true);
	worker->config.notifier->ops->wake(worker->config.notifier);
}

struct notification_worker *notification_worker_start(
	const struct notification_worker_config *config)
{
	struct notification_worker *worker = qp_calloc(1, sizeof(*worker));
	struct store *store = config->notifications->store;
	size_t slots = config->notifier->slots;
	int failed;

	worker->config = *config;
	worker->session = store->ops->open_session(store, SESSION_WRITE);
	worker->sendings = qp_calloc(slots, sizeof(*worker->sendings));
	worker->claims = qp_calloc(slots, sizeof(*worker->claims));
	worker->results = qp_calloc(slots, sizeof(*worker->results));
	for (size_t i = 0; i < slots; i++)
		arena_init(&worker->sendings[i].arena, 2048);
	arena_init(&worker->arena, 64 * 1024);
	uuid_random(worker->owner);
	dice_init(&worker->dice);
	store->ops->listen(store, NOTIFICATIONS_ANNOUNCEMENT, hear, worker);
	failed = pthread_create(&worker->thread, NULL, worker_main, worker);
	assert(!failed);
	return worker;
}

/* Returns notifications that are on their way; they may have arrived, and are sent again later. */
static void give_back(struct notification_worker *worker)
{
	for (size_t i = 0; i < slots_of(worker); i++) {
		struct sending *sending = &worker->sendings[i];

		if (sending->is_used && !sending->is_known) {
			sending->claim.end = CLAIM_RETURNED;
			sending->is_known = true;
		}
	}
	record(worker); /* if this fails, others take over when the leases run out */
}

void notification_worker_stop(void *context)
{
	struct notification_worker *worker = context;
	struct store *store = worker->config.notifications->store;

	store->ops->unlisten(store, worker);
	atomic_store(&worker->stopping, true);
	worker->config.notifier->ops->wake(worker->config.notifier);
	pthread_join(worker->thread, NULL);
	give_back(worker);
	session_close(worker->session);
	for (size_t i = 0; i < slots_of(worker); i++)
		arena_release(&worker->sendings[i].arena);
	arena_release(&worker->arena);
	free(worker->sendings);
	free(worker->claims);
	free(worker->results);
	free(worker);
}

static void write_states(const struct notification_worker *worker, struct buffer *page)
{
	const char *name = "quipu_notifications";

	metrics_family(page, name, "gauge",
		"Notifications that are not sent, by state, counted every few seconds.");
	metrics_sample(page, name, "state=\"PENDING\"", tally_read(&worker->pending));
	metrics_sample(page, name, "state=\"PROCESSING\"", tally_read(&worker->processing));
	metrics_sample(page, name, "state=\"FAILED\"", tally_read(&worker->failed));
}

static void write_one(
	struct buffer *page, const char *name, const char *type, const char *help, int64_t value)
{
	metrics_family(page, name, type, help);
	metrics_sample(page, name, "", value);
}

void notification_worker_collect(void *context, struct buffer *page)
{
	const struct notification_worker *worker = context;

	write_states(worker, page);
	write_one(page, "quipu_notifications_oldest_seconds", "gauge",
		"Age of the oldest notification that is not sent.",
		tally_read(&worker->oldest_us) / 1000000);
	write_one(page, "quipu_dead_letters", "gauge",
		"Notifications and messages that were given up and wait for an operator.",
		tally_read(&worker->dead));
	write_one(page, "quipu_notifications_sent_total", "counter", "Notifications sent.",
		tally_read(&worker->sent));
	write_one(page, "quipu_notifications_retried_total", "counter",
		"Attempts to send that failed and will be repeated.", tally_read(&worker->retried));
	write_one(page, "quipu_notifications_given_up_total", "counter",
		"Notifications that were refused or failed too often.",
		tally_read(&worker->given_up));
}
