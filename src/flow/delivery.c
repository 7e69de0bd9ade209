/*
 * One thread claims rows, passes them to the notifier and records the results. Each slot of the
 * notifier has one row on its way, so a receiver that hangs blocks one slot and not the whole
 * queue. Each claim ends when its own result comes in; in a relay, by contrast, the claims of a
 * batch end together.
 *
 * Invariants:
 *   1. A slot is used from the moment its row is claimed until the row's result is recorded. While
 *      the store does not answer, results are kept and recorded later.
 *   2. The transaction that gives a row up also stores the row's dead letter. A row is given up
 *      only if its claim is still ours.
 *   3. After UNREACHABLE_MAX consecutive attempts without a connection, the circuit breaker opens.
 *      Until the receiver can be reached again, rows are tried one at a time, and attempts without
 *      a connection are not counted. So only the first few attempts of an outage count.
 *   4. A row is sent at least once: after a crash between sending and recording, it is sent again
 *      under the same id.
 */
#include "flow/delivery.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/uuid.h"
#include "flow/claims.h"

#define RETRY_NS (100 * NS_PER_MS)
#define LOOK_NS (5 * NS_PER_S)

/* The circuit breaker opens after this many consecutive attempts without a connection. */
#define UNREACHABLE_MAX 5

/* The pause between two rows while the circuit breaker is open. */
#define PROBE_NS (1 * NS_PER_S)

/* A claimed row that is on its way, or whose result is not recorded yet. */
struct sending {
	struct arena arena;
	struct claim claim;
	bool is_used;
	bool is_known; /* the attempt has ended, and `claim` holds its result */
};

struct delivery {
	struct delivery_config config;
	struct session *session;
	char owner[UUID_SIZE];
	struct dice dice;
	pthread_t thread;
	atomic_bool stopping;

	struct sending *sendings; /* one for each slot of the notifier */
	/* the claims of one transaction, at most 2 * slots: ended claims, then new claims */
	struct claim *claims;
	struct notice_result *results;
	struct arena arena; /* memory for one transaction */
	/* monotonic time at which to claim again even if nothing wakes the thread */
	int64_t look_again_ns;
	int64_t counted_ns; /* when rows were last counted; 0 if never */
	atomic_bool woken;  /* there may be more rows to claim; set by any thread */

	unsigned unreachable; /* how many consecutive attempts could not connect */
	bool is_open;         /* the circuit breaker is open: rows are tried one at a time */

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

static size_t slots_of(const struct delivery *delivery)
{
	return delivery->config.notifier->slots;
}

/* ---- sending ----------------------------------------------------------------------------- */

static void conclude(
	struct delivery *delivery, struct sending *sending, enum claim_try try, const char *error)
{
	struct slice kept = arena_copy(&sending->arena, slice_of(error));

	claim_conclude(&sending->claim, try, delivery->config.attempts_max, &delivery->dice, kept);
	sending->is_known = true;
}

static void send_claimed(struct delivery *delivery, size_t slot)
{
	struct notifier *notifier = delivery->config.notifier;
	struct sending *sending = &delivery->sendings[slot];
	struct notice notice = {
		.id = sending->claim.id, .trace = sending->claim.trace, .tag = slot};
	const char *wrong =
		delivery->config.write_body(&sending->arena, &sending->claim, &notice.body);

	if (wrong)
		conclude(delivery, sending, TRY_REFUSED, wrong);
	else
		notifier->ops->send(notifier, &notice);
}

static size_t free_slot(const struct delivery *delivery)
{
	size_t slot = 0;

	while (delivery->sendings[slot].is_used)
		slot++;
	assert(slot < slots_of(delivery));
	return slot;
}

/* Copies a claim out of its transaction's arena and sends its row. */
static void begin_sending(struct delivery *delivery, const struct claim *claim)
{
	size_t slot = free_slot(delivery);
	struct sending *sending = &delivery->sendings[slot];

	arena_reset(&sending->arena);
	sending->claim = *claim;
	sending->claim.id = arena_copy(&sending->arena, claim->id);
	sending->claim.type = arena_copy(&sending->arena, claim->type);
	sending->claim.key = arena_copy(&sending->arena, claim->key);
	sending->claim.trace = arena_copy(&sending->arena, claim->trace);
	sending->claim.payload = arena_copy(&sending->arena, claim->payload);
	sending->is_used = true;
	sending->is_known = false;
	send_claimed(delivery, slot);
}

/* Returns how many rows are on their way. */
static size_t busy_slots(const struct delivery *delivery)
{
	size_t busy = 0;

	for (size_t i = 0; i < slots_of(delivery); i++)
		busy += delivery->sendings[i].is_used && !delivery->sendings[i].is_known;
	return busy;
}

/* ---- recording results ------------------------------------------------------------------- */

static size_t known_claims(struct delivery *delivery)
{
	size_t count = 0;

	for (size_t i = 0; i < slots_of(delivery); i++) {
		const struct sending *sending = &delivery->sendings[i];

		if (sending->is_used && sending->is_known)
			delivery->claims[count++] = sending->claim;
	}
	return count;
}

/* Stores a dead letter for each row that was given up. Must be called in the transaction that has
 * ended the first `count` claims of delivery->claims. */
static enum status bury_failed(struct delivery *delivery, size_t count)
{
	struct dead_letter *letters = arena_array(&delivery->arena, struct dead_letter, count);
	size_t letter_count = 0;

