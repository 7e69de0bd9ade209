/*
 * SQLite on a disk that fails, once for every call that could. Each run counts up in transactions
 * until the Nth call of a kind fails, goes on, and is then looked at in four ways: alive, as a
 * crash of the process would leave it, as a loss of power would leave it, and closed and opened
 * again.
 *
 *   answer              the change is there
 *   OK                  always
 *   STORE_UNAVAILABLE   never
 *   OUTCOME_UNKNOWN     or not; but wholly
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "adapters/store/sqlite/sqlite_internal.h"
#include "adapters/store/sqlite/sqlite_repositories.h"
#include "base/log.h"
#include "engine.h"
#include "faulty_disk.h"

#define TRANSACTIONS 11
#define CHECKPOINT_FRAMES 10
#define WAL_FRAMES_MAX 45
#define HOUR_US (3600LL * 1000000)

/* A reader that keeps checkpoints from being complete, in these transactions. */
#define READ_FROM 4
#define READ_TO 7

static const struct disk_plan plans[] = {
	{"an I/O error", DISK_WRITE | DISK_SYNC | DISK_TRUNCATE, .failures = 1},
	{"an I/O error of what was done", DISK_WRITE | DISK_SYNC | DISK_TRUNCATE, .failures = 1,
		.done_anyhow = true},
	{"a full disk", DISK_WRITE, .failures = 1, .full = true},
	{"a disk that stays full", DISK_WRITE, .failures = 25, .full = true},
	{"a sync that keeps failing", DISK_SYNC, .failures = 5},
	{"a disk that keeps failing", DISK_WRITE | DISK_SYNC | DISK_TRUNCATE, .failures = 9},
	{"a read that fails", DISK_READ, .failures = 1},
	{"shared memory that fails", DISK_SHM, .failures = 1},
};

static const char *const components[] = {"common", "counts", NULL};

static char memory_folder[] = "/dev/shm/quipu-faults-XXXXXX"; /* faster, where there is one */
static char disk_folder[] = "/tmp/quipu-faults-XXXXXX";
static char live_path[64];
static char copy_path[64];

struct run {
	struct store *store;
	struct session *session;
	enum status fates[TRANSACTIONS];
	int count;
	int unavailable;
	int unknown;
};

/* ---- stores ------------------------------------------------------------------------------ */

static void remove_database(const char *path)
{
	static const char *const endings[] = {"", "-wal", "-shm", "-journal"};

	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		char name[96];

		snprintf(name, sizeof(name), "%s%s", path, endings[i]);
		unlink(name);
	}
}

static int checkpoint_step = CHECKPOINT_FRAMES;

static struct store *new_store(const char *path)
{
	struct store *store = sqlite_store_new("faults", path, components, &clock_system);
	struct sqlite_writer *writer = &sqlite_store_of(store)->writer;

	writer->checkpoint_step = checkpoint_step;
	writer->wal_frames_max = WAL_FRAMES_MAX;
	return store;
}

static struct store *start_store(const char *path)
{
	struct store *store = new_store(path);
	char why[512] = "";

	if (!store->ops->start(store, why, sizeof(why)))
		fail_msg("%s", why);
	return store;
}

/* ---- one transaction --------------------------------------------------------------------- */

static struct slice row_name(int i, char *name)
{
	return slice_make(name, (size_t)snprintf(name, 128, "row %03d", i));
}

static const struct slice sum_name = SLICE("sum");

static struct idempotency_record key_of(int i, char *name)
{
	return (struct idempotency_record){
		.scope = SLICE("faults"), .key = row_name(i, name), .answer = {.http_status = 200}};
}

/*
 * Rows that fill pages of their own, more in some transactions than in others: nothing that comes
 * later writes those pages again.
 */
static struct slice padding_name(int i, int j, char *name)
{
	return slice_make(name, (size_t)snprintf(name, 128, "padding %03d %0100d", i, j));
}

static int padding_count(int i)
{
	return 40 - i / 2 % 4 * 10;
}

static enum status insert_padding(struct session *session, int i)
{
	enum status status = STATUS_OK;

	for (int j = 0; j < padding_count(i) && status == STATUS_OK; j++) {
		char name[128];
		struct count_edit edit = {
			.item_id = padding_name(i, j, name), .kind = COUNT_INSERT};

		status = sqlite_count_repository.ops->edit(
			&sqlite_count_repository, session, &edit, 1, 0);
	}
	return status;
}

