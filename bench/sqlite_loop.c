/*
 * What SQLite alone can do: one thread that updates drawn items in durable transactions, and
 * nothing else. The peer of batches of changes (bulk_cases.py).
 *
 *     sqlite_loop FILE ITEMS CHANGES SECONDS
 *
 * The table is Quipu's, in a file of its own that is made anew; WAL and synchronous=FULL, so every
 * transaction of CHANGES updates is on the disk when it ends. Prints one line of JSON.
 */
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "random.h"

static sqlite3 *db;

static void must(int status, int wanted)
{
	if (status == wanted)
		return;
	fprintf(stderr, "sqlite_loop: %s\n", sqlite3_errmsg(db));
	exit(1);
}

static void run(const char *sql)
{
	must(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
}

static double now_s(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void make_table(const char *path, int items)
{
	char sql[512];

	unlink(path);
	must(sqlite3_open(path, &db), SQLITE_OK);
	run("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
	run("CREATE TABLE count_values (item_id TEXT NOT NULL PRIMARY KEY, current_value INTEGER "
	    "NOT "
	    "NULL DEFAULT 0, last_updated_at INTEGER NOT NULL) STRICT, WITHOUT ROWID");
	snprintf(sql, sizeof(sql),
		"INSERT INTO count_values (item_id, last_updated_at) WITH RECURSIVE n(i) AS "
		"(SELECT 1 "
		"UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT 'item-' || i, 0 FROM n",
		items);
	run(sql);
}

static void update_one(sqlite3_stmt *update, uint32_t item, int64_t now_us)
{
	char id[32];
	int length = snprintf(id, sizeof(id), "item-%u", item);

	sqlite3_bind_int64(update, 1, now_us);
	sqlite3_bind_text(update, 2, id, length, SQLITE_STATIC);
	must(sqlite3_step(update), SQLITE_ROW);
	must(sqlite3_step(update), SQLITE_DONE);
	sqlite3_reset(update);
}

int main(int argc, char **argv)
{
	struct random random = {.state = 1};
	int items, changes, seconds;
	sqlite3_stmt *update;
	int64_t updates = 0;
	double start_s, took_s;

	if (argc != 5) {
		fprintf(stderr, "usage: sqlite_loop FILE ITEMS CHANGES SECONDS\n");
		return 2;
	}
	items = atoi(argv[2]);
	changes = atoi(argv[3]);
	seconds = atoi(argv[4]);
	make_table(argv[1], items);
	must(sqlite3_prepare_v2(db,
		     "UPDATE count_values SET current_value = current_value + 1, last_updated_at = "
		     "?1 "
		     "WHERE item_id = ?2 RETURNING current_value",
		     -1, &update, NULL),
		SQLITE_OK);
	start_s = now_s();
	while ((took_s = now_s() - start_s) < seconds) {
		run("BEGIN IMMEDIATE");
		for (int i = 0; i < changes; i++)
			update_one(update, 1 + random_below(&random, (uint32_t)items), updates);
		run("COMMIT");
		updates += changes;
	}
	printf("{\"updates\":%lld,\"seconds\":%.3f,\"per_s\":%.1f}\n", (long long)updates, took_s,
		(double)updates / took_s);
	sqlite3_finalize(update);
	sqlite3_close(db);
	return 0;
}
