/*
 * A gateway on a store that fails on demand, a fake bus and a clock that the test moves. Without
 * threads: gateway_fixture_step() runs what was submitted.
 */
#ifndef QUIPU_UNIT_GATEWAY_FIXTURE_H
#define QUIPU_UNIT_GATEWAY_FIXTURE_H

#include "check.h"
#include "fake_bus.h"
#include "faulty_store.h"
#include "flow/committer.h"
#include "manual_clock.h"
#include "services/gateway/gateway_batch.h"

#define SENDS_MAX 16
#define MINUTE_US 60000000LL
#define LIMIT 5
#define DEADLINE_NS (5 * NS_PER_S) /* of every command, by the clock of the fixture */

struct gateway_fixture {
	struct faulty_store *store;
	struct gateway gateway;
	struct gateway_lane lane;
	struct lane *queue;
	struct loop *loop;
	struct committer *committer;
	struct cache *cache;
	struct manual_clock clock; /* the clock of the committer and the cache */
};

struct fixture_send {
	struct gateway_command command; /* first */
	struct arena arena;
	bool answered;
};

void gateway_fixture_open_batches(struct gateway_fixture *fixture, bool cached, size_t batch_max);
void gateway_fixture_open(struct gateway_fixture *fixture, bool cached);
void gateway_fixture_close(struct gateway_fixture *fixture);

/* Submits a command of a user, with an Idempotency-Key unless `key` is NULL. */
struct fixture_send *gateway_fixture_submit(
	struct gateway_fixture *fixture, enum gateway_verb verb, const char *user, const char *key);

/* Runs everything that was submitted. */
void gateway_fixture_step(struct gateway_fixture *fixture);

/* Returns the HTTP status of the answer, or 0 if there is none yet, and frees the command. */
int gateway_fixture_take_status(struct fixture_send *send);

/* Gives the user "u" a limit of LIMIT. */
void gateway_fixture_configure(struct gateway_fixture *fixture);

/* Returns the row of the user "u". */
struct limit_row gateway_fixture_row_of(struct gateway_fixture *fixture);

/* Returns the cached copy of the limit of "u", as another process would find it, too; `hit` is
 * false if there is none. */
struct cached_limit gateway_fixture_copy_of(const struct gateway_fixture *fixture);

/* Submits `count` sends at once and returns how many got the wanted status. */
size_t gateway_fixture_send_many(struct gateway_fixture *fixture, size_t count, int wanted_status);

#endif
