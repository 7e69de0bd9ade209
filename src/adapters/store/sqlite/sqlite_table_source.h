/*
 * The tables of one SQLite file, to be copied to another engine. No server may use the file at
 * the same time. These functions do not change any row, but table_source_close() copies the
 * write-ahead log into the file. All functions block; call them on the main thread. Functions that
 * can fail write the reason to `why`, as a sentence.
 */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_TABLE_SOURCE_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_TABLE_SOURCE_H

#include <stdbool.h>

#include "base/status.h"
#include "ports/table_copy.h"

#define SOURCE_COMPONENTS_MAX 8

struct table_source;

/* Opens the file and lists its tables. Refuses a file whose schema is not that of this program.
 * Returns NULL on failure. */
QP_MUST_CHECK struct table_source *table_source_open(const char *path, char *why, size_t size);
void table_source_close(struct table_source *source);

/* Return the number of tables, one table, and one component of the schema. Each table comes after
 * the tables to which it refers. table_source_component() returns NULL after the last component. */
size_t table_source_count(const struct table_source *source);
const struct table_facts *table_source_at(const struct table_source *source, size_t index);
const char *table_source_component(const struct table_source *source, size_t index);

/*
 * Makes the source at index `at` leave out the Idempotency-Keys that are copied from other sources,
 * and sets `left_out` to their number. Call this for every source if the target keeps the keys of
 * all sources in one table, where a key can occur only once. A key that several sources contain is
 * copied from the source in which it expires last. If several sources have this latest expiry, the
 * key is copied from the first of them.
 */
QP_MUST_CHECK bool table_source_share_keys(struct table_source *const *sources, size_t count,
	size_t at, int64_t *left_out, char *why, size_t size);

/* Begins to read a table in the order of its primary key, after its first `skip` rows. */
QP_MUST_CHECK bool table_source_begin(struct table_source *source, const struct table_facts *table,
	int64_t skip, char *why, size_t size);

/* Reads the next row into `cells`, one for each column. */
enum table_step table_source_next(
	struct table_source *source, struct cell *cells, char *why, size_t size);

/* Stops reading the table, even before its end. Does nothing if no table is being read. */
void table_source_end(struct table_source *source);

#endif
