/*
 * How fast events go through the outbox of a store, without a bus: one thread writes them, another
 * claims 200 and ends them, over and over, beside KEPT events that were published before.
 *
 *     claims STORE SECONDS [KEPT]        STORE: a postgres:// URL, or the path of a new SQLite file
 *
 * Prints events/s and the mean time of a claim and of an end, every five seconds and for the whole.
 */
#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "adapters/store/postgres/postgres_store.h"
#include "adapters/store/sqlite/sqlite_store.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/uuid.h"
#include "ports/outbox_repository.h"

#define BATCH 200
#define BACKLOG_MAX 2000 /* the writer waits when so many are not published */
#define REPORT_NS (5 * NS_PER_S)

static const char *const components[] = {"common", "entitlements", NULL};

struct bench {
	const char *url;
	struct store *store;
	const struct outbox_repository *outbox;
	_Atomic int64_t written;
	_Atomic int64_t published;
	_Atomic bool stopping;
};

struct tally {
	int64_t start_ns;
	int64_t events;
	int64_t claims;
	int64_t claim_ns;
	int64_t end_ns;
};

static int64_t now_ns(void)
{
	return clock_steady_ns(&clock_system);
}

static void must(enum status status, const char *what)
{
	if (status == STATUS_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, status_code(status));
	exit(1);
}

/* ---- the writer -------------------------------------------------------------------------- */

static void write_batch(struct bench *bench, struct session *session)
{
	static const char payload[120] = "about as long as an entitlement's";
	char ids[BATCH][UUID_SIZE];
	struct outbox_event events[BATCH];
	int64_t time_us = clock_wall_us(&clock_system);

	for (size_t i = 0; i < BATCH; i++) {
		uuid_of_time(time_us, ids[i]);
		events[i] = (struct outbox_event){
			.id = slice_of(ids[i]),
			.type = slice_of("EntitlementGranted"),
			.key = slice_of("u_123:item1"),
			.payload = slice_make(payload, sizeof(payload)),
			.occurred_us = time_us,
		};
	}
	must(session->ops->begin(session, TRANSACTION_WAIT), "begin");
	must(bench->outbox->ops->put(bench->outbox, session, events, BATCH), "put");
	must(session->ops->commit(session), "commit");
	bench->written += BATCH;
}

static void *write_all(void *argument)
{
	const struct timespec moment = {.tv_nsec = 200000};
	struct bench *bench = argument;
	struct session *session = bench->store->ops->open_session(bench->store, SESSION_WRITE);

	while (!bench->stopping) {
		if (bench->written - bench->published < BACKLOG_MAX)
			write_batch(bench, session);
		else
			nanosleep(&moment, NULL);
	}
	session_close(session);
	return NULL;
}

/* ---- the relay --------------------------------------------------------------------------- */

static size_t relay_batch(
	struct bench *bench, struct session *session, struct arena *arena, struct tally *tally)
{
	static const struct claim_terms terms = {
		.owner = SLICE("bench"), .lease_us = 30 * 1000000LL, .max = BATCH};
	struct claim claims[BATCH];
	size_t count;
	int64_t start_ns = now_ns(), claimed_ns;

	arena_reset(arena);
	must(session->ops->begin(session, TRANSACTION_WAIT), "begin");
	must(bench->outbox->claims->ops->claim(
		     bench->outbox->claims, session, arena, &terms, claims, &count),
		"claim");
	must(session->ops->commit(session), "commit");
	if (count == 0)
		return 0;
	claimed_ns = now_ns();
	must(session->ops->begin(session, TRANSACTION_WAIT), "begin");
	must(bench->outbox->claims->ops->end(
		     bench->outbox->claims, session, terms.owner, claims, count),
		"end");
	must(session->ops->commit(session), "commit");
	bench->published += (int64_t)count;
	tally->claims++;
	tally->events += (int64_t)count;
	tally->claim_ns += claimed_ns - start_ns;
	tally->end_ns += now_ns() - claimed_ns;
	return count;
}

static void report(const char *what, const struct tally *tally)
{
	double seconds = (double)(now_ns() - tally->start_ns) / 1e9;
	double claims = tally->claims ? (double)tally->claims : 1;

	printf("%s %8.0f events/s   claim %6.2f ms   end %6.2f ms\n", what,
		(double)tally->events / seconds, (double)tally->claim_ns / claims / 1e6,
		(double)tally->end_ns / claims / 1e6);
	fflush(stdout);
}

static void add(struct tally *sum, const struct tally *part)
{
	sum->events += part->events;
	sum->claims += part->claims;
	sum->claim_ns += part->claim_ns;
	sum->end_ns += part->end_ns;
}

/* Until it is over or so many are published. */
static void relay(struct bench *bench, int64_t until_ns, int64_t published_max, bool loud)
{
	struct session *session = bench->store->ops->open_session(bench->store, SESSION_WRITE);
	struct tally sum = {.start_ns = now_ns()}, part = sum;
	struct arena arena;

	arena_init(&arena, 256 * 1024);
	while (now_ns() < until_ns && bench->published < published_max) {
		relay_batch(bench, session, &arena, &part);
		if (now_ns() - part.start_ns < REPORT_NS)
			continue;
		if (loud)
			report("  5 s", &part);
		add(&sum, &part);
		part = (struct tally){.start_ns = now_ns()};
	}
	add(&sum, &part);
	if (loud)
		report("whole", &sum);
	arena_release(&arena);
	session_close(session);
}

/* ---- the run ----------------------------------------------------------------------------- */

/* What the fill has left behind is not to be measured. */
static void vacuum(const struct bench *bench)
{
	PGconn *connection;

	if (strcmp(bench->store->engine, "postgres") != 0)
		return;
	connection = PQconnectdb(bench->url);
	PQclear(PQexec(connection, "VACUUM ANALYZE outbox_events"));
	PQclear(PQexec(connection, "CHECKPOINT"));
	PQfinish(connection);
}

static void open_store(struct bench *bench)
{
	const struct timespec moment = {.tv_nsec = 10000000};
	bool postgres = strncmp(bench->url, "postgres", 8) == 0;
	char why[512];

	bench->store = postgres ? postgres_store_new("bench", bench->url, components)
				: sqlite_store_new("bench", bench->url, components, &clock_system);
	bench->outbox = bench->store->repositories->entitlement_outbox;
	if (!bench->store->ops->start(bench->store, why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		exit(1);
	}
	while (!bench->store->ops->is_up(bench->store))
		nanosleep(&moment, NULL);
}

int main(int argc, char **argv)
{
	struct bench bench = {0};
	int64_t kept = argc > 3 ? atoll(argv[3]) : 0;
	pthread_t writer;

	if (argc < 3) {
		fprintf(stderr, "usage: claims STORE SECONDS [KEPT]\n");
		return 2;
	}
	log_configure(LOG_WARN, LOG_TEXT);
	bench.url = argv[1];
	open_store(&bench);
	if (pthread_create(&writer, NULL, write_all, &bench) != 0)
		return 1;
	if (kept > 0) {
		relay(&bench, INT64_MAX, kept, false);
		vacuum(&bench);
	}
	relay(&bench, now_ns() + atoll(argv[2]) * NS_PER_S, INT64_MAX, true);
	bench.stopping = true;
	pthread_join(writer, NULL);
	bench.store->ops->free(bench.store);
	return 0;
}
