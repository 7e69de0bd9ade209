/*
 * Each worker of a relay repeats one cycle: publish the current batch, then end its claims and
 * claim the next batch. Ending and claiming share one transaction, which saves a transaction per
 * batch. Rows are claimed under a lease and not locked while they are published: a transaction that
 * waited for a broker would occupy a connection and hold up VACUUM.
 *
 * Invariants:
 *   1. A worker publishes only rows whose lease certainly outlasts the publish: once a third of the
 *      lease has passed, it first renews the lease and drops the rows that another relay has
 *      claimed.
 *   2. The end of a claim is recorded only if the row is still ours (owner and epoch), so a stalled
 *      worker cannot undo what its successor did.
 *   3. An attempt that fails while the bus is away, or within RETURN_NS after that, is not counted.
 *      Its row is due again at once or after the pause of TRY_AWAY. A row is given up only if it
 *      cannot be read, or if a bus that is up has refused it too many times.
 *   4. The first worker polls, probes the bus and counts rows. The other workers only help while
 *      there is more to publish.
 */
#include "flow/relay.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/metrics.h"
#include "base/uuid.h"
#include "flow/claims.h"
#include "runtime/bell.h"

/* How long a publish may take. If the bus comes back during a publish but does not confirm the
 * messages, the next attempt begins after this time and the pause of TRY_AWAY: together less than
 * 5 s. */
#define PUBLISH_NS (3 * NS_PER_S)

/* How long after an outage the bus may still refuse messages because it is not complete yet: for
 * example, a queue is not declared or a stream has no leader. Such a refusal counts as part of the
 * outage. */
#define RETURN_NS (5 * NS_PER_S)

#define RETRY_NS (100 * NS_PER_MS)
#define LOOK_NS (5 * NS_PER_S)
#define HELPER_WAIT_NS (3600 * NS_PER_S)
#define ARENA_SIZE (256 * 1024)

struct relay;

/* One thread of a relay. Only this thread uses the members, except for `bell` and `is_idle`. */
struct relay_worker {
	struct relay *relay;
	const struct relay_config *config; /* the config of the relay */
	/* the worker to wake if there is more than one batch; NULL in the last worker */
	struct relay_worker *next;
	struct session *session;
	struct producer *producer;
	char owner[UUID_SIZE];
	struct dice dice;
	struct bell bell;
	atomic_bool is_idle;
	pthread_t thread;

	/* The current batch is allocated from arenas[0], the next batch from arenas[1]. */
	struct arena arenas[2];
	struct claim *claims;
	struct claim *next_claims;
	size_t count;
	bool is_tried; /* publish() was called for the current batch */
	/* monotonic time just before the current batch was claimed or its lease was renewed; the
	 * lease lasts at least lease_us from then */
	int64_t claimed_ns;
	/* the bus accepted nothing, so the claims of the batch are given back; cleared by the next
	 * pause */
	bool was_away;
	/* how many rows to claim next; adapted to the number that the bus can confirm before
	 * publish() times out */
	size_t size;
	int64_t probed_ns; /* when a row was last claimed as a probe */
	/* monotonic time at which all rows that the bus did not confirm are due again; 0 if there
	 * are no such rows */
	int64_t due_ns;
	struct bus_message *messages;
	struct claim **published; /* published[i] is the claim of messages[i] */
};

struct relay {
	struct relay_config config;
	struct relay_worker *workers;

	int64_t looked_ns; /* when the first worker last counted the outbox; 0 if never */
	/* when a worker last saw that the bus was away; 0 if no worker has seen that */
	_Atomic int64_t away_ns;
	struct tally pending;
	struct tally failed_rows;
	struct tally oldest_us;
	struct tally confirmed;
	struct tally retried;
	struct tally given_up;
	struct tally lost;
};

static int64_t now_ns(void)
{
	return clock_steady_ns(&clock_system);
}

static int64_t lease_ns(const struct relay_worker *worker)
{
	return worker->config->lease_us * NS_PER_US;
}

static struct claim_terms terms_of(const struct relay_worker *worker, size_t max)
{
	return (struct claim_terms){
		.owner = slice_of(worker->owner),
		.lease_us = worker->config->lease_us,
		.max = max,
	};
}

static bool is_first(const struct relay_worker *worker)
{
	return worker == worker->relay->workers;
}

