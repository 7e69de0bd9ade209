/* What is special to a store that is a file: start, other programs, the WAL, turns. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adapters/store/sqlite/sqlite_internal.h"
#include "adapters/store/sqlite/sqlite_repositories.h"
#include "base/log.h"
#include "engine.h"
#include "waiting.h"

static const char *const components[] = {"common", "counts", NULL};

struct place {
	char folder[64];
	char path[96];
	struct store *store;
	struct session *session;
};

/* ---- time -------------------------------------------------------------------------------- */

static _Atomic int64_t advanced_ns;

static int64_t wall_us(const struct clock *clock)
{
	(void)clock;
	return clock_wall_us(&clock_system);
}

static int64_t steady_ns(const struct clock *clock)
{
	(void)clock;
	return clock_steady_ns(&clock_system) + advanced_ns;
}

static const struct clock clock_moved = {.wall_us = wall_us, .steady_ns = steady_ns};

#define NOBODY 65534 /* a user who owns nothing */

/* ---- places ------------------------------------------------------------------------------ */

static int make_place(void **state)
{
	struct place *place = qp_calloc(1, sizeof(*place));

	snprintf(place->folder, sizeof(place->folder), "/tmp/quipu-file-XXXXXX");
	assert_non_null(mkdtemp(place->folder));
	snprintf(place->path, sizeof(place->path), "%s/counts.db", place->folder);
	*state = place;
	return 0;
}

static void open_place(struct place *place)
{
	char why[512] = "";

	place->store = sqlite_store_new("file", place->path, components, &clock_moved);
	if (!place->store->ops->start(place->store, why, sizeof(why)))
		fail_msg("%s", why);
	place->session = place->store->ops->open_session(place->store, SESSION_WRITE);
}

static void close_place(struct place *place)
{
	if (!place->store)
		return;
	session_close(place->session);
	place->store->ops->free(place->store);
	place->store = NULL;
}

static long size_of(const struct place *place, const char *ending)
{
	char path[128];
	struct stat facts;

	snprintf(path, sizeof(path), "%s%s", place->path, ending);
	return stat(path, &facts) == 0 ? (long)facts.st_size : -1;
}

static int remove_place(void **state)
{
	static const char *const endings[] = {"", "-wal", "-shm"};
	struct place *place = *state;

	close_place(place);
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		char path[128];

		snprintf(path, sizeof(path), "%s%s", place->path, endings[i]);
		unlink(path);
	}
	rmdir(place->folder);
	free(place);
	return 0;
}

