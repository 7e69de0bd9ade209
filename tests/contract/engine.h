/*
 * The engine that the contract suites run on: the value of QUIPU_CONTRACT_STORE, "sqlite:" (also
 * the default) or a postgres:// URL.
 *
 * On SQLite each test has a file of its own. On PostgreSQL all tests of a run share the database
 * that with_postgres.py has made for it, as services share one in life; engine_name() keeps them
 * apart.
 */
#ifndef QUIPU_CONTRACT_ENGINE_H
#define QUIPU_CONTRACT_ENGINE_H

/* cmocka.h wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ports/count_repository.h"
#include "ports/limit_repository.h"
#include "ports/pot_repository.h"
#include "ports/sent_repository.h"
#include "ports/store.h"

#define SESSIONS_MAX 16

struct engine {
	struct store *store; /* started, and up */
	const struct count_repository *counts;
	const struct limit_repository *limits;
	const struct sent_repository *sent;
	const struct pot_repository *pots;
	struct session *session; /* a write session, for tests that need only one */
	struct arena arena;      /* until the test ends */

	struct session *sessions[SESSIONS_MAX];
	size_t session_count;
	char *path;      /* SQLite's file */
	char prefix[12]; /* of every name in this test */
};

/* cmocka's setup and teardown: *state is a struct engine. */
int engine_setup(void **state);
int engine_teardown(void **state);

#define ENGINE_TEST(test) cmocka_unit_test_setup_teardown(test, engine_setup, engine_teardown)

/* One more session, which teardown closes. */
struct session *engine_session(struct engine *engine, enum session_kind kind);

/* Ends the store and starts another on the same data. All sessions are closed; ->session is new. */
void engine_restart(struct engine *engine);

/* `text` in a form that is unique to this test. Keeps the byte order between texts. */
struct slice engine_name(struct engine *engine, const char *text);

/* The same, filled with `filler` to `size` bytes. */
struct slice engine_long_name(struct engine *engine, char filler, size_t size);

/* Whether the engine takes its time from this process, so that the test may move it. */
bool engine_time_is_ours(const struct engine *engine);
void engine_advance_us(int64_t step_us);

/* Transactions that are expected to succeed. */
void engine_begin(struct session *session);
void engine_commit(struct session *session);

/* RERUN and LOCK_BUSY are what two sessions at once may get: the caller runs its work again. */
bool engine_is_collision(enum status status);

#endif
