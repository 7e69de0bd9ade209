/*
 * Implements ports/store.h with SQLite: one file, one process. All write sessions share ONE
 * connection and take turns on it, in the order of their requests. Therefore no row is ever busy,
 * and all transaction modes behave alike. Each read session has a connection of its own and is not
 * delayed by writes. COMMIT returns after fsync (WAL, synchronous=FULL).
 *
 * After an I/O error the kernel's page cache cannot be trusted: after a failed fsync it may show
 * data that the disk does not have. Therefore, before the next transaction begins, the file is
 * reopened, SQLite reads the WAL as after a crash, and a checkpoint copies the whole WAL into the
 * database. The transaction begins only when the copy is on disk.
 */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_STORE_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_STORE_H

#include "base/clock.h"
#include "ports/store.h"

/*
 * `path` is the database file. If it does not exist, start() creates it; its folder must exist.
 * `components` (NULL-terminated) names the folders of sql/sqlite to apply. All arguments must live
 * as long as the store.
 */
struct store *sqlite_store_new(const char *name, const char *path, const char *const *components,
	const struct clock *clock);

#endif
