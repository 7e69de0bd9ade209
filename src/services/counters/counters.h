/*
 * Counters of unread messages: seed 004, CounterService. Role `counters`.
 *
 *   message_event    the events, as MassTransit writes them
 *   counter_rules    what an event does to a count: pure
 *   counter_intake   events to counts, in one transaction a batch; then cache, then streams
 *   counter_lookup   counts from the cache, else the store
 *   counter_feed     keeps open streams up to date with what other processes commit
 *   counter_routes   HTTP
 */
#ifndef QUIPU_SERVICES_COUNTERS_COUNTERS_H
#define QUIPU_SERVICES_COUNTERS_COUNTERS_H

#include "flow/intake.h"
#include "flow/lane_set.h"
#include "http/hub.h"
#include "http/router.h"
#include "ports/cache.h"
#include "ports/counter_repository.h"

#define COUNTER_TYPE "UnreadMessages"
#define COUNTERS_ANNOUNCEMENT "counters" /* announced when counts were committed */
#define COUNTERS_KEPT_US (30 * 24 * 3600 * 1000000LL)

struct unread_verifier;

struct counters {
	const struct counter_repository *repository;
	struct store *store;
	struct cache *cache; /* NULL: none */
	struct lane_set *lanes;
	struct cache_session *reader_cache; /* of the reader's thread; NULL: none */
	struct hub *hub;                    /* of the streams, by user */
	struct unread_verifier *verifier;   /* NULL: dialogs do not run here */
};

/* What the lanes of the service call; context is the struct counters. */
struct lane_service counters_lane_service(struct counters *counters);

/* Adds the routes. `counters` outlives the router. */
void counters_add_routes(struct counters *counters, struct router *router);

/* A counter as GET and the stream tell it: {"userId","type","count","lastUpdated"}. */
void counter_write(struct buffer *body, const struct counter_row *row);

/* ---- counting ---- */

/* Messages that are new, or read, and what becomes of the counts. */
struct counter_counting {
	struct arena *arena;
	bool is_read;
	struct counter_message *messages; /* unique, sorted by user and message */
	size_t count;

	/* Out. */
	size_t changed;           /* messages that were not known as that yet */
	struct counter_row *rows; /* everybody's counts, also those that did not change */
	size_t row_count;
};

/* In a transaction: counts them. */
QP_MUST_CHECK enum status counter_count(const struct counters *counters, struct session *session,
	struct counter_counting *counting);

/* ---- intake: one for each queue ---- */

struct counter_intake;

/* `is_read`: of the queue of MessageReadEvent, else of NewMessageEvent. */
struct counter_intake *counter_intake_new(struct counters *counters, bool is_read);
void counter_intake_free(struct counter_intake *intake);

/* See flow/intake.h; the context is the counter_intake. */
enum status counter_intake_apply(
	void *intake, struct session *session, const struct intake_batch *batch, size_t *repeated);
void counter_intake_committed(void *intake);

/* After a commit: brings rows as they are in the store now to the cache and the streams. */
void counters_tell(struct counters *counters, struct cache_session *cache, struct arena *arena,
	const struct counter_row *rows, size_t count);

#endif
