#include "flow/relay.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/uuid.h"
#include "flow/claims.h"
#include "runtime/bell.h"

#define PUBLISH_NS (5 * NS_PER_S)
#define RETRY_NS (100 * NS_PER_MS)
#define LOOK_NS (5 * NS_PER_S)
#define ARENA_SIZE (256 * 1024)

struct relay {
	struct relay_config config;
	struct session *session;
	struct producer *producer;
	char owner[UUID_SIZE];
	struct dice dice;
	struct bell bell;
	pthread_t thread;

	/* The batch at hand. Two arenas take turns: ending one batch claims the next. */
	struct arena arenas[2];
	struct claim *claims;
	struct claim *next_claims;
	size_t count;
	bool is_tried;      /* it was published, or cannot be */
	int64_t claimed_ns; /* before the claim: the lease lasts longer than from here */
	int64_t probed_ns;  /* when a row was last claimed while the bus was away */
	struct bus_message *messages;
	struct claim **published; /* whose message stands at the same place in `messages` */

	int64_t looked_ns; /* when the outbox was last counted */
	struct counter pending;
	struct counter failed_rows;
	struct counter oldest_us;
	struct counter confirmed;
	struct counter retried;
	struct counter given_up;
	struct counter lost;
};

static int64_t now_ns(void)
{
	return clock_steady_ns(&clock_system);
}

static int64_t lease_ns(const struct relay *relay)
{
	return relay->config.lease_us * NS_PER_US;
}

static struct claim_terms terms_of(const struct relay *relay, size_t max)
{
	return (struct claim_terms){
		.owner = slice_of(relay->owner),
		.lease_us = relay->config.lease_us,
		.max = max,
	};
}

/* While the bus is away one row a poll is enough to see whether it has come back. */
static size_t claim_limit(struct relay *relay)
{
	struct bus *bus = relay->config.bus;

	if (bell_is_stopping(&relay->bell))
		return 0;
	if (bus->ops->is_up(bus))
		return relay->config.batch;
	if (now_ns() - relay->probed_ns < relay->config.poll_us * NS_PER_US)
		return 0;
	relay->probed_ns = now_ns();
	return 1;
}

/* ---- claim and end ----------------------------------------------------------------------- */

static void count_ends(struct relay *relay, const struct claim *claims, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!claims[i].was_ours)
			counter_add(&relay->lost, 1);
		else if (claims[i].end == CLAIM_DONE)
			counter_add(&relay->confirmed, 1);
		else if (claims[i].end == CLAIM_RETRY)
			counter_add(&relay->retried, 1);
		else if (claims[i].end == CLAIM_FAILED)
			counter_add(&relay->given_up, 1);
	}
}

/* One transaction: ends the batch at hand, if there is one, and claims the next into the other
 * arena. */
static enum status exchange(struct relay *relay, size_t max, size_t *claimed)
{
	const struct claim_repository *claims = &relay->config.outbox->claims;
	struct session *session = relay->session;
	struct claim_terms terms = terms_of(relay, max);
	enum status status = session->ops->begin(session, LOCK_WAIT);

	*claimed = 0;
	arena_reset(&relay->arenas[1]);
	if (status == STATUS_OK && relay->count > 0)
		status = claims->end(session, terms.owner, relay->claims, relay->count);
	if (status == STATUS_OK && max > 0)
		status = claims->claim(
			session, &relay->arenas[1], &terms, relay->next_claims, claimed);
	if (status == STATUS_OK)
		status = session->ops->commit(session);
	return status;
}

/* The next batch becomes the one at hand. */
static void advance(struct relay *relay, size_t count, int64_t claimed_ns)
{
	struct claim *claims = relay->claims;
	struct arena arena = relay->arenas[0];

	count_ends(relay, relay->claims, relay->count);
	relay->claims = relay->next_claims;
	relay->next_claims = claims;
	relay->arenas[0] = relay->arenas[1];
	relay->arenas[1] = arena;
	relay->count = count;
	relay->is_tried = false;
	relay->claimed_ns = claimed_ns;
}

/*
 * Ends the batch at hand and claims the next. false: the store does not answer; the batch is kept
 * as long as its lease lasts, then others have it.
 */