/* Row i, a key, and one more in the sum: all of it or nothing. */
static enum status change(struct session *session, int i)
{
	char name[128];
	struct count_addition addition = {.item_id = sum_name, .sum = 1, .highest = 1};
	struct count_edit edit = {.item_id = row_name(i, name), .kind = COUNT_INSERT, .value = i};
	struct idempotency_record key = key_of(i, name);
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);

	if (status == STATUS_OK)
		status = sqlite_count_repository.ops->add(
			&sqlite_count_repository, session, &addition, 1);
	if (status == STATUS_OK)
		status = sqlite_count_repository.ops->edit(
			&sqlite_count_repository, session, &edit, 1, 0);
	if (status == STATUS_OK)
		status = session->ops->idempotency_put(session, &key, 1, HOUR_US);
	if (status == STATUS_OK)
		status = insert_padding(session, i);
	assert_int_not_equal(status, STATUS_OUTCOME_UNKNOWN);
	return status == STATUS_OK ? session->ops->commit(session) : status;
}

/* ---- looking ----------------------------------------------------------------------------- */

static void check_rows(const struct run *run, const struct count_row *rows, int64_t sum)
{
	int64_t there = 0;

	for (int i = 0; i < run->count; i++) {
		if (run->fates[i] == STATUS_OK)
			assert_true(rows[i].exists);
		if (run->fates[i] == STATUS_STORE_UNAVAILABLE)
			assert_false(rows[i].exists);
		there += rows[i].exists;
	}
	assert_int_equal(sum, there);
}

static void check_padding(
	const struct run *run, struct session *session, const struct count_row *rows)
{
	for (int i = 0; i < run->count; i++) {
		for (int j = 0; j < padding_count(i); j += padding_count(i) - 1) {
			char name[128];
			struct count_row row = {.item_id = padding_name(i, j, name)};

			assert_int_equal(sqlite_count_repository.ops->find(
						 &sqlite_count_repository, session, &row, 1),
				STATUS_OK);
			assert_int_equal(row.exists, rows[i].exists);
		}
	}
}

static void check_keys(const struct run *run, struct session *session, const struct count_row *rows)
{
	struct arena arena;

	arena_init(&arena, 4096);
	assert_int_equal(session->ops->begin(session, TRANSACTION_WAIT), STATUS_OK);
	for (int i = 0; i < run->count; i++) {
		char name[128];
		struct idempotency_record key = key_of(i, name);

		assert_int_equal(
			session->ops->idempotency_find(session, &arena, &key, 1), STATUS_OK);
		assert_int_equal(key.found, rows[i].exists);
	}
	session->ops->rollback(session);
	arena_release(&arena);
}

static void check_store(const struct run *run, struct store *store)
{
	struct session *session = store->ops->open_session(store, SESSION_READ);
	struct session *writer = store->ops->open_session(store, SESSION_WRITE);
	struct count_row rows[TRANSACTIONS + 1];
	char names[TRANSACTIONS][128];

	for (int i = 0; i < run->count; i++)
		rows[i] = (struct count_row){.item_id = row_name(i, names[i])};
	rows[run->count] = (struct count_row){.item_id = sum_name};
	assert_int_equal(sqlite_count_repository.ops->find(
				 &sqlite_count_repository, session, rows, (size_t)run->count + 1),
		STATUS_OK);
	assert_true(rows[run->count].exists);
	check_rows(run, rows, rows[run->count].value);
	check_padding(run, session, rows);
	check_keys(run, writer, rows);
	session_close(session);
	session_close(writer);
}

