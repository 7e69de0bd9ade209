/* Claims of many: workers at once, counting, sweeping, and what rows that are done cost. */
#include <pthread.h>
#include <stdio.h>

#include "claim_contract.h"
#include "claim_fixture.h"
#include "waiting.h"

/* ---- workers at once --------------------------------------------------------------------- */

#define WORKERS 3
#define WORK 400

struct worker {
	struct fixture *fixture;
	struct session *session;
	char owner[16];
	struct arena arena;
	int done;
	int lost; /* claims that were not ours any more */
};

/* Claims some with a lease that is soon over, and ends them. How many it got. */
static size_t work_once(struct worker *worker)
{
	const struct claim_repository *claims = worker->fixture->claims;
	struct session *session = worker->session;
	struct claim_terms terms = {.owner = slice_of(worker->owner), .lease_us = 2000, .max = 7};
	struct claim got[7];
	size_t count = 0;

	arena_reset(&worker->arena);
	if (session->ops->begin(session, TRANSACTION_WAIT) != STATUS_OK ||
		claims->ops->claim(claims, session, &worker->arena, &terms, got, &count) !=
			STATUS_OK ||
		session->ops->commit(session) != STATUS_OK)
		return 1;
	if (session->ops->begin(session, TRANSACTION_WAIT) != STATUS_OK ||
		claims->ops->end(claims, session, terms.owner, got, count) != STATUS_OK ||
		session->ops->commit(session) != STATUS_OK)
		return 1;
	for (size_t i = 0; i < count; i++) {
		worker->done += got[i].was_ours;
		worker->lost += !got[i].was_ours;
	}
	return count;
}

static void *work(void *argument)
{
	for (int idle = 0; idle < 5;) {
		if (work_once(argument) > 0)
			idle = 0;
		else if (++idle < 5)
			wait_a_moment();
	}
	return NULL;
}

static void every_row_is_done_once_whatever_the_leases(void **state)
{
	struct fixture *fixture = *state;
	struct worker workers[WORKERS];
	pthread_t threads[WORKERS];
	int done = 0;

	claim_fixture_put_many(fixture, "a", WORK / 2);
	claim_fixture_put_many(fixture, "b", WORK / 2);
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){.fixture = fixture,
			.session = engine_session(fixture->engine, SESSION_WRITE)};
		snprintf(workers[i].owner, sizeof(workers[i].owner), "worker-%d", i);
		arena_init(&workers[i].arena, 4096);
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < WORKERS; i++) {
		pthread_join(threads[i], NULL);
		arena_release(&workers[i].arena);
		done += workers[i].done;
	}
	assert_int_equal(done, WORK);
	assert_int_equal(engine_count(fixture->engine, "%s WHERE status = '%s'",
				 fixture->subject->table, fixture->subject->done),
		WORK);
}

/* ---- counting and sweeping --------------------------------------------------------------- */

static void count_tells_how_many_are_in_each_state(void **state)
{
	struct fixture *fixture = *state;
	struct claim_stats stats = claim_fixture_stats_of(fixture);

	assert_true(stats.pending == 0 && stats.busy == 0 && stats.failed == 0);
	assert_true(stats.oldest_us == 0);
	claim_fixture_put_many(fixture, "row", 6);
	assert_int_equal(
		claim_fixture_claim_by(fixture, fixture->engine->session, "me", LEASE_US, 3),
		STATUS_OK);
	fixture->claim[0].end = CLAIM_DONE;
	fixture->claim[1].end = CLAIM_FAILED;
	fixture->count = 2;
	claim_fixture_end(fixture, "me");
	engine_shift_us(fixture->engine, MINUTE_US);
	stats = claim_fixture_stats_of(fixture);
	assert_true(stats.pending == 3);
	assert_true(stats.busy == 1);
	assert_true(stats.failed == 1);
	assert_true(stats.oldest_us >= MINUTE_US && stats.oldest_us < 2 * MINUTE_US);
}

static void sweep_deletes_what_is_done_for_longer_than_told(void **state)
{
	struct fixture *fixture = *state;
	struct session *session = fixture->engine->session;
	size_t deleted = 77;

	claim_fixture_put_many(fixture, "row", 6);
	assert_int_equal(claim_fixture_claim_by(fixture, session, "me", LEASE_US, 4), STATUS_OK);
	claim_fixture_end(fixture, "me");
	assert_int_equal(
		fixture->claims->ops->sweep(fixture->claims, session, MINUTE_US, 100, &deleted),
		STATUS_OK);
	assert_int_equal(deleted, 0);
	assert_int_equal(
		fixture->claims->ops->sweep(fixture->claims, session, -SECOND_US, 3, &deleted),
		STATUS_OK);
	assert_int_equal(deleted, 3);
	assert_int_equal(
		fixture->claims->ops->sweep(fixture->claims, session, -SECOND_US, 3, &deleted),
		STATUS_OK);
	assert_int_equal(deleted, 1);
	assert_int_equal(engine_count(fixture->engine, "%s", fixture->subject->table), 2);
	assert_true(claim_fixture_stats_of(fixture).pending == 2);
}

static void sweep_takes_what_was_given_up_too(void **state)
{
	struct fixture *fixture = *state;
	size_t deleted = 0;

	if (fixture->subject->is_outbox)
		return;
	claim_fixture_put_one(fixture);
	claim_fixture_claim_and_end(fixture, CLAIM_FAILED);
	assert_int_equal(fixture->claims->ops->sweep(
				 fixture->claims, fixture->engine->session, MINUTE_US, 9, &deleted),
		STATUS_OK);
	assert_int_equal(deleted, 0);
	engine_shift_us(fixture->engine, 2 * MINUTE_US);
	assert_int_equal(fixture->claims->ops->sweep(
				 fixture->claims, fixture->engine->session, MINUTE_US, 9, &deleted),
		STATUS_OK);
	assert_int_equal(deleted, 1);
}