/* Returns whether the bus is up. If it is not, notes the current time in `away_ns`. */
static bool bus_is_up(struct relay_worker *worker)
{
	bool is_up = worker->config->bus->ops->is_up(worker->config->bus);

	if (!is_up)
		atomic_store(&worker->relay->away_ns, now_ns());
	return is_up;
}

static bool bus_has_just_returned(const struct relay_worker *worker)
{
	int64_t away_ns = atomic_load(&worker->relay->away_ns);

	return away_ns != 0 && now_ns() - away_ns < RETURN_NS;
}

/*
 * Returns how many rows to claim now. While the bus is away, one row per poll is enough to notice
 * that the bus is back. After a batch was returned, the worker pauses before it claims again, even
 * if the bus seems to be up: otherwise the worker would claim and return rows without end while the
 * bus repeatedly connects and fails.
 */
static size_t claim_limit(struct relay_worker *worker)
{
	if (bell_is_stopping(&worker->bell) || worker->was_away)
		return 0;
	if (bus_is_up(worker))
		return worker->size;
	if (!is_first(worker) || now_ns() - worker->probed_ns < worker->config->poll_us * NS_PER_US)
		return 0;
	worker->probed_ns = now_ns();
	return 1;
}

/* ---- claiming rows and ending claims ----------------------------------------------------- */

static void count_ends(struct relay_worker *worker, const struct claim *claims, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!claims[i].was_ours)
			tally_add(&worker->relay->lost, 1);
		else if (claims[i].end == CLAIM_DONE)
			tally_add(&worker->relay->confirmed, 1);
		else if (claims[i].end == CLAIM_RETRY || claims[i].end == CLAIM_DELAYED)
			tally_add(&worker->relay->retried, 1);
		else if (claims[i].end == CLAIM_FAILED)
			tally_add(&worker->relay->given_up, 1);
	}
}

/* In one transaction, ends the claims of the current batch, if there is one, and claims up to `max`
 * rows for the next batch. */
static enum status exchange(struct relay_worker *worker, size_t max, size_t *claimed)
{
	const struct claim_repository *claims = worker->config->outbox->claims;
	struct session *session = worker->session;
	struct claim_terms terms = terms_of(worker, max);
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);

	*claimed = 0;
	arena_reset(&worker->arenas[1]);
	if (status == STATUS_OK && worker->count > 0)
		status = claims->ops->end(
			claims, session, terms.owner, worker->claims, worker->count);
	if (status == STATUS_OK && max > 0)
		status = claims->ops->claim(
			claims, session, &worker->arenas[1], &terms, worker->next_claims, claimed);
	if (status == STATUS_OK)
		status = session->ops->commit(session);
	return status;
}

/* Notes when the rows that the bus did not confirm are due again. The store counts their delays
 * from an earlier moment, so none of them is due later than noted here. */
static void note_delayed(struct relay_worker *worker)
{
	for (size_t i = 0; i < worker->count; i++) {
		int64_t due_ns = now_ns() + worker->claims[i].delay_us * NS_PER_US;

		if (worker->claims[i].end == CLAIM_DELAYED && worker->due_ns < due_ns)
			worker->due_ns = due_ns;
	}
}

/* Makes the next batch the current batch. */
static void advance(struct relay_worker *worker, size_t count, int64_t claimed_ns)
{
	struct claim *claims = worker->claims;
	struct arena arena = worker->arenas[0];

	count_ends(worker, worker->claims, worker->count);
	note_delayed(worker);
	claims_log_failed(worker->config->kind, worker->claims, worker->count);
	worker->claims = worker->next_claims;
	worker->next_claims = claims;
	worker->arenas[0] = worker->arenas[1];
	worker->arenas[1] = arena;
	worker->count = count;
	worker->is_tried = false;
	worker->claimed_ns = claimed_ns;
}

/*
 * Ends the claims of the current batch and claims the next batch. Returns false if the store does
 * not answer. The current batch is then kept until its lease is over, and dropped after that,
 * because other relays may claim its rows.
 */