static bool turn(struct relay *relay)
{
	int64_t started_ns = now_ns();
	size_t limit = claim_limit(relay);
	size_t claimed;
	enum status status;

	if (relay->count == 0 && limit == 0)
		return true;
	status = exchange(relay, limit, &claimed);
	if (status == STATUS_OK) {
		advance(relay, claimed, started_ns);
		return true;
	}
	if (relay->count > 0 && now_ns() - relay->claimed_ns > lease_ns(relay))
		relay->count = 0;
	return false;
}

/* ---- publishing -------------------------------------------------------------------------- */

static void conclude(
	struct relay *relay, struct claim *claim, enum claim_try try, const char *error)
{
	claim_conclude(claim, try, relay->config.attempts_max, &relay->dice, slice_of(error));
}

/* The messages of the batch; rows that have none are refused. */
static size_t make_messages(struct relay *relay)
{
	size_t count = 0;

	for (size_t i = 0; i < relay->count; i++) {
		struct claim *claim = &relay->claims[i];
		struct bus_message *message = &relay->messages[count];

		*message = (struct bus_message){.id = claim->id};
		if (relay->config.address(&relay->arenas[0], claim, message)) {
			relay->published[count++] = claim;
			continue;
		}
		conclude(relay, claim, TRY_REFUSED, "the row cannot be read as an event");
		log_line(LOG_ERROR, "relay", "%s: event %.*s cannot be read and is given up",
			relay->config.name, (int)claim->id.len, claim->id.data);
	}
	return count;
}

static void conclude_published(struct relay *relay, size_t count, enum status status)
{
	for (size_t i = 0; i < count; i++) {
		struct claim *claim = relay->published[i];

		if (status != STATUS_OK)
			conclude(relay, claim, TRY_AWAY, "the bus cannot be reached");
		else if (relay->messages[i].fate == BUS_CONFIRMED)
			conclude(relay, claim, TRY_WORKED, "");
		else if (relay->messages[i].fate == BUS_UNKNOWN)
			conclude(relay, claim, TRY_AWAY, "the bus did not confirm it in time");
		else if (!relay->config.bus->ops->is_up(relay->config.bus))
			conclude(relay, claim, TRY_AWAY, "the bus went away");
		else
			conclude(relay, claim, TRY_FAILED, "the bus refused it");
	}
}

static enum status renew(struct relay *relay)
{
	const struct claim_repository *claims = &relay->config.outbox->claims;
	struct session *session = relay->session;
	struct claim_terms terms = terms_of(relay, relay->count);
	enum status status = session->ops->begin(session, LOCK_WAIT);

	if (status == STATUS_OK)
		status = claims->renew(session, &terms, relay->claims, relay->count);
	if (status == STATUS_OK)
		status = session->ops->commit(session);
	return status;
}

/*
 * After a stall of a third of the lease: renews it, and lets go of the rows that somebody else has
 * by now; of all, if that cannot be found out.
 */
static void let_go_of_lost(struct relay *relay)
{
	int64_t started_ns = now_ns();
	bool known;
	size_t kept = 0;

	if (started_ns - relay->claimed_ns < lease_ns(relay) / 3)
		return;
	known = renew(relay) == STATUS_OK;
	for (size_t i = 0; i < relay->count; i++) {
		if (known && relay->claims[i].was_ours)
			relay->claims[kept++] = relay->claims[i];
		else
			counter_add(&relay->lost, 1);
	}
	relay->count = kept;
	relay->claimed_ns = started_ns;
}

static void publish(struct relay *relay)
{
	int64_t within_ns = lease_ns(relay) / 3;
	size_t count;
	enum status status;

	FAILPOINT("relay.claimed");
	relay->is_tried = true;
	let_go_of_lost(relay);
	count = make_messages(relay);
	if (count == 0)
		return;
	if (within_ns > PUBLISH_NS)
		within_ns = PUBLISH_NS;
	status = relay->producer->ops->publish(
		relay->producer, relay->messages, count, now_ns() + within_ns);
	conclude_published(relay, count, status);
	FAILPOINT("relay.published");
}

/* ---- the thread -------------------------------------------------------------------------- */

