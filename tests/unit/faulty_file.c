/*
 * The files of faulty stores. Creating a file with its tables takes milliseconds, and the random
 * tests need a new store for each of thousands of cases. So a file is emptied and used again, and
 * all files are removed when the program ends.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "adapters/store/sqlite/sqlite_internal.h"
#include "base/container.h"
#include "faulty_internal.h"

#define STATEMENTS_MAX 16

struct file {
	struct faulty_file base;
	struct file *next;
	struct clock clock;
	/* statements that delete all rows, run in one transaction */
	sqlite3_stmt *empty[STATEMENTS_MAX];
	char path[300];
};

static struct file *files; /* all of them */

static int64_t wall_us(const struct clock *clock)
{
	return CONTAINER_OF(clock, const struct file, clock)->base.user->now_us;
}

static int64_t steady_ns(const struct clock *clock)
{
	return wall_us(clock) * NS_PER_US;
}

/* Chooses a folder in memory, if the machine has one. */
static void make_path(struct file *file)
{
	const char *parent = getenv("TMPDIR");
	char folder[256];

	if (!parent)
		parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	snprintf(folder, sizeof(folder), "%s/quipu-faulty-XXXXXX", parent);
	if (!mkdtemp(folder))
		abort();
	snprintf(file->path, sizeof(file->path), "%s/store.db", folder);
}

static sqlite3_stmt *prepare(struct file *file, const char *sql)
{
	sqlite3 *db = sqlite_store_of(file->base.store)->writer.connection.db;
	sqlite3_stmt *stmt;

	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
		abort();
	return stmt;
}

/* Empties the newest tables first, because they refer to older ones. */
static void prepare_empty(struct file *file)
{
	sqlite3_stmt *deletes =
		prepare(file, "SELECT 'DELETE FROM ' || name FROM sqlite_schema "
			      "WHERE type = 'table' AND name <> 'schema_migrations' "
			      "ORDER BY rowid DESC");
	size_t count = 0;

	file->empty[count++] = prepare(file, "BEGIN");
	while (sqlite3_step(deletes) == SQLITE_ROW) {
		assert(count < STATEMENTS_MAX - 1);
		file->empty[count++] = prepare(file, (const char *)sqlite3_column_text(deletes, 0));
	}
	file->empty[count] = prepare(file, "COMMIT");
	sqlite3_finalize(deletes);
}

static void close_file(struct file *file)
{
	session_close(file->base.session);
	for (size_t i = 0; i < STATEMENTS_MAX; i++)
		sqlite3_finalize(file->empty[i]);
	file->base.store->ops->free(file->base.store);
}

static void remove_file(struct file *file)
{
	static const char *const endings[] = {"", "-wal", "-shm"};
	char path[320];

	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", file->path, endings[i]);
		unlink(path);
	}
	*strrchr(file->path, '/') = '\0';
	rmdir(file->path);
}

/* At the end a file may still be in use: by a test that has failed, or by a fuzz target. */
static void remove_files(void)
{
	while (files) {
		struct file *file = files;
		bool is_used = file->base.user;

		files = file->next;
		if (!is_used)
			close_file(file);
		remove_file(file);
		if (!is_used)
			free(file);
	}
}

static struct file *create(struct faulty_store *user)
{
	static const char *const components[] = {"common", "counts", "gateway", "pots", NULL};
	struct file *file = qp_calloc(1, sizeof(*file));
	struct store *store;
	char why[512];

	make_path(file);
	file->base.user = user;
	file->clock = (struct clock){.wall_us = wall_us, .steady_ns = steady_ns};
	store = sqlite_store_new("faulty-store", file->path, components, &file->clock);
	if (!store->ops->start(store, why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	file->base.store = store;
	file->base.session = store->ops->open_session(store, SESSION_WRITE);
	prepare_empty(file);
	if (!files)
		atexit(remove_files);
	file->next = files;
	files = file;
	return file;
}

struct faulty_file *faulty_file_open(struct faulty_store *user)
{
	struct file *file = files;

	while (file && file->base.user)
		file = file->next;
	if (!file)
		file = create(user);
	file->base.user = user;
	return &file->base;
}

void faulty_file_close(struct faulty_file *base)
{
	struct file *file = CONTAINER_OF(base, struct file, base);

	for (size_t i = 0; i < STATEMENTS_MAX && file->empty[i]; i++) {
		if (sqlite3_step(file->empty[i]) != SQLITE_DONE)
			abort();
		sqlite3_reset(file->empty[i]);
	}
	base->user = NULL;
}