static void run_sql(const struct place *place, const char *sql)
{
	sqlite3 *db;

	assert_int_equal(sqlite3_open(place->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* ---- start ------------------------------------------------------------------------------- */

static void assert_refused(const char *path, const char *because)
{
	struct store *store = sqlite_store_new("file", path, components, &clock_moved);
	char why[512] = "";

	assert_false(store->ops->start(store, why, sizeof(why)));
	assert_non_null(strstr(why, path));
	if (!strstr(why, because))
		fail_msg("\"%s\" does not say \"%s\"", why, because);
	assert_false(store->ops->is_up(store));
	store->ops->free(store);
}

static void start_refuses_what_cannot_be_opened(void **state)
{
	struct place *place = *state;
	char path[128];

	assert_refused(place->folder, "cannot be used");
	snprintf(path, sizeof(path), "%s/nowhere/counts.db", place->folder);
	assert_refused(path, "No such file or directory");
}

static void start_refuses_what_is_not_a_database(void **state)
{
	struct place *place = *state;
	FILE *file = fopen(place->path, "w");

	for (int i = 0; i < 1000; i++)
		fputs("this is a letter, not a database\n", file);
	fclose(file);
	assert_refused(place->path, "is not an SQLite database");
	assert_int_equal(size_of(place, ""), 33000);
}

static void start_refuses_what_it_may_not_write(void **state)
{
	struct place *place = *state;
	bool is_root = geteuid() == 0;

	open_place(place);
	close_place(place);
	chmod(place->folder, 0755);
	chmod(place->path, 0444);
	if (is_root)
		assert_int_equal(seteuid(NOBODY), 0); /* root may write everything */
	assert_refused(place->path, "cannot be written");
	if (is_root)
		assert_int_equal(seteuid(0), 0);
}

static void start_refuses_a_newer_schema(void **state)
{
	struct place *place = *state;

	open_place(place);
	close_place(place);
	run_sql(place, "INSERT INTO schema_migrations VALUES ('counts', 9999, 'future', 0)");
	assert_refused(place->path, "newer");
}

static void start_waits_for_nobody_for_ever(void **state)
{
	struct place *place = *state;
	sqlite3 *db;

	assert_int_equal(sqlite3_open(place->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
	assert_refused(place->path, "in use by another program");
	sqlite3_close(db);
}

static void a_clean_end_leaves_one_file(void **state)
{
	struct place *place = *state;

	open_place(place);
	assert_true(size_of(place, "-wal") >= 0);
	close_place(place);
	assert_int_equal(size_of(place, "-wal"), -1);
	assert_int_equal(size_of(place, "-shm"), -1);
	assert_true(size_of(place, "") > 0);
}

/* ---- other programs ---------------------------------------------------------------------- */

static enum status add_one(struct session *session)
{
	struct count_addition addition = {.item_id = SLICE("a"), .sum = 1, .highest = 1};
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);

	if (status == STATUS_OK)
		status = sqlite_count_repository.ops->add(
			&sqlite_count_repository, session, &addition, 1);
	return status == STATUS_OK ? session->ops->commit(session) : status;
}

static void insert(struct session *session, struct slice id)
{
	struct count_edit edit = {.item_id = id, .kind = COUNT_INSERT};

	engine_begin(session);
	assert_int_equal(
		sqlite_count_repository.ops->edit(&sqlite_count_repository, session, &edit, 1, 0),
		STATUS_OK);
	engine_commit(session);
}

static void another_program_that_writes_makes_the_store_unavailable(void **state)
{
	struct place *place = *state;
	struct store *store;
	sqlite3 *db;

	open_place(place);
	store = place->store;
	insert(place->session, (struct slice)SLICE("a"));
	assert_int_equal(sqlite3_open(place->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(add_one(place->session), STATUS_STORE_UNAVAILABLE);
	assert_int_equal(store->ops->error_count(store, STATUS_STORE_UNAVAILABLE), 1);
	assert_false(store->ops->is_up(store));
	advanced_ns += 5 * NS_PER_S;
	assert_true(store->ops->is_up(store)); /* time to try again */
	sqlite3_close(db);
	assert_int_equal(add_one(place->session), STATUS_OK);
	assert_true(store->ops->is_up(store));
}

static struct sqlite_writer *keep_short(struct place *place, int step, int frames_max)
{
	struct sqlite_writer *writer = &sqlite_store_of(place->store)->writer;

	writer->checkpoint_step = writer->checkpoint_at = step;
	writer->wal_frames_max = frames_max;
	return writer;
}

static void another_program_that_reads_does_not_stop_writes(void **state)
{
	struct place *place = *state;
	struct sqlite_writer *writer;
	sqlite3 *db;

	open_place(place);
	writer = keep_short(place, 4, 4);
	insert(place->session, (struct slice)SLICE("a"));
	assert_int_equal(sqlite3_open(place->path, &db), SQLITE_OK);
	assert_int_equal(
		sqlite3_exec(db, "BEGIN; SELECT * FROM count_values", NULL, NULL, NULL), SQLITE_OK);
	for (int i = 0; i < 50; i++)
		assert_int_equal(add_one(place->session), STATUS_OK);
	writer->in_doubt = true; /* as after an I/O error: opened anew beside the reader */
	assert_int_equal(add_one(place->session), STATUS_OK);
	sqlite3_close(db);
	assert_int_equal(add_one(place->session), STATUS_OK);
}

static void a_table_that_is_gone_is_poison(void **state)
{
	struct place *place = *state;

	open_place(place);
	run_sql(place, "DROP TABLE count_values");
	assert_int_equal(add_one(place->session), STATUS_POISON);
	assert_int_equal(add_one(place->session), STATUS_POISON);
}

/* ---- the WAL ----------------------------------------------------------------------------- */

#define READERS 2
#define READ_ROWS 200
#define FRAMES_MAX 100
#define FRAME_BYTES 4120

static _Atomic bool reading;

static void *read_on(void *argument)
{
	struct store *store = argument;
	struct session *session = store->ops->open_session(store, SESSION_READ);
	struct count_row rows[READ_ROWS];

	for (size_t i = 0; i < READ_ROWS; i++)
		rows[i] = (struct count_row){.item_id = SLICE("a")};
	while (reading) {
		if (sqlite_count_repository.ops->find(
			    &sqlite_count_repository, session, rows, READ_ROWS) != STATUS_OK ||
			rows[0].value != rows[READ_ROWS - 1].value)
			abort();
	}
	session_close(session);
	return NULL;
}

static void the_wal_stays_short_whoever_reads(void **state)
{
	struct place *place = *state;
	pthread_t threads[READERS];
	long longest = 0;

	open_place(place);
	keep_short(place, FRAMES_MAX / 10, FRAMES_MAX);
	insert(place->session, (struct slice)SLICE("a"));
	reading = true;
	for (int i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_on, place->store), 0);
	for (int i = 0; i < FRAMES_MAX * 6; i++) {
		assert_int_equal(add_one(place->session), STATUS_OK);
		if (size_of(place, "-wal") > longest)
			longest = size_of(place, "-wal");
	}
	reading = false;
	for (int i = 0; i < READERS; i++)
		pthread_join(threads[i], NULL);
	assert_in_range(longest, 1, (FRAMES_MAX + FRAMES_MAX / 5) * FRAME_BYTES);
}

/* ---- memory ------------------------------------------------------------------------------ */

#define ANSWERS 64
#define ANSWER_BYTES 16384 /* so that ANSWERS of them are 1 MiB */

static void begin(struct session *session)
{
	assert_int_equal(session->ops->begin(session, TRANSACTION_WAIT), STATUS_OK);
}

static void commit(struct session *session)
{
	assert_int_equal(session->ops->commit(session), STATUS_OK);
}

/* In a transaction: writes 1 MiB of answers under new keys. */
static void put_answers(struct session *session, int number)
{
	static char body[ANSWER_BYTES];
	struct idempotency_record records[ANSWERS];
	char keys[ANSWERS][16];

	for (int i = 0; i < ANSWERS; i++) {
		snprintf(keys[i], sizeof(keys[i]), "%04d-%02d", number, i);
		records[i] = (struct idempotency_record){
			.scope = SLICE("scope"), .key = slice_of(keys[i])};
		records[i].answer = answer_json(200, slice_make(body, sizeof(body)));
	}
	assert_int_equal(session->ops->idempotency_put(session, records, ANSWERS, 3600 * 1000000LL),
		STATUS_OK);
}

/* Reads all of them back; returns how many there are. */
static size_t read_answers(struct session *session)
{
	struct row_page page = {.limit = ANSWERS};
	struct kept_answer answers[ANSWERS];
	struct arena arena;
	size_t count = 0;

	arena_init(&arena, 4096);
	do {
		assert_int_equal(session->ops->idempotency_list(
					 session, &arena, slice_of("scope"), &page, answers),
			STATUS_OK);
		count += page.count;
		if (page.count > 0) {
			page.after[0] = answers[page.count - 1].scope;
			page.after[1] = answers[page.count - 1].key;
		}
	} while (page.count == ANSWERS);
	arena_release(&arena);
	return count;
}

/* A few pages more than the cache may have are in use at any time. */
static void assert_cache_within(const struct sqlite_connection *connection, const char *limit_kib)
{
	int limit = atoi(limit_kib) * 1024;
	int bytes, unused;

	assert_int_equal(
		sqlite3_db_status(connection->db, SQLITE_DBSTATUS_CACHE_USED, &bytes, &unused, 0),
		SQLITE_OK);
	print_message("%d of %d bytes\n", bytes, limit);
	assert_in_range(bytes, limit / 2, limit + limit / 16);
}

static void page_caches_stay_within_their_limit_however_much_goes_through_them(void **state)
{
	struct place *place = *state;
	struct session *reader;

	open_place(place);
	reader = place->store->ops->open_session(place->store, SESSION_READ);
	for (int i = 0; i < 24; i++) {
		begin(place->session);
		put_answers(place->session, i);
		commit(place->session);
	}
	assert_cache_within(
		&sqlite_store_of(place->store)->writer.connection, SQLITE_WRITER_CACHE_KIB);

	begin(place->session); /* more in one transaction than the cache can hold */
	for (int i = 24; i < 48; i++)
		put_answers(place->session, i);
	assert_cache_within(
		&sqlite_store_of(place->store)->writer.connection, SQLITE_WRITER_CACHE_KIB);
	commit(place->session);

	assert_int_equal(read_answers(reader), 48 * ANSWERS);
	assert_cache_within(&sqlite_session_of(reader)->own, SQLITE_READER_CACHE_KIB);
	session_close(reader);
}

/* ---- turns ------------------------------------------------------------------------------- */

#define WAITERS 6

static struct fair_lock lock;
static int order[WAITERS];
static int served;

static void *take_turn(void *argument)
{
	fair_lock_take(&lock);
	order[served++] = *(int *)argument;
	fair_lock_give(&lock);
	return NULL;
}

static uint64_t tickets(void)
{
	uint64_t count;

	pthread_mutex_lock(&lock.mutex);
	count = lock.next_ticket;
	pthread_mutex_unlock(&lock.mutex);
	return count;
}

static void turns_are_given_in_the_order_of_arrival(void **state)
{
	pthread_t threads[WAITERS];
	int numbers[WAITERS];

	(void)state;
	fair_lock_init(&lock);
	fair_lock_take(&lock);
	for (int i = 0; i < WAITERS; i++) {
		numbers[i] = i;
		assert_int_equal(pthread_create(&threads[i], NULL, take_turn, &numbers[i]), 0);
		while (tickets() < (uint64_t)i + 2)
			wait_a_moment();
	}
	fair_lock_give(&lock);
	for (int i = 0; i < WAITERS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < WAITERS; i++)
		assert_int_equal(order[i], i);
	fair_lock_release(&lock);
}

#define PLACE_TEST(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PLACE_TEST(start_refuses_what_cannot_be_opened),
		PLACE_TEST(start_refuses_what_is_not_a_database),
		PLACE_TEST(start_refuses_what_it_may_not_write),
		PLACE_TEST(start_refuses_a_newer_schema),
		PLACE_TEST(start_waits_for_nobody_for_ever),
		PLACE_TEST(a_clean_end_leaves_one_file),
		PLACE_TEST(another_program_that_writes_makes_the_store_unavailable),
		PLACE_TEST(another_program_that_reads_does_not_stop_writes),
		PLACE_TEST(a_table_that_is_gone_is_poison),
		PLACE_TEST(the_wal_stays_short_whoever_reads),
		PLACE_TEST(page_caches_stay_within_their_limit_however_much_goes_through_them),
		cmocka_unit_test(turns_are_given_in_the_order_of_arrival),
	};

	log_configure((enum log_level)(LOG_ERROR + 1), LOG_TEXT);
	return cmocka_run_group_tests_name("sqlite_file", tests, NULL, NULL);
}