/* Counts the outbox for the metrics, now and then. */
static void look(struct relay *relay)
{
	struct claim_stats stats;

	if (relay->looked_ns != 0 && now_ns() - relay->looked_ns < LOOK_NS)
		return;
	relay->looked_ns = now_ns();
	if (relay->config.outbox->claims.count(relay->session, &stats) != STATUS_OK)
		return;
	atomic_store(&relay->pending.value, stats.pending + stats.busy);
	atomic_store(&relay->failed_rows.value, stats.failed);
	atomic_store(&relay->oldest_us.value, stats.oldest_us);
}

static void *relay_main(void *argument)
{
	struct relay *relay = argument;

	pthread_setname_np(pthread_self(), "relay");
	while (!bell_is_stopping(&relay->bell) || relay->count > 0) {
		if (relay->count > 0 && !relay->is_tried)
			publish(relay);
		if (!turn(relay)) {
			if (bell_is_stopping(&relay->bell))
				break; /* the leases will run out */
			bell_wait(&relay->bell, RETRY_NS);
			continue;
		}
		FAILPOINT("relay.ended");
		look(relay);
		if (relay->count == 0)
			bell_wait(&relay->bell, relay->config.poll_us * NS_PER_US);
	}
	return NULL;
}

/* There may be new rows. */
static void hear(void *relay)
{
	bell_ring(&((struct relay *)relay)->bell);
}

struct relay *relay_start(const struct relay_config *config)
{
	struct relay *relay = qp_calloc(1, sizeof(*relay));
	int failed;

	relay->config = *config;
	relay->session = config->store->ops->open_session(config->store, SESSION_WRITE);
	relay->producer = config->bus->ops->open_producer(config->bus);
	relay->claims = qp_calloc(config->batch, sizeof(*relay->claims));
	relay->next_claims = qp_calloc(config->batch, sizeof(*relay->next_claims));
	relay->messages = qp_calloc(config->batch, sizeof(*relay->messages));
	relay->published = qp_calloc(config->batch, sizeof(struct claim *));
	arena_init(&relay->arenas[0], ARENA_SIZE);
	arena_init(&relay->arenas[1], ARENA_SIZE);
	uuid_random(relay->owner);
	dice_init(&relay->dice);
	bell_init(&relay->bell);
	config->store->ops->listen(config->store, config->topic, hear, relay);
	failed = pthread_create(&relay->thread, NULL, relay_main, relay);
	assert(!failed);
	return relay;
}

void relay_stop(struct relay *relay)
{
	struct store *store = relay->config.store;

	store->ops->unlisten(store, relay);
	bell_stop(&relay->bell);
	pthread_join(relay->thread, NULL);
	relay->producer->ops->close(relay->producer);
	session_close(relay->session);
	bell_release(&relay->bell);
	arena_release(&relay->arenas[0]);
	arena_release(&relay->arenas[1]);
	free(relay->claims);
	free(relay->next_claims);
	free(relay->messages);
	free(relay->published);
	free(relay);
}

static void sample(struct buffer *page, const struct relay *relay, const char *name,
	const char *type, const char *help, int64_t value)
{
	char labels[64];

	snprintf(labels, sizeof(labels), "outbox=\"%s\"", relay->config.name);
	metrics_family(page, name, type, help);
	metrics_sample(page, name, labels, value);
}

void relay_collect(void *context, struct buffer *page)
{
	const struct relay *relay = context;

	sample(page, relay, "quipu_outbox_pending", "gauge",
		"Events that wait to be published, counted every few seconds.",
		counter_read(&relay->pending));
	sample(page, relay, "quipu_outbox_oldest_seconds", "gauge",
		"Age of the oldest event that is not published.",
		counter_read(&relay->oldest_us) / 1000000);
	sample(page, relay, "quipu_outbox_failed", "gauge",
		"Events that were given up and wait for an operator.",
		counter_read(&relay->failed_rows));
	sample(page, relay, "quipu_outbox_published_total", "counter", "Events published.",
		counter_read(&relay->confirmed));
	sample(page, relay, "quipu_outbox_retried_total", "counter",
		"Tries to publish that failed and are made again later.",
		counter_read(&relay->retried));
	sample(page, relay, "quipu_outbox_given_up_total", "counter",
		"Events that failed too often or cannot be read.", counter_read(&relay->given_up));
	sample(page, relay, "quipu_outbox_lost_claims_total", "counter",
		"Claims that another relay took over because their lease was over.",
		counter_read(&relay->lost));
}