/* ---- what is done costs nothing ---------------------------------------------------------- */

/* Rows and index entries of the table that were read so far, on PostgreSQL. The work below reads
 * some thousands of its own; a statement that goes through the kept rows reads CLAIMS_KEPT more. */
static int64_t reads_of(struct fixture *fixture)
{
	return engine_count(fixture->engine,
		"generate_series(1, (SELECT seq_tup_read + (SELECT sum(idx_tup_read) "
		"FROM pg_stat_user_indexes WHERE relname = t.relname) "
		"FROM pg_stat_user_tables t WHERE relname = '%s'))",
		fixture->subject->table);
}

/* Backends of the database, apart from that which counts them, and from those of a cluster's other
 * nodes. */
#define BACKENDS                                                                                   \
	"pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' " \
	"AND pid <> pg_backend_pid() AND application_name NOT LIKE 'citus_internal%%'"

/* A backend has told what it has read when it is gone, which is soon after its connection. */
static int64_t settled_reads_of(struct fixture *fixture)
{
	struct engine *engine = fixture->engine;

	engine_execute(engine, "CREATE TABLE earlier_backends AS SELECT pid FROM " BACKENDS);
	engine_restart(engine);
	WAIT_UNTIL(engine_count(
			   engine, BACKENDS " AND pid IN (SELECT pid FROM earlier_backends)") == 0);
	engine_execute(engine, "DROP TABLE earlier_backends");
	return reads_of(fixture);
}

static void work_on_all_statements(struct fixture *fixture, const char *name)
{
	struct session *session = fixture->engine->session;
	struct claim_terms terms = {.owner = slice_of("me"), .lease_us = LEASE_US};
	char text[16];
	size_t deleted;

	for (int i = 0; i < 4; i++) {
		snprintf(text, sizeof(text), "%s-%d", name, i);
		claim_fixture_put_many(fixture, text, 50);
		assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 50);
		engine_begin(session);
		assert_int_equal(fixture->claims->ops->renew(
					 fixture->claims, session, &terms, fixture->claim, 50),
			STATUS_OK);
		engine_commit(session);
		claim_fixture_end(fixture, "me");
		assert_true(claim_fixture_stats_of(fixture).pending == 0);
		assert_int_equal(fixture->claims->ops->sweep(
					 fixture->claims, session, MINUTE_US, 50, &deleted),
			STATUS_OK);
		assert_int_equal(fixture->claims->ops->sweep(
					 fixture->claims, session, -SECOND_US, 50, &deleted),
			STATUS_OK);
		assert_int_equal(deleted, 50);
	}
}

static void keep_many(struct fixture *fixture)
{
	engine_execute(fixture->engine, "%s", fixture->subject->keep_sql);
}

static void done_rows_are_never_read(struct fixture *fixture)
{
	int64_t before = settled_reads_of(fixture);

	work_on_all_statements(fixture, "b");
	assert_in_range(settled_reads_of(fixture) - before, 1, CLAIMS_KEPT - 1);
}

static void rows_that_are_done_are_not_read_by_any_statement(void **state)
{
	struct fixture *fixture = *state;

	if (engine_time_is_ours(fixture->engine))
		return; /* the statements name their indexes, and SQLite refuses to do without */
	keep_many(fixture);
	engine_execute(fixture->engine, "ANALYZE %s", fixture->subject->table);
	done_rows_are_never_read(fixture);
}

static void nor_while_the_planner_knows_nothing_of_them(void **state)
{
	struct fixture *fixture = *state;

	if (engine_time_is_ours(fixture->engine))
		return;
	keep_many(fixture);
	done_rows_are_never_read(fixture);
}

/* Statements are planned when they are first used, which is while the table is still small. */
static void nor_where_they_came_after_the_statements_were_planned(void **state)
{
	struct fixture *fixture = *state;
	int64_t before;

	if (engine_time_is_ours(fixture->engine))
		return;
	before = settled_reads_of(fixture);
	work_on_all_statements(fixture, "a");
	keep_many(fixture);
	work_on_all_statements(fixture, "b");
	assert_in_range(settled_reads_of(fixture) - before, 1, CLAIMS_KEPT - 1);
}

/* Autovacuum does that whenever it comes while all rows are swept. The planner believes it until
 * the next time, whatever has been added since. */
static void nor_where_the_table_was_empty_when_it_was_analyzed(void **state)
{
	struct fixture *fixture = *state;

	if (engine_time_is_ours(fixture->engine))
		return;
	work_on_all_statements(fixture, "a");
	engine_execute(fixture->engine, "ANALYZE %s", fixture->subject->table);
	keep_many(fixture);
	done_rows_are_never_read(fixture);
}

int claim_work_tests(const struct subject *subject, const char *name)
{
	const struct CMUnitTest tests[] = {
		ON(subject, every_row_is_done_once_whatever_the_leases),
		ON(subject, count_tells_how_many_are_in_each_state),
		ON(subject, sweep_deletes_what_is_done_for_longer_than_told),
		ON(subject, rows_that_are_done_are_not_read_by_any_statement),
		ON(subject, nor_while_the_planner_knows_nothing_of_them),
		ON(subject, nor_where_they_came_after_the_statements_were_planned),
		ON(subject, nor_where_the_table_was_empty_when_it_was_analyzed),
		ON(subject, sweep_takes_what_was_given_up_too),
	};

	return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
