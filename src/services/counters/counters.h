/*
 * Counters of unread messages, specified by seed 004 (CounterService). Role `counters`.
 *
 *   counter_rules    what an event does to a counter
 *   counter_intake   applies events in one transaction per batch, then updates cache and streams
 *   counter_lookup   reads counters from the cache or the store
 *   counter_feed     keeps open streams up to date with changes by other processes
 *   counter_lanes    the callbacks through which lanes run lookups and repairs
 *   counter_routes   turns HTTP requests into lookups and streams
 *   counter_verify   compares counters with messages for `quipu verify`, and repairs them
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
#define COUNTERS_ANNOUNCEMENT "counters" /* announces committed counters */
#define COUNTERS_KEPT_US (30 * 24 * 3600 * 1000000LL)

struct counter_verifier;

struct counters {
	const struct counter_repository *repository;
	struct store *store;
	struct cache *cache; /* NULL if no cache is configured */
	struct lane_set *lanes;
	struct cache_session *reader_cache; /* for the reader's thread; NULL without a cache */
	struct hub *hub;                    /* the streams, by user */
	/* NULL unless this process also plays the role `dialogs` */
	struct counter_verifier *verifier;
};

/* Returns the callbacks for the lanes of the service. `counters` must outlive the lanes. */
struct lane_service counters_lane_service(struct counters *counters);

/* Adds the routes. `counters` must outlive the router. */
void counters_add_routes(struct counters *counters, struct router *router);

/* Appends a counter as GET and the stream show it: {"userId","type","count","lastUpdated"}. */
void counter_write(struct buffer *body, const struct counter_row *row);

/* ---- counting ---- */

/* Messages to apply to counters, either all of them new or all of them read, and the counters that
 * result. */
struct counter_counting {
	struct arena *arena;
	bool is_read; /* true if the messages were read, false if they are new */
	struct counter_message *messages; /* sorted by user and message, without duplicates */
	size_t count;

	/* The members below are set by counter_count(). */
	size_t changed;           /* how many messages changed their state */
	struct counter_row *rows; /* the counters of all users in `messages` who have a counter */
	size_t row_count;
};

/* Applies the messages to the counters. Must be called in a transaction. Blocks; returns the
 * session's status. */
QP_MUST_CHECK enum status counter_count(const struct counters *counters, struct session *session,
	struct counter_counting *counting);

/* ---- intake: one per queue ---- */

struct counter_intake;

/* Creates the intake for the queue of MessageReadEvent if `is_read` is true, otherwise for the
 * queue of NewMessageEvent. */
struct counter_intake *counter_intake_new(struct counters *counters, bool is_read);
void counter_intake_free(struct counter_intake *intake);

/* The callbacks of flow/intake.h; the context is the counter_intake. */
enum status counter_intake_apply(
	void *intake, struct session *session, const struct intake_batch *batch, size_t *repeated);
void counter_intake_committed(void *intake);

/* Updates the cache and the streams with these committed rows. `cache` may be NULL. */
void counters_publish(struct counters *counters, struct cache_session *cache, struct arena *arena,
	const struct counter_row *rows, size_t count);

#endif