	for (size_t i = 0; i < count; i++) {
		const struct claim *claim = &delivery->claims[i];

		if (claim->end != CLAIM_FAILED || !claim->was_ours)
			continue;
		letters[letter_count++] = (struct dead_letter){
			.id = claim->id,
			.kind = slice_of(delivery->config.letter_kind),
			.type = claim->type,
			.key = claim->key,
			.error = claim->error,
			.payload = claim->payload,
			.attempt_count = claim->attempt_count + 1,
		};
	}
	if (letter_count == 0)
		return STATUS_OK;
	return delivery->config.dead->ops->put(
		delivery->config.dead, delivery->session, letters, letter_count);
}

static void count_ends(struct delivery *delivery, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct claim *claim = &delivery->claims[i];

		if (!claim->was_ours)
			continue;
		if (claim->end == CLAIM_DONE)
			tally_add(&delivery->sent, 1);
		else if (claim->end == CLAIM_RETRY)
			tally_add(&delivery->retried, 1);
		else if (claim->end == CLAIM_FAILED)
			tally_add(&delivery->given_up, 1);
	}
}

/* Frees the slots of the rows whose results are now recorded. */
static void forget_known(struct delivery *delivery)
{
	for (size_t i = 0; i < slots_of(delivery); i++) {
		struct sending *sending = &delivery->sendings[i];

		if (sending->is_used && sending->is_known)
			sending->is_used = false;
	}
}

/* ---- transactions ------------------------------------------------------------------------ */

/* Records how the first `known` claims of delivery->claims ended. Must be called in a
 * transaction. */
static enum status end_known(struct delivery *delivery, size_t known)
{
	enum status status;

	if (known == 0)
		return STATUS_OK;
	status = delivery->config.claims->ops->end(delivery->config.claims, delivery->session,
		slice_of(delivery->owner), delivery->claims, known);
	return status == STATUS_OK ? bury_failed(delivery, known) : status;
}

/* Claims up to `max` rows and appends the new claims to the first `known` claims of
 * delivery->claims. Sets `*count` to the number of new claims. Must be called in a transaction. */
static enum status claim_more(struct delivery *delivery, size_t known, size_t max, size_t *count)
{
	const struct claim_terms terms = {
		.owner = slice_of(delivery->owner),
		.lease_us = delivery->config.lease_us,
		.max = max,
	};

	*count = 0;
	if (max == 0)
		return STATUS_OK;
	atomic_store(&delivery->woken, false);
	return delivery->config.claims->ops->claim(delivery->config.claims, delivery->session,
		&delivery->arena, &terms, delivery->claims + known, count);
}

static void finish_known(struct delivery *delivery, size_t known)
{
	if (known == 0)
		return;
	FAILPOINT("notify.recorded");
	count_ends(delivery, known);
	claims_log_failed(delivery->config.letter_kind, delivery->claims, known);
	forget_known(delivery);
}

static void send_all(struct delivery *delivery, const struct claim *claims, size_t count)
{
	if (count > 0)
		FAILPOINT("notify.claimed");
	for (size_t i = 0; i < count; i++)
		begin_sending(delivery, &claims[i]);
}

/*
 * Records the results that have come in and claims up to `max` new rows, both in one transaction to
 * save a commit. If the store does not answer, keeps the results and returns false.
 */
