/*
 * The engine that the contract suites run on: the value of QUIPU_CONTRACT_STORE, "sqlite:" (also
 * the default) or a postgres:// URL. With QUIPU_CONTRACT_TRACE=1 the store is wrapped as
 * --trace-store does it, and every call is logged. With QUIPU_CONTRACT_DISTRIBUTE=1 the database
 * has Citus, and its tables are distributed.
 *
 * On SQLite each test has a file of its own. On PostgreSQL all tests of a run share the database
 * that tests/engines has created for it, as services share one in life; engine_name() keeps them
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
#include "ports/counter_repository.h"
#include "ports/entitlement_repository.h"
#include "ports/limit_repository.h"
#include "ports/message_repository.h"
#include "ports/notification_repository.h"
#include "ports/outbound_repository.h"
#include "ports/outbox_repository.h"
#include "ports/pot_repository.h"
#include "ports/sent_repository.h"
#include "ports/store.h"

#define SESSIONS_MAX 16

struct engine {
	struct store *store; /* started, and up */
	const struct count_repository *counts;
	const struct limit_repository *limits;
	const struct sent_repository *sent;
	const struct entitlement_repository *entitlements;
	const struct outbox_repository *outbox;
	const struct outbox_repository *dialog_outbox;
	const struct message_repository *messages;
	const struct counter_repository *counters;
	const struct notification_repository *notifications;
	const struct outbound_repository *outbound;
	const struct pot_repository *pots;
	struct session *session; /* a write session, for tests that need only one */
	struct arena arena;      /* until the test ends */

	struct session *sessions[SESSIONS_MAX];
	size_t session_count;
	char *path;       /* SQLite's file */
	char *other_path; /* that of engine_other_store() */
	char prefix[12];  /* of every name in this test */
	int64_t shifted_us;
};

/* cmocka's setup and teardown: *state is a struct engine. */
int engine_setup(void **state);
int engine_teardown(void **state);

#define ENGINE_TEST(test) cmocka_unit_test_setup_teardown(test, engine_setup, engine_teardown)

/* One more session, which teardown closes. */
struct session *engine_session(struct engine *engine, enum session_kind kind);

/* Ends the store and starts another on the same data. All sessions are closed; ->session is new. */
void engine_restart(struct engine *engine);

/*
 * One more store that is not started yet, for the caller to free. On PostgreSQL it shares the
 * database, as another process would; on SQLite it has a file of its own.
 */
struct store *engine_other_store(struct engine *engine);

/* Starts a store and waits until it is up. */
void engine_start(struct store *store);

/* `text` in a form that is unique to this test, with a NUL behind it. Keeps the byte order between
 * texts. */
struct slice engine_name(struct engine *engine, const char *text);

/* The same, filled with `filler` to `size` bytes. */
struct slice engine_long_name(struct engine *engine, char filler, size_t size);

/* Whether the engine takes its time from this process, so that the test may move it. */
bool engine_time_is_ours(const struct engine *engine);
void engine_advance_us(int64_t step_us);

/*
 * Moves the store's time on either engine, until the test ends. On PostgreSQL sessions learn it
 * when they connect, so this restarts the engine there.
 */
void engine_shift_us(struct engine *engine, int64_t step_us);

/*
 * What the database itself holds, past the ports, seen by a connection of its own: how many rows
 * `SELECT count(*) FROM <format>` finds.
 */
int64_t engine_count(struct engine *engine, const char *format, ...) QP_PRINTF(2, 3);

/* PostgreSQL, at the other end of a connection. */
bool engine_is_a_server(void);

/* A PostgreSQL with Citus whose tables are on several nodes. It cannot skip locked rows: a batch
 * that meets one waits for it, then fails with LOCK_BUSY. */
bool engine_is_a_cluster(void);

/* A statement past the ports. */
void engine_execute(struct engine *engine, const char *format, ...) QP_PRINTF(2, 3);

/* A UUID that is unique to this test and text. */
struct slice engine_uuid(struct engine *engine, const char *text);

/* Transactions that are expected to succeed. */
void engine_begin(struct session *session);
void engine_begin_mode(struct session *session, enum transaction_mode mode);
void engine_commit(struct session *session);

/* RERUN and LOCK_BUSY are what two sessions at once may get: the caller runs its work again. */
bool engine_is_collision(enum status status);

#endif
