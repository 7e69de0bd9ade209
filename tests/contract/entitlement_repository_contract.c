/* What ports/entitlement_repository.h promises, on one engine. */
#include <pthread.h>
#include <stdio.h>

#include "engine.h"
#include "entitlement_contract.h"

#define START_US 1767855000123456LL
#define DAY_US (24 * 3600 * 1000000LL)

static struct entitlement_row row_of(struct engine *engine, const char *user, const char *unit)
{
	return (struct entitlement_row){
		.user_id = engine_name(engine, user),
		.unit = slice_of(unit),
		.is_active = true,
		.version = 1,
		.updated_us = START_US,
	};
}

/* In a transaction: rows without sources or lines. */
static enum status put_rows(struct engine *engine, struct session *session,
	const struct entitlement_row *rows, size_t count)
{
	struct entitlement_changes changes = {.rows = rows, .row_count = count};

	return engine->entitlements->ops->put(engine->entitlements, session, &changes);
}

static enum status put(struct engine *engine, struct session *session,
	const struct entitlement_row *rows, size_t count)
{
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);

	if (status == STATUS_OK)
		status = put_rows(engine, session, rows, count);
	return status == STATUS_OK ? session->ops->commit(session) : status;
}

static void put_new(struct engine *engine, const char *user, const char *unit)
{
	struct entitlement_row row = row_of(engine, user, unit);

	assert_int_equal(put(engine, engine->session, &row, 1), STATUS_OK);
}

static struct entitlement_query page_of(
	struct engine *engine, const char *user, const char *after, size_t limit)
{
	return (struct entitlement_query){
		.user_id = engine_name(engine, user), .after = slice_of(after), .limit = limit};
}

static void list(struct engine *engine, struct entitlement_query *pages, size_t count)
{
	struct session *session = engine_session(engine, SESSION_READ);

	assert_int_equal(engine->entitlements->ops->list(
				 engine->entitlements, session, &engine->arena, pages, count),
		STATUS_OK);
}

static struct entitlement_row find_one(struct engine *engine, const char *user)
{
	struct entitlement_query page = page_of(engine, user, "", 1);

	list(engine, &page, 1);
	return page.row_count == 1 ? page.rows[0] : (struct entitlement_row){.exists = false};
}

/* ---- rows -------------------------------------------------------------------------------- */

static void what_is_put_is_listed_to_the_microsecond(void **state)
{
	struct engine *engine = *state;
	struct entitlement_row row;

	put_new(engine, "a", "item1");
	row = find_one(engine, "a");
	assert_true(row.exists && row.is_active && !row.busy);
	assert_true(slice_equal(row.user_id, engine_name(engine, "a")));
	assert_true(slice_is(row.unit, "item1"));
	assert_true(row.version == 1);
	assert_true(row.updated_us == START_US);
	assert_false(find_one(engine, "nobody").exists);
}