static bool exchange(struct delivery *delivery, size_t max)
{
	struct session *session = delivery->session;
	size_t known = known_claims(delivery), count = 0;
	enum status status;

	if (known == 0 && max == 0)
		return true;
	if (known > 0)
		FAILPOINT("notify.sent");
	arena_reset(&delivery->arena);
	status = session->ops->begin(session, TRANSACTION_WAIT);
	if (status == STATUS_OK)
		status = end_known(delivery, known);
	if (status == STATUS_OK)
		status = claim_more(delivery, known, max, &count);
	if (status == STATUS_OK)
		status = session->ops->commit(session);
	if (status != STATUS_OK)
		return false;
	finish_known(delivery, known);
	send_all(delivery, delivery->claims + known, count);
	if (max == 0)
		return true;
	if (count == max && !delivery->is_open)
		atomic_store(&delivery->woken, true); /* there may be more rows */
	delivery->look_again_ns =
		now_ns() + (delivery->is_open ? PROBE_NS : delivery->config.poll_us * NS_PER_US);
	return true;
}

/* ---- the delivery's thread --------------------------------------------------------------- */

/* Notes whether the receiver can be reached, and opens or closes the circuit breaker. */
static void note_reach(struct delivery *delivery, const struct notice_result *result)
{
	delivery->unreachable = result->is_unreachable ? delivery->unreachable + 1 : 0;
	if (!delivery->is_open && delivery->unreachable == UNREACHABLE_MAX) {
		delivery->is_open = true;
		log_line(LOG_WARN, delivery->config.name,
			"the receiver cannot be reached: %s; until it can be reached again, one "
			"row per second is tried, and attempts without a connection are not "
			"counted",
			result->error);
	} else if (delivery->is_open && delivery->unreachable == 0) {
		delivery->is_open = false;
		delivery->look_again_ns = 0;
		log_line(LOG_INFO, delivery->config.name, "the receiver can be reached again");
	}
}

/* Concludes a failed attempt. If the row has attempts left, it is retried after the pause of
 * claim_backoff_us() or the pause that the receiver requested, whichever is longer. But if the
 * circuit breaker is open, even because of this attempt, an attempt without a connection does not
 * count and its row is due at once. */
static void retry_later(
	struct delivery *delivery, struct sending *sending, const struct notice_result *result)
{
	bool is_made = !result->is_unreachable || !delivery->is_open;

	conclude(delivery, sending, is_made ? TRY_FAILED : TRY_NOT_MADE, result->error);
	if (sending->claim.delay_us < result->retry_after_us)
		sending->claim.delay_us = result->retry_after_us;
}

static void take_results(struct delivery *delivery, int64_t until_ns)
{
	struct notifier *notifier = delivery->config.notifier;
	size_t count =
		notifier->ops->wait(notifier, delivery->results, slots_of(delivery), until_ns);

	for (size_t i = 0; i < count; i++) {
		const struct notice_result *result = &delivery->results[i];
		struct sending *sending = &delivery->sendings[result->tag];

		note_reach(delivery, result);
		if (result->fate == NOTICE_SENT)
			conclude(delivery, sending, TRY_WORKED, "");
		else if (result->fate == NOTICE_FAILED)
			retry_later(delivery, sending, result);
		else
			conclude(delivery, sending, TRY_REFUSED, result->error);
	}
}

/* Counts rows for the metrics, every few seconds. */
static void look(struct delivery *delivery)
{
	struct claim_stats stats;
	int64_t dead;

	if (delivery->counted_ns != 0 && now_ns() - delivery->counted_ns < LOOK_NS)
		return;
	delivery->counted_ns = now_ns();
	if (delivery->config.claims->ops->count(
		    delivery->config.claims, delivery->session, &stats) != STATUS_OK ||
		delivery->config.dead->ops->depth(
			delivery->config.dead, delivery->session, slice_of(""), &dead) != STATUS_OK)
		return;
	atomic_store(&delivery->pending.value, stats.pending);
	atomic_store(&delivery->processing.value, stats.busy);
	atomic_store(&delivery->failed.value, stats.failed);
	atomic_store(&delivery->oldest_us.value, stats.oldest_us);
	atomic_store(&delivery->dead.value, dead);
}

/* Returns how many rows to claim now. While the circuit breaker is closed, returns 0 until it is
 * time to claim or `woken` is set, and then the number of slots that are free or whose result is
 * about to be recorded. While the circuit breaker is open, returns 1 if it is time to claim and no
 * slot is busy, otherwise 0. */
