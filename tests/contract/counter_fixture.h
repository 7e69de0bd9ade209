/*
 * Counters of a cache for a test: calls for one entry, what happens to keys from outside, and a
 * crowd of readers and a writer. A value follows from its version, so that a version tells whether
 * all of it is right.
 */
#ifndef QUIPU_CONTRACT_COUNTER_FIXTURE_H
#define QUIPU_CONTRACT_COUNTER_FIXTURE_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache_fixture.h"

struct cached_counter counter_fixture_value(struct slice user_id, int64_t version);

/* Whether it is a hit of that version, with the value that belongs to it. */
bool counter_fixture_is(const struct cached_counter *counter, int64_t version);

/* One entry each, all expected to succeed. A fill is by whoever got `missed`. */
struct cached_counter counter_fixture_get(struct cache_session *session, struct slice user_id);
struct cached_counter counter_fixture_get_list(struct cache_session *session, struct slice user_id);
void counter_fixture_fill(
	struct cache_session *session, const struct cached_counter *missed, int64_t version);
void counter_fixture_refresh(struct cache_session *session, struct slice user_id, int64_t version);

/* Makes the user's counter, which is not there, the way that entries are made: misses and fills. */
void counter_fixture_know(struct cache_session *session, struct slice user_id, int64_t version);

/* ---- from outside ------------------------------------------------------------------------ */

/* Time goes by for the counter, the lease and the list of this user. */
void counter_fixture_pass_s(struct cache_fixture *fixture, struct slice user_id, int64_t seconds);

/* The user's keys in Redis. */
enum counter_key { COUNTER_KEY, LEASE_KEY, LIST_KEY };

/* Of Redis alone: deletes the key. Returns whether it was there. */
bool counter_fixture_delete(
	struct cache_fixture *fixture, enum counter_key key, struct slice user_id);

/* Of Redis alone: what is under the key, "" where nothing is. In the arena of the fixture. */
const char *counter_fixture_text(
	struct cache_fixture *fixture, enum counter_key key, struct slice user_id);

/* Of Redis alone: how long it has; -1: without end, -2: nothing is there. */
int64_t counter_fixture_ttl_ms(
	struct cache_fixture *fixture, enum counter_key key, struct slice user_id);

/* Of Redis alone: writes it, for ever where `ttl_s` is 0. */
void counter_fixture_plant(struct cache_fixture *fixture, enum counter_key key,
	struct slice user_id, const char *text, int ttl_s);

/* Of Redis alone: puts a hash there, for ever where `ttl_s` is 0. */
void counter_fixture_plant_hash(
	struct cache_fixture *fixture, enum counter_key key, struct slice user_id, int ttl_s);

/* ---- a crowd ----------------------------------------------------------------------------- */

#define CROWD_READERS 4

/*
 * A writer that changes a user's counter and refreshes it without pause, and readers that look, and
 * fill what they miss. No reader may be told less than what was refreshed, with or without success,
 * before it asked.
 */
struct counter_crowd {
	struct cache_fixture *fixture;
	struct slice user_id;
	_Atomic int64_t stored;    /* the version in the store */
	_Atomic int64_t refreshed; /* the version for which a refresh has returned */
	atomic_bool stopping;
	_Atomic int64_t hits;
	_Atomic int64_t fills;
	_Atomic int64_t wrong;
	pthread_t threads[1 + CROWD_READERS];
};

void counter_crowd_start(struct counter_crowd *crowd, struct cache_fixture *fixture);

/* Fails the test where a reader was told something old, or nobody was told anything. */
void counter_crowd_stop(struct counter_crowd *crowd);

#endif