static void lock_fills_what_exists_and_tells_the_time(void **state)
{
	struct engine *engine = *state;
	struct entitlement_row rows[3] = {row_of(engine, "a", "x"), row_of(engine, "b", "item1"),
		row_of(engine, "b", "item2")};
	int64_t now_us = 0;

	put_new(engine, "b", "item1");
	rows[0].exists = true;
	rows[1].version = 0;
	engine_begin(engine->session);
	assert_int_equal(engine->entitlements->ops->lock(
				 engine->entitlements, engine->session, rows, 3, &now_us),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_false(rows[0].exists);
	assert_true(rows[1].exists && rows[1].is_active && rows[1].version == 1);
	assert_false(rows[2].exists);
	assert_true(now_us > START_US);
}

static void put_replaces_rows_and_makes_new_ones_together(void **state)
{
	struct engine *engine = *state;
	struct entitlement_row rows[2] = {row_of(engine, "a", "x"), row_of(engine, "b", "x")};

	put_new(engine, "b", "x");
	rows[1].exists = true;
	rows[1].is_active = false;
	rows[1].version = 2;
	rows[1].step = 5;
	rows[1].updated_us = START_US + 1;
	assert_int_equal(put(engine, engine->session, rows, 2), STATUS_OK);
	assert_true(find_one(engine, "a").is_active);
	assert_false(find_one(engine, "b").is_active);
	assert_true(find_one(engine, "b").version == 2);
	assert_true(find_one(engine, "b").updated_us == START_US + 1);
	assert_int_equal(engine_count(engine,
				 "entitlements WHERE user_id = '%s' AND status = "
				 "'REVOKED' AND version = 2 AND step = 5",
				 engine_name(engine, "b").data),
		1);
}

static void a_rolled_back_put_leaves_nothing(void **state)
{
	struct engine *engine = *state;
	struct entitlement_row row = row_of(engine, "a", "x");

	engine_begin(engine->session);
	assert_int_equal(put_rows(engine, engine->session, &row, 1), STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_false(find_one(engine, "a").exists);
}

/* ---- lists ------------------------------------------------------------------------------- */

static void a_list_is_sorted_by_unit_and_pages_go_on_behind_the_last(void **state)
{
	struct engine *engine = *state;
	struct entitlement_query pages[2] = {
		page_of(engine, "a", "", 2), page_of(engine, "a", "b", 10)};

	put_new(engine, "a", "b");
	put_new(engine, "a", "\xc3\xa4");
	put_new(engine, "a", "B");
	put_new(engine, "ab", "a");
	list(engine, pages, 2);
	assert_int_equal(pages[0].row_count, 2);
	assert_true(slice_is(pages[0].rows[0].unit, "B"));
	assert_true(slice_is(pages[0].rows[1].unit, "b"));
	assert_int_equal(pages[1].row_count, 1);
	assert_true(slice_is(pages[1].rows[0].unit, "\xc3\xa4"));
}

static void lists_of_several_users_come_together(void **state)
{
	struct engine *engine = *state;
	struct entitlement_query pages[3] = {page_of(engine, "c", "", 5),
		page_of(engine, "nobody", "", 5), page_of(engine, "a", "", 50)};

	for (int i = 0; i < 20; i++) {
		char unit[16];

		snprintf(unit, sizeof(unit), "item%02d", i);
		put_new(engine, "a", unit);
		put_new(engine, "c", unit);
	}
	list(engine, pages, 3);
	assert_int_equal(pages[0].row_count, 5);
	assert_int_equal(pages[1].row_count, 0);
	assert_int_equal(pages[2].row_count, 20);
	for (int i = 0; i < 20; i++) {
		char unit[16];

		snprintf(unit, sizeof(unit), "item%02d", i);
		assert_true(slice_is(pages[2].rows[i].unit, unit));
		assert_true(slice_equal(pages[2].rows[i].user_id, engine_name(engine, "a")));
	}
}

static void a_list_can_be_restricted_to_a_status(void **state)
{
	struct engine *engine = *state;
	struct entitlement_row revoked = row_of(engine, "a", "b");
	struct entitlement_query pages[3] = {page_of(engine, "a", "", 5),
		page_of(engine, "a", "", 1), page_of(engine, "a", "a", 5)};

	revoked.is_active = false;
	put_new(engine, "a", "a");
	put_new(engine, "a", "c");
	assert_int_equal(put(engine, engine->session, &revoked, 1), STATUS_OK);
	pages[1].status = slice_of("REVOKED");
	pages[2].status = slice_of("ACTIVE");
	list(engine, pages, 3);
	assert_int_equal(pages[0].row_count, 3);
	assert_int_equal(pages[1].row_count, 1);
	assert_true(slice_is(pages[1].rows[0].unit, "b") && !pages[1].rows[0].is_active);
	assert_int_equal(pages[2].row_count, 1);
	assert_true(slice_is(pages[2].rows[0].unit, "c") && pages[2].rows[0].is_active);
}

/* ---- two sessions ------------------------------------------------------------------------ */

static void put_of_a_row_that_another_session_made_first_is_rerun(void **state)
{
	struct engine *engine = *state;
	struct session *other = engine_session(engine, SESSION_WRITE);
	struct entitlement_row row = row_of(engine, "a", "x");

	if (engine_time_is_ours(engine))
		return; /* there the other session has to wait for its turn before it can look */
	engine_begin(engine->session);
	assert_int_equal(engine->entitlements->ops->lock(
				 engine->entitlements, engine->session, &row, 1, &(int64_t){0}),
		STATUS_OK);
	row.is_active = true;
	row.version = 1;
	assert_int_equal(put(engine, other, &row, 1), STATUS_OK);
	row.version = 7;
	assert_int_equal(put_rows(engine, engine->session, &row, 1), STATUS_RERUN);
	assert_true(find_one(engine, "a").version == 1);
}

static void a_row_that_another_session_holds_is_waited_for_or_skipped(void **state)
{
	struct engine *engine = *state;
	struct session *other = engine_session(engine, SESSION_WRITE);
	struct entitlement_row rows[3] = {
		row_of(engine, "a", "x"), row_of(engine, "a", "y"), row_of(engine, "a", "z")};
	int64_t now_us;

	if (engine_time_is_ours(engine))
		return; /* whoever has the turn has every row */
	put_new(engine, "a", "x");
	put_new(engine, "a", "y");
	engine_begin(other);
	assert_int_equal(
		engine->entitlements->ops->lock(engine->entitlements, other, &rows[0], 1, &now_us),
		STATUS_OK);
	engine_begin(engine->session);
	assert_int_equal(engine->entitlements->ops->lock(
				 engine->entitlements, engine->session, rows, 3, &now_us),
		STATUS_LOCK_BUSY);
	assert_int_equal(engine->session->ops->begin(engine->session, TRANSACTION_SKIP), STATUS_OK);
	if (engine_is_a_cluster()) {
		assert_int_equal(engine->entitlements->ops->lock(
					 engine->entitlements, engine->session, rows, 3, &now_us),
			STATUS_LOCK_BUSY);
		other->ops->rollback(other);
		return;
	}
	assert_int_equal(engine->entitlements->ops->lock(
				 engine->entitlements, engine->session, rows, 3, &now_us),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
	other->ops->rollback(other);
	assert_true(rows[0].busy && !rows[0].exists);
	assert_true(!rows[1].busy && rows[1].exists);
	assert_true(!rows[2].busy && !rows[2].exists);
}

#define ROUNDS 100

struct changer {
	struct engine *engine;
	struct session *session;
};

/* As the service does it: the version grows by one with every change. */
static bool change_once(const struct changer *changer)
{
	const struct entitlement_repository *entitlements = changer->engine->entitlements;
	struct session *session = changer->session;
	struct entitlement_row row = {
		.user_id = slice_of(changer->engine->prefix), .unit = slice_of("x")};
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);
	int64_t now_us;

	if (status == STATUS_OK)
		status = entitlements->ops->lock(entitlements, session, &row, 1, &now_us);
	if (status != STATUS_OK)
		return false;
	row.version = row.exists ? row.version + 1 : 1;
	row.is_active = !row.exists || !row.is_active;
	row.updated_us = now_us;
	status = put_rows(changer->engine, session, &row, 1);
	return status == STATUS_OK && session->ops->commit(session) == STATUS_OK;
}

static void *change_many(void *argument)
{
	for (int done = 0; done < ROUNDS;)
		done += change_once(argument);
	return NULL;
}

static void no_change_of_two_sessions_is_lost(void **state)
{
	struct engine *engine = *state;
	struct changer changers[2];
	pthread_t threads[2];
	struct entitlement_row row;

	for (int i = 0; i < 2; i++) {
		changers[i] = (struct changer){engine, engine_session(engine, SESSION_WRITE)};
		assert_int_equal(pthread_create(&threads[i], NULL, change_many, &changers[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	row = find_one(engine, "");
	assert_true(row.version == 2 * ROUNDS);
	assert_false(row.is_active);
}

/* ---- the audit --------------------------------------------------------------------------- */

static void write_line(struct engine *engine, const char *user, int64_t at_us)
{
	struct entitlement_audit line = {
		.user_id = engine_name(engine, user),
		.unit = slice_of("item1"),
		.is_active = true,
		.version = 12,
		.step = 3,
		.reason = slice_of("purchase"),
		.purchase_id = slice_of("p_456"),
		.event_id = engine_uuid(engine, user),
		.at_us = at_us,
	};
	struct entitlement_changes changes = {.lines = &line, .line_count = 1};
	enum status status;

	do { /* what tends the audit may hold it for longer than a line waits */
		engine_begin(engine->session);
		status = engine->entitlements->ops->put(
			engine->entitlements, engine->session, &changes);
	} while (engine_is_collision(status));
	assert_int_equal(status, STATUS_OK);
	engine_commit(engine->session);
}

static int64_t lines_of(struct engine *engine, const char *user)
{
	return engine_count(
		engine, "entitlement_audit WHERE user_id = '%s'", engine_name(engine, user).data);
}

static void tend(struct engine *engine, int keep_months)
{
	assert_int_equal(engine->entitlements->ops->tend_audit(
				 engine->entitlements, engine->session, keep_months),
		STATUS_OK);
}

static int64_t now_us(struct engine *engine)
{
	struct entitlement_row row = row_of(engine, "nobody", "x");
	int64_t now_us = 0;

	engine_begin(engine->session);
	assert_int_equal(engine->entitlements->ops->lock(
				 engine->entitlements, engine->session, &row, 1, &now_us),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
	return now_us;
}

static void a_line_of_the_audit_says_what_was_done(void **state)
{
	struct engine *engine = *state;
	struct slice event_id = engine_uuid(engine, "a");

	write_line(engine, "a", START_US);
	assert_int_equal(engine_count(engine,
				 "entitlement_audit WHERE user_id = '%s' AND "
				 "stock_keeping_unit = 'item1' AND action = 'GRANTED' AND "
				 "version = 12 AND step = 3 AND reason = 'purchase' AND "
				 "purchase_id = 'p_456' "
				 "AND event_id = '%s'",
				 engine_name(engine, "a").data, event_id.data),
		1);
}

static struct audit_page read_audit(
	struct engine *engine, const char *user, struct entitlement_audit before, size_t limit)
{
	struct audit_page page = {
		.user_id = engine_name(engine, user),
		.before = before,
		.limit = limit,
		.lines = arena_array(&engine->arena, struct entitlement_audit, limit),
	};

	assert_int_equal(engine->entitlements->ops->read_audit(engine->entitlements,
				 engine_session(engine, SESSION_READ), &engine->arena, &page),
		STATUS_OK);
	return page;
}

static void the_audit_of_a_user_is_read_backwards_across_months(void **state)
{
	static const int64_t days[] = {-70, -40, -40, 0, 0};
	struct engine *engine = *state;
	int64_t start_us = now_us(engine);
	struct entitlement_audit before = {.at_us = AUDIT_NEWEST_US};
	struct audit_page page;

	write_line(engine, "b", start_us);
	for (size_t i = 0; i < 5; i++)
		write_line(engine, "a", start_us + days[i] * DAY_US + (int64_t)i);
	for (size_t i = 5; i-- > 0;) {
		page = read_audit(engine, "a", before, 1);
		assert_int_equal(page.count, 1);
		assert_true(page.lines[0].at_us == start_us + days[i] * DAY_US + (int64_t)i);
		assert_true(slice_equal(page.lines[0].user_id, engine_name(engine, "a")));
		before = page.lines[0];
	}
	assert_int_equal(read_audit(engine, "a", before, 9).count, 0);
	before.at_us = AUDIT_NEWEST_US;
	assert_int_equal(read_audit(engine, "a", before, 9).count, 5);
	assert_int_equal(read_audit(engine, "nobody", before, 9).count, 0);
}

static void old_months_of_the_audit_go_and_the_kept_ones_stay(void **state)
{
	struct engine *engine = *state;

	write_line(engine, "now", now_us(engine));
	write_line(engine, "earlier", now_us(engine) - 5 * DAY_US);
	write_line(engine, "old", START_US);
	tend(engine, 0);
	assert_int_equal(lines_of(engine, "old"), 1);
	engine_shift_us(engine, 62 * DAY_US);
	write_line(engine, "later", now_us(engine));
	tend(engine, 3);
	assert_int_equal(lines_of(engine, "now"), 1);
	assert_int_equal(lines_of(engine, "earlier"), 1);
	tend(engine, 1);
	assert_int_equal(lines_of(engine, "now"), 0);
	assert_int_equal(lines_of(engine, "earlier"), 0);
	assert_int_equal(lines_of(engine, "later"), 1);
	assert_int_equal(lines_of(engine, "old"), 0);
}

static int64_t default_lines(struct engine *engine, const char *user)
{
	return engine_count(engine, "entitlement_audit_default WHERE user_id = '%s'",
		engine_name(engine, user).data);
}

static void lines_that_came_before_their_month_was_made_move_into_it(void **state)
{
	struct engine *engine = *state;
	int64_t later_us = now_us(engine) + 200 * DAY_US;

	if (engine_time_is_ours(engine))
		return; /* no partitions */
	tend(engine, 0);
	write_line(engine, "early", later_us);
	write_line(engine, "now", now_us(engine));
	assert_int_equal(default_lines(engine, "early"), 1);
	assert_int_equal(default_lines(engine, "now"), 0);
	engine_shift_us(engine, 190 * DAY_US);
	tend(engine, 0);
	assert_int_equal(default_lines(engine, "early"), 0);
	assert_int_equal(lines_of(engine, "early"), 1);
	write_line(engine, "on time", later_us + 1);
	assert_int_equal(default_lines(engine, "on time"), 0);
}

/* Every day of a year and a half, so that all month ends are among them. */
static void there_is_always_a_partition_for_today(void **state)
{
	struct engine *engine = *state;
	int64_t start_us = now_us(engine);

	if (engine_time_is_ours(engine))
		return; /* no partitions */
	for (int month = 0; month < 18; month++) {
		engine_shift_us(engine, 30 * DAY_US + DAY_US / 2);
		tend(engine, 0);
		for (int day = 0; day < 95; day += 3)
			write_line(
				engine, "a", start_us + engine->shifted_us + day * DAY_US + month);
	}
	assert_int_equal(default_lines(engine, "a"), 0);
	assert_int_equal(lines_of(engine, "a"), 18 * 32);
	engine_execute(engine, "SELECT quipu_drop_audit_months(0)");
}

static void *tend_often(void *argument)
{
	const struct changer *changer = argument;

	for (int i = 0; i < 20; i++) {
		enum status status = changer->engine->entitlements->ops->tend_audit(
			changer->engine->entitlements, changer->session, 2);

		assert_true(status == STATUS_OK || engine_is_collision(status));
	}
	return NULL;
}

static void two_sessions_may_tend_the_audit_at_once(void **state)
{
	struct engine *engine = *state;
	struct changer changers[2];
	pthread_t threads[2];

	engine_shift_us(engine, 400 * DAY_US);
	for (int i = 0; i < 2; i++) {
		changers[i] = (struct changer){engine, engine_session(engine, SESSION_WRITE)};
		assert_int_equal(pthread_create(&threads[i], NULL, tend_often, &changers[i]), 0);
	}
	for (int i = 0; i < 40; i++)
		write_line(engine, i % 2 ? "a" : "b", now_us(engine) + i);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(lines_of(engine, "a") + lines_of(engine, "b"), 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(what_is_put_is_listed_to_the_microsecond),
		ENGINE_TEST(lock_fills_what_exists_and_tells_the_time),
		ENGINE_TEST(put_replaces_rows_and_makes_new_ones_together),
		ENGINE_TEST(a_rolled_back_put_leaves_nothing),
		ENGINE_TEST(a_list_is_sorted_by_unit_and_pages_go_on_behind_the_last),
		ENGINE_TEST(lists_of_several_users_come_together),
		ENGINE_TEST(a_list_can_be_restricted_to_a_status),
		ENGINE_TEST(put_of_a_row_that_another_session_made_first_is_rerun),
		ENGINE_TEST(a_row_that_another_session_holds_is_waited_for_or_skipped),
		ENGINE_TEST(no_change_of_two_sessions_is_lost),
		ENGINE_TEST(a_line_of_the_audit_says_what_was_done),
		ENGINE_TEST(the_audit_of_a_user_is_read_backwards_across_months),
		ENGINE_TEST(old_months_of_the_audit_go_and_the_kept_ones_stay),
		ENGINE_TEST(lines_that_came_before_their_month_was_made_move_into_it),
		ENGINE_TEST(there_is_always_a_partition_for_today),
		ENGINE_TEST(two_sessions_may_tend_the_audit_at_once),
	};

	return cmocka_run_group_tests_name("entitlement repository", tests, NULL, NULL) +
	       entitlement_source_tests();
}