static bool end_and_claim(struct relay_worker *worker)
{
	int64_t started_ns = now_ns();
	size_t limit = claim_limit(worker);
	size_t claimed;
	enum status status;

	if (worker->count == 0 && limit == 0)
		return true;
	status = exchange(worker, limit, &claimed);
	if (status == STATUS_OK) {
		advance(worker, claimed, started_ns);
		if (worker->next && claimed > 0 && claimed == limit)
			bell_ring(&worker->next->bell); /* there may be more rows */
		return true;
	}
	if (worker->count > 0 && now_ns() - worker->claimed_ns > lease_ns(worker))
		worker->count = 0;
	return false;
}

/* ---- publishing -------------------------------------------------------------------------- */

static void conclude(
	struct relay_worker *worker, struct claim *claim, enum claim_try try, const char *error)
{
	claim_conclude(claim, try, worker->config->attempts_max, &worker->dice, slice_of(error));
}

/* Builds the messages of the batch and returns how many there are. Gives up rows that cannot be
 * read. */
static size_t build_messages(struct relay_worker *worker)
{
	size_t count = 0;

	for (size_t i = 0; i < worker->count; i++) {
		struct claim *claim = &worker->claims[i];
		struct bus_message *message = &worker->messages[count];

		*message = (struct bus_message){.id = claim->id};
		if (worker->config->address(&worker->arenas[0], claim, message)) {
			worker->published[count++] = claim;
			continue;
		}
		conclude(worker, claim, TRY_REFUSED, "the row cannot be read as an event");
	}
	return count;
}

static void conclude_message(struct relay_worker *worker, size_t i, bool is_up)
{
	const struct bus_message *message = &worker->messages[i];
	struct claim *claim = worker->published[i];

	if (message->fate == BUS_CONFIRMED)
		conclude(worker, claim, TRY_WORKED, "");
	else if (message->is_untried)
		conclude(worker, claim, TRY_NOT_MADE, "");
	else if (message->fate == BUS_UNKNOWN)
		conclude(worker, claim, TRY_AWAY, "the bus did not confirm it in time");
	else if (!is_up)
		conclude(worker, claim, TRY_AWAY, "the bus went away");
	else if (bus_has_just_returned(worker))
		conclude(worker, claim, TRY_AWAY, "the bus refused it just after an outage");
	else
		conclude(worker, claim, TRY_FAILED, "the bus refused it");
}

/*
 * Adapts the size of batches. If the bus confirms only part of a batch in time, the next batch is
 * smaller. With the same size, part of every batch would be late, and late messages are published
 * again. Batches grow again when no message is late. If the bus accepted nothing, the worker pauses
 * before it claims again.
 */
static void adapt(struct relay_worker *worker, size_t count)
{
	size_t confirmed = 0, untried = 0, unknown = 0;

	for (size_t i = 0; i < count; i++) {
		confirmed += worker->messages[i].fate == BUS_CONFIRMED;
		unknown += worker->messages[i].fate == BUS_UNKNOWN;
		untried += worker->messages[i].is_untried;
	}
	if (unknown + untried > 0)
		worker->size = worker->size > 1 ? worker->size / 2 : 1;
	else if (worker->size < worker->config->batch)
		worker->size = worker->size * 2 < worker->config->batch ? worker->size * 2
									: worker->config->batch;
	worker->was_away = confirmed == 0 && untried > 0;
}

/*
 * After an attempt to publish rows, decides how their claims end. If the bus is known to be away,
 * the attempt is not counted: an outage must not use up the attempts, and the growing pause between
 * attempts must not hold a row back for up to 90 s after the bus is back. claim_limit() keeps the
 * worker from claiming the rows again at once.
 */
static void conclude_published(struct relay_worker *worker, size_t count, enum status status)
{
	bool is_up = bus_is_up(worker);

	if (status == STATUS_OK) {
		for (size_t i = 0; i < count; i++)
			conclude_message(worker, i, is_up);
		adapt(worker, count);
		return;
	}
	worker->was_away = !is_up;
	for (size_t i = 0; i < count; i++) {
		if (is_up)
			conclude(worker, worker->published[i], TRY_AWAY,
				"the bus cannot be reached");
		else
			conclude(worker, worker->published[i], TRY_NOT_MADE, "");
	}
}

static enum status renew(struct relay_worker *worker)
{
	const struct claim_repository *claims = worker->config->outbox->claims;
	struct session *session = worker->session;
	struct claim_terms terms = terms_of(worker, worker->count);
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);

	if (status == STATUS_OK)
		status = claims->ops->renew(claims, session, &terms, worker->claims, worker->count);
	if (status == STATUS_OK)
		status = session->ops->commit(session);
	return status;
}