static void check_integrity(const char *path)
{
	sqlite3 *db;
	sqlite3_stmt *stmt;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(
		sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &stmt, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	assert_string_equal((const char *)sqlite3_column_text(stmt, 0), "ok");
	sqlite3_finalize(stmt);
	sqlite3_close(db);
}

static void check_copy(const struct run *run)
{
	struct store *store = start_store(copy_path);

	check_store(run, store);
	store->ops->free(store);
	check_integrity(copy_path);
	remove_database(copy_path);
}

/* What a loss of power keeps is drawn by lot, anew each time. */
static void check_what_would_be_left(const struct run *run)
{
	static uint64_t losses;

	disk_pause(true);
	disk_copy_after_crash(copy_path);
	check_copy(run);
	disk_copy_after_power_loss(copy_path, losses++);
	check_copy(run);
	disk_pause(false);
}

/* ---- a reader that stays ----------------------------------------------------------------- */

static struct {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool reading;
	bool may_go;
	struct store *store;
} stay = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Not for ever: after an I/O error the writer waits for it. */
static void wait_to_go(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 20 * NS_PER_MS;
	until.tv_sec += until.tv_nsec / NS_PER_S;
	until.tv_nsec %= NS_PER_S;
	pthread_mutex_lock(&stay.lock);
	stay.reading = true;
	pthread_cond_broadcast(&stay.changed);
	while (!stay.may_go && !pthread_cond_timedwait(&stay.changed, &stay.lock, &until))
		;
	pthread_mutex_unlock(&stay.lock);
}

static void *stay_inside(void *argument)
{
	struct session *session = stay.store->ops->open_session(stay.store, SESSION_READ);
	struct sqlite_session *reader = sqlite_session_of(session);
	enum status status = sqlite_snapshot_begin(reader);

	(void)argument;
	if (status == STATUS_OK) {
		struct sqlite_query query = sqlite_query_open(reader, "SELECT 1 FROM count_values");

		sqlite_query_start(&query, NULL, 0);
		sqlite_query_next(&query); /* from here on it sees what is there now */
		status = sqlite_query_close(&query);
	}
	wait_to_go();
	if (status == STATUS_OK)
		status = sqlite_snapshot_end(reader);
	(void)status; /* whether it can read is not what is tested here */
	session_close(session);
	return NULL;
}

static void start_reading(struct store *store)
{
	stay.store = store;
	stay.reading = false;
	stay.may_go = false;
	assert_int_equal(pthread_create(&stay.thread, NULL, stay_inside, NULL), 0);
	pthread_mutex_lock(&stay.lock);
	while (!stay.reading)
		pthread_cond_wait(&stay.changed, &stay.lock);
	pthread_mutex_unlock(&stay.lock);
}

static void stop_reading(void)
{
	pthread_mutex_lock(&stay.lock);
	stay.may_go = true;
	pthread_mutex_unlock(&stay.lock);
	pthread_cond_broadcast(&stay.changed);
	pthread_join(stay.thread, NULL);
}

/* ---- runs -------------------------------------------------------------------------------- */

static void open_run(struct run *run)
{
	struct count_edit edit = {.item_id = sum_name, .kind = COUNT_INSERT};

	*run = (struct run){.store = start_store(live_path)};
	run->session = run->store->ops->open_session(run->store, SESSION_WRITE);
	engine_begin(run->session);
	assert_int_equal(sqlite_count_repository.ops->edit(
				 &sqlite_count_repository, run->session, &edit, 1, 0),
		STATUS_OK);
	engine_commit(run->session);
	disk_watch(live_path);
}

static void step(struct run *run)
{
	enum status status = change(run->session, run->count);

	run->fates[run->count++] = status;
	if (status == STATUS_OK)
		return;
	if (status == STATUS_OUTCOME_UNKNOWN)
		run->unknown++;
	else
		assert_int_equal(status, STATUS_STORE_UNAVAILABLE);
	run->unavailable += status == STATUS_STORE_UNAVAILABLE;
	assert_false(run->store->ops->is_up(run->store));
	if (run->unavailable + run->unknown <= 2)
		check_what_would_be_left(run);
}

/* The disk is well again: everything works at once. */
static void finish_run(struct run *run)
{
	assert_int_equal(change(run->session, run->count), STATUS_OK);
	run->fates[run->count++] = STATUS_OK;
	check_store(run, run->store);
	assert_true(run->store->ops->is_up(run->store));
	check_what_would_be_left(run);
	session_close(run->session);
	run->store->ops->free(run->store);
	run->store = start_store(live_path);
	check_store(run, run->store);
	run->store->ops->free(run->store);
	check_integrity(live_path);
	disk_unwatch();
	remove_database(live_path);
}

/* Returns false when the Nth call was never made: the run was clean. */
static bool run_with_fault(const struct disk_plan *plan, int nth, struct run *run)
{
	bool has_failed;

	open_run(run);
	disk_arm(plan, nth);
	while (run->count < TRANSACTIONS - 1) {
		if (run->count == READ_FROM)
			start_reading(run->store);
		step(run);
		if (run->count == READ_TO)
			stop_reading();
	}
	has_failed = disk_disarm();
	finish_run(run);
	return has_failed;
}

static void run_with_every_fault(const struct disk_plan *plan)
{
	int stride = plan->failures == 1 ? 1 : 4; /* long outages differ little from the next */
	int nth = 1, unavailable = 0, unknown = 0;
	struct run run;

	while (run_with_fault(plan, nth, &run)) {
		unavailable += run.unavailable;
		unknown += run.unknown;
		nth += stride;
	}
	assert_int_equal(run.unavailable + run.unknown, 0);
	print_message("%s: up to call %d: %d unavailable, %d unknown\n", plan->name, nth,
		unavailable, unknown);
}

static void every_fault_is_told_truly(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++)
		run_with_every_fault(&plans[i]);
}

