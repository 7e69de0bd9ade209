/*
 * The database to which `quipu copy` moves tables. Rows arrive in batches. Each batch is one COPY
 * in one transaction, which also records in quipu_copy_tables how far the copy has come. Until the
 * copy is finished, no server uses the database (postgres_copy_lock.h).
 *
 * All functions block; call them on the main thread. A function that fails writes a sentence to
 * `why`, and leaves the database as it was after the last complete batch.
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_TABLE_TARGET_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_TABLE_TARGET_H

#include <stdbool.h>

#include "base/status.h"
#include "ports/table_copy.h"

struct table_target;

/* Connects without changing anything. Returns NULL on failure. */
QP_MUST_CHECK struct table_target *table_target_open(const char *url, char *why, size_t size);
void table_target_close(struct table_target *target);

/* Keeps servers and other copies out of the database until the target is closed. Refuses if a
 * server or another copy is connected. */
QP_MUST_CHECK bool table_target_lock(struct table_target *target, char *why, size_t size);

/* Finds out whether the copy `copy_id` has begun in this database, and whether it is finished.
 * Remembers `copy_id`: table_target_begin() and the functions declared below it work on this
 * copy. */
QP_MUST_CHECK bool table_target_find(struct table_target *target, const char *copy_id,
	bool *has_begun, bool *is_finished, char *why, size_t size);

/* table_target_is_free() returns false if any copy to this database is unfinished.
 * table_target_is_empty() returns false if the table has rows. Both functions change nothing, and
 * both can be called before the schema is created. */
QP_MUST_CHECK bool table_target_is_free(struct table_target *target, char *why, size_t size);
QP_MUST_CHECK bool table_target_is_empty(
	struct table_target *target, const struct table_facts *table, char *why, size_t size);

/* Creates the schema of these components, and the tables that record the copy's progress. */
QP_MUST_CHECK bool table_target_prepare(
	struct table_target *target, const char *const *components, char *why, size_t size);

/* Records that the copy begins. From then on no server uses the database until the copy is
 * finished. */
QP_MUST_CHECK bool table_target_begin(
	struct table_target *target, const char *source, char *why, size_t size);

/*
 * Chooses the table that the functions below work on, and plans how its columns are written.
 * Refuses a table with columns that this version cannot convert. `file` is the name of the source's
 * file that contains the table. Sets `rows` to the number of rows that were already copied from the
 * table in that file.
 */
QP_MUST_CHECK bool table_target_choose(struct table_target *target, const char *file,
	const struct table_facts *table, int64_t *rows, char *why, size_t size);

/* Returns true if the column of the source is copied. A column is not copied if PostgreSQL
 * generates all of its values. */
bool table_target_takes(const struct table_target *target, size_t column);

/* Returns true if the column is a UUID in this database. Its text may then differ from the source's
 * text in upper and lower case. */
bool table_target_has_uuid(const struct table_target *target, size_t column);

/* These functions begin a batch, add a row to the batch, and commit the batch. `rows` is how many
 * rows of the chosen table have been copied, including this batch; an interrupted copy continues
 * after these rows. */
QP_MUST_CHECK bool table_target_open_batch(struct table_target *target, char *why, size_t size);
QP_MUST_CHECK bool table_target_add(
	struct table_target *target, const struct cell *cells, char *why, size_t size);
QP_MUST_CHECK bool table_target_commit(
	struct table_target *target, int64_t rows, char *why, size_t size);

/* Counts all rows of the table and sums up their hashes; see struct table_sum and app/copy.c. */
QP_MUST_CHECK bool table_target_sum(
	struct table_target *target, struct table_sum *sum, char *why, size_t size);

/* Makes the chosen table assign only ids that are greater than `last_id` and greater than all
 * existing ids. Does nothing if the table has no identity column. */
QP_MUST_CHECK bool table_target_advance(
	struct table_target *target, int64_t last_id, char *why, size_t size);

/* Creates the monthly partitions that the copied audit lines need. Call this when all rows have
 * been copied. */
QP_MUST_CHECK bool table_target_settle(struct table_target *target, char *why, size_t size);

/* Records that the copy is complete, so that servers may start. */
QP_MUST_CHECK bool table_target_finish(struct table_target *target, char *why, size_t size);

#endif