/*
 * Once a third of the lease has passed, renews the lease and drops the rows that another relay has
 * claimed meanwhile. Drops all rows if the renewal fails.
 */
static void drop_lost(struct relay_worker *worker)
{
	int64_t started_ns = now_ns();
	bool known;
	size_t kept = 0;

	if (started_ns - worker->claimed_ns < lease_ns(worker) / 3)
		return;
	known = renew(worker) == STATUS_OK;
	for (size_t i = 0; i < worker->count; i++) {
		if (known && worker->claims[i].was_ours)
			worker->claims[kept++] = worker->claims[i];
		else
			tally_add(&worker->relay->lost, 1);
	}
	worker->count = kept;
	worker->claimed_ns = started_ns;
}

static void publish(struct relay_worker *worker)
{
	int64_t within_ns = lease_ns(worker) / 3;
	size_t count;
	enum status status;

	FAILPOINT("relay.claimed");
	worker->is_tried = true;
	drop_lost(worker);
	count = build_messages(worker);
	if (count == 0)
		return;
	if (within_ns > PUBLISH_NS)
		within_ns = PUBLISH_NS;
	status = worker->producer->ops->publish(
		worker->producer, worker->messages, count, now_ns() + within_ns);
	conclude_published(worker, count, status);
	FAILPOINT("relay.published");
}

/* ---- the thread of a worker -------------------------------------------------------------- */

/* Counts the rows of the outbox for the metrics, every few seconds. */
static void look(struct relay_worker *worker)
{
	struct claim_stats stats;

	if (!is_first(worker))
		return;
	if (worker->relay->looked_ns != 0 && now_ns() - worker->relay->looked_ns < LOOK_NS)
		return;
	worker->relay->looked_ns = now_ns();
	if (worker->config->outbox->claims->ops->count(
		    worker->config->outbox->claims, worker->session, &stats) != STATUS_OK)
		return;
	atomic_store(&worker->relay->pending.value, stats.pending + stats.busy);
	atomic_store(&worker->relay->failed_rows.value, stats.failed);
	atomic_store(&worker->relay->oldest_us.value, stats.oldest_us);
}

/* Waits for new rows, at most until the next poll or until the rows that the bus did not confirm
 * are due again. */
static void idle(struct relay_worker *worker)
{
	int64_t wait_ns = is_first(worker) ? worker->config->poll_us * NS_PER_US : HELPER_WAIT_NS;
	int64_t due_in_ns = worker->due_ns - now_ns();

	if (worker->due_ns != 0 && due_in_ns < wait_ns)
		wait_ns = due_in_ns > 0 ? due_in_ns : 0;
	atomic_store(&worker->is_idle, true);
	bell_wait(&worker->bell, wait_ns);
	atomic_store(&worker->is_idle, false);
	worker->was_away = false;
	if (worker->due_ns <= now_ns())
		worker->due_ns = 0;
}

static void *relay_main(void *argument)
{
	struct relay_worker *worker = argument;

	pthread_setname_np(pthread_self(), "relay");
	while (!bell_is_stopping(&worker->bell) || worker->count > 0) {
		if (worker->count > 0 && !worker->is_tried)
			publish(worker);
		if (!end_and_claim(worker)) {
			if (bell_is_stopping(&worker->bell))
				break; /* other relays claim the rows when the leases end */
			bell_wait(&worker->bell, RETRY_NS);
			continue;
		}
		FAILPOINT("relay.ended");
		look(worker);
		if (worker->count == 0)
			idle(worker);
	}
	return NULL;
}

/* Called on any thread when new rows are announced. Wakes an idle worker, or the last worker if
 * none is idle. */
static void hear(void *context)
{
	struct relay *relay = context;
	size_t i = 0;

	while (i + 1 < relay->config.workers && !atomic_load(&relay->workers[i].is_idle))
		i++;
	bell_ring(&relay->workers[i].bell);
}