/* A transaction that is as long as the one before, in its place, must not be taken for it. */
static void so_it_is_where_every_transaction_starts_the_wal_over(void **state)
{
	(void)state;
	checkpoint_step = 1;
	run_with_every_fault(&plans[1]);
	checkpoint_step = CHECKPOINT_FRAMES;
}

static void step_with_checkpoint(struct run *run)
{
	sqlite_store_of(run->store)->writer.checkpoint_at = 0;
	step(run);
}

/*
 * While somebody reads, a checkpoint is partial and not synced. When the sync of the next one
 * fails, the kernel has forgotten the pages of both.
 */
static void a_failed_sync_puts_the_checkpoint_before_in_doubt(void **state)
{
	static const struct disk_plan second_sync = {"", DISK_SYNC, .failures = 1};
	struct run run;

	(void)state;
	checkpoint_step = 1000;
	open_run(&run);
	step(&run);
	step(&run);
	start_reading(run.store);
	step(&run);
	step_with_checkpoint(&run);
	stop_reading();
	disk_arm(&second_sync, 2); /* the first is the WAL's */
	step_with_checkpoint(&run);
	assert_true(disk_disarm());
	step_with_checkpoint(&run);
	step_with_checkpoint(&run);
	assert_int_equal(run.unavailable + run.unknown, 0);
	finish_run(&run);
	checkpoint_step = CHECKPOINT_FRAMES;
}

static bool read_with_fault(struct store *store, int nth)
{
	static const struct disk_plan plan = {"", DISK_READ | DISK_SHM, .failures = 1};
	struct session *session = store->ops->open_session(store, SESSION_READ);
	struct count_row row = {.item_id = sum_name};
	enum status status;
	bool has_failed;

	disk_arm(&plan, nth);
	status = sqlite_count_repository.ops->find(&sqlite_count_repository, session, &row, 1);
	has_failed = disk_disarm();
	assert_int_equal(status, has_failed ? STATUS_STORE_UNAVAILABLE : STATUS_OK);
	assert_int_equal(store->ops->is_up(store), !has_failed);
	assert_int_equal(
		sqlite_count_repository.ops->find(&sqlite_count_repository, session, &row, 1),
		STATUS_OK);
	assert_true(row.exists && store->ops->is_up(store));
	session_close(session);
	return has_failed;
}

static void a_read_that_fails_says_so_and_the_next_works(void **state)
{
	struct run run;
	int nth = 1;

	(void)state;
	open_run(&run);
	while (read_with_fault(run.store, nth))
		nth++;
	assert_true(nth > 2);
	finish_run(&run);
}

/* Start either works or says why, and works once the disk does. */
static bool start_with_fault(const struct disk_plan *plan, int nth)
{
	struct store *store = new_store(live_path);
	char why[512] = "";
	bool has_failed;

	disk_arm(plan, nth);
	if (!store->ops->start(store, why, sizeof(why)))
		assert_true(strlen(why) > strlen(live_path));
	has_failed = disk_disarm();
	store->ops->free(store);
	store = start_store(live_path);
	store->ops->free(store);
	check_integrity(live_path);
	remove_database(live_path);
	return has_failed;
}

static void every_fault_at_start_is_a_sentence(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		int nth = 1;

		while (start_with_fault(&plans[i], nth))
			nth++;
		print_message("%s: %d starts\n", plans[i].name, nth);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_fault_is_told_truly),
		cmocka_unit_test(so_it_is_where_every_transaction_starts_the_wal_over),
		cmocka_unit_test(a_failed_sync_puts_the_checkpoint_before_in_doubt),
		cmocka_unit_test(a_read_that_fails_says_so_and_the_next_works),
		cmocka_unit_test(every_fault_at_start_is_a_sentence),
	};
	const char *folder = mkdtemp(memory_folder);
	int failed;

	log_configure((enum log_level)(LOG_ERROR + 1), LOG_TEXT); /* thousands of expected lines */
	disk_install();
	if (!folder)
		folder = mkdtemp(disk_folder);
	if (!folder)
		return 1;
	snprintf(live_path, sizeof(live_path), "%s/live.db", folder);
	snprintf(copy_path, sizeof(copy_path), "%s/copy.db", folder);
	failed = cmocka_run_group_tests_name("sqlite_faults", tests, NULL, NULL);
	remove_database(live_path);
	remove_database(copy_path);
	rmdir(folder);
	return failed;
}