static size_t wanted_rows(const struct delivery *delivery)
{
	size_t busy = busy_slots(delivery);
	bool is_due = now_ns() >= delivery->look_again_ns;

	if (delivery->is_open)
		return is_due && busy == 0 ? 1 : 0;
	return is_due || atomic_load(&delivery->woken) ? slots_of(delivery) - busy : 0;
}

/* Returns whether a result has to arrive before the next row can be claimed. */
static bool is_full(const struct delivery *delivery)
{
	return busy_slots(delivery) >= (delivery->is_open ? 1 : slots_of(delivery));
}

/* Records results and claims rows, then waits for new results: usually until `look_again_ns`, which
 * is RETRY_NS from now if the store does not answer. If a result has to arrive before the next row
 * can be claimed, ignores `look_again_ns` and waits up to LOOK_NS. If more rows can be claimed at
 * once, does not wait. */
static void step(struct delivery *delivery)
{
	bool answers = exchange(delivery, wanted_rows(delivery));

	if (answers)
		look(delivery);
	else
		delivery->look_again_ns = now_ns() + RETRY_NS;
	if (answers && wanted_rows(delivery) > 0)
		take_results(delivery, 0);
	else if (answers && is_full(delivery))
		take_results(delivery, now_ns() + LOOK_NS);
	else
		take_results(delivery, delivery->look_again_ns);
}

static void *delivery_main(void *argument)
{
	struct delivery *delivery = argument;

	pthread_setname_np(pthread_self(), delivery->config.name);
	while (!atomic_load(&delivery->stopping))
		step(delivery);
	return NULL;
}

/* Called on any thread when new rows are announced. */
static void hear(void *context)
{
	struct delivery *delivery = context;

	atomic_store(&delivery->woken, true);
	delivery->config.notifier->ops->wake(delivery->config.notifier);
}

struct delivery *delivery_start(const struct delivery_config *config)
{
	struct delivery *delivery = qp_calloc(1, sizeof(*delivery));
	struct store *store = config->store;
	size_t slots = config->notifier->slots;
	int failed;

	delivery->config = *config;
	delivery->session = store->ops->open_session(store, SESSION_WRITE);
	delivery->sendings = qp_calloc(slots, sizeof(*delivery->sendings));
	delivery->claims = qp_calloc(2 * slots, sizeof(*delivery->claims));
	delivery->results = qp_calloc(slots, sizeof(*delivery->results));
	for (size_t i = 0; i < slots; i++)
		arena_init(&delivery->sendings[i].arena, 2048);
	arena_init(&delivery->arena, 64 * 1024);
	uuid_random(delivery->owner);
	dice_init(&delivery->dice);
	store->ops->listen(store, config->announcement, hear, delivery);
	failed = pthread_create(&delivery->thread, NULL, delivery_main, delivery);
	assert(!failed);
	return delivery;
}

/* Ends the claims of the rows that are on their way. These rows are sent again later, although some
 * of them may have arrived. */
static void give_back(struct delivery *delivery)
{
	for (size_t i = 0; i < slots_of(delivery); i++) {
		struct sending *sending = &delivery->sendings[i];

		if (sending->is_used && !sending->is_known) {
			sending->claim.end = CLAIM_RETURNED;
			sending->is_known = true;
		}
	}
	exchange(delivery, 0); /* if this fails, the rows can be claimed when their leases end */
}

void delivery_stop(void *context)
{
	struct delivery *delivery = context;
	struct store *store = delivery->config.store;

	store->ops->unlisten(store, delivery);
	atomic_store(&delivery->stopping, true);
	delivery->config.notifier->ops->wake(delivery->config.notifier);
	pthread_join(delivery->thread, NULL);
	give_back(delivery);
	session_close(delivery->session);
	for (size_t i = 0; i < slots_of(delivery); i++)
		arena_release(&delivery->sendings[i].arena);
	arena_release(&delivery->arena);
	free(delivery->sendings);
	free(delivery->claims);
	free(delivery->results);
	free(delivery);
}

struct delivery_counts delivery_counts(const struct delivery *delivery)
{
	return (struct delivery_counts){
		.pending = tally_read(&delivery->pending),
		.busy = tally_read(&delivery->processing),
		.failed = tally_read(&delivery->failed),
		.dead = tally_read(&delivery->dead),
		.oldest_us = tally_read(&delivery->oldest_us),
		.sent = tally_read(&delivery->sent),
		.retried = tally_read(&delivery->retried),
		.given_up = tally_read(&delivery->given_up),
	};
}