static void start_worker(struct relay_worker *worker)
{
	const struct relay_config *config = worker->config;
	int failed;

	worker->session = config->store->ops->open_session(config->store, SESSION_WRITE);
	worker->producer = config->bus->ops->open_producer(config->bus);
	worker->claims = qp_calloc(config->batch, sizeof(*worker->claims));
	worker->next_claims = qp_calloc(config->batch, sizeof(*worker->next_claims));
	worker->messages = qp_calloc(config->batch, sizeof(*worker->messages));
	worker->published = qp_calloc(config->batch, sizeof(struct claim *));
	arena_init(&worker->arenas[0], ARENA_SIZE);
	arena_init(&worker->arenas[1], ARENA_SIZE);
	worker->size = config->batch;
	uuid_random(worker->owner);
	dice_init(&worker->dice);
	/* gives the bus one poll interval to connect before the first probe */
	worker->probed_ns = now_ns();
	failed = pthread_create(&worker->thread, NULL, relay_main, worker);
	assert(!failed);
}

struct relay *relay_start(const struct relay_config *config)
{
	struct relay *relay = qp_calloc(1, sizeof(*relay));
	size_t count = config->workers;

	relay->config = *config;
	relay->workers = qp_calloc(count, sizeof(*relay->workers));
	for (size_t i = 0; i < count; i++) {
		relay->workers[i].relay = relay;
		relay->workers[i].config = &relay->config;
		relay->workers[i].next = i + 1 < count ? &relay->workers[i + 1] : NULL;
		bell_init(&relay->workers[i].bell);
	}
	config->store->ops->listen(config->store, config->announcement, hear, relay);
	for (size_t i = 0; i < count; i++)
		start_worker(&relay->workers[i]);
	return relay;
}

static void free_worker(struct relay_worker *worker)
{
	worker->producer->ops->close(worker->producer);
	session_close(worker->session);
	bell_release(&worker->bell);
	arena_release(&worker->arenas[0]);
	arena_release(&worker->arenas[1]);
	free(worker->claims);
	free(worker->next_claims);
	free(worker->messages);
	free(worker->published);
}

void relay_stop(void *context)
{
	struct relay *relay = context;
	struct store *store = relay->config.store;

	store->ops->unlisten(store, relay);
	for (size_t i = 0; i < relay->config.workers; i++)
		bell_stop(&relay->workers[i].bell);
	for (size_t i = 0; i < relay->config.workers; i++)
		pthread_join(relay->workers[i].thread, NULL);
	for (size_t i = 0; i < relay->config.workers; i++)
		free_worker(&relay->workers[i]);
	free(relay->workers);
	free(relay);
}

/* ---- metrics ----------------------------------------------------------------------------- */

static const struct family {
	const char *name;
	const char *type;
	const char *help;
	size_t offset; /* the offset of this family's tally in struct relay */
	int64_t unit;
} families[] = {
	{"quipu_outbox_pending", "gauge",
		"Events that wait to be published, counted every few seconds.",
		offsetof(struct relay, pending), 1},
	{"quipu_outbox_oldest_seconds", "gauge",
		"Age of the oldest event that is not published yet.",
		offsetof(struct relay, oldest_us), 1000000},
	{"quipu_outbox_failed", "gauge", "Events that were given up and wait for an operator.",
		offsetof(struct relay, failed_rows), 1},
	{"quipu_outbox_published_total", "counter", "Events published.",
		offsetof(struct relay, confirmed), 1},
	{"quipu_outbox_retried_total", "counter",
		"Attempts to publish that failed and will be retried.",
		offsetof(struct relay, retried), 1},
	{"quipu_outbox_given_up_total", "counter",
		"Events that failed too many times or cannot be read.",
		offsetof(struct relay, given_up), 1},
	{"quipu_outbox_lost_claims_total", "counter",
		"Claims lost because another relay took the row over or the lease could not be "
		"renewed.",
		offsetof(struct relay, lost), 1},
};

static void sample(struct buffer *page, const struct relay *relay, const struct family *family)
{
	const char *tally = (const char *)relay + family->offset;
	int64_t value = tally_read((const struct tally *)(const void *)tally);
	char labels[64];

	snprintf(labels, sizeof(labels), "outbox=\"%s\"", relay->config.name);
	metrics_sample(page, family->name, labels, value / family->unit);
}

void relays_collect(struct relay *const *relays, size_t count, struct buffer *page)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]) && count > 0; i++) {
		metrics_family(page, families[i].name, families[i].type, families[i].help);
		for (size_t k = 0; k < count; k++)
			sample(page, relays[k], &families[i]);
	}
}
