/*
 * SQLite behind ports/store.h: one file, one process. All write sessions share ONE connection and
 * take turns on it in the order in which they ask. So no row is ever busy, and all transaction
 * modes behave alike. Each read session has a connection of its own, which no write delays. COMMIT
 * returns after fsync (WAL, synchronous=FULL).
 *
 * After an I/O error the kernel's page cache cannot be trusted: after a failed fsync it may show
 * data that the disk does not have. The next transaction therefore reopens the file first, which
 * reads the WAL as after a crash, and copies all of it into the database. It begins only when that
 * is on disk.
 */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_STORE_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_STORE_H

#include "base/clock.h"
#include "ports/store.h"

/*
 * `path` is the database file. start() creates it if it is missing; its folder must exist.
 * `components` (NULL-terminated) names the folders of sql/sqlite to apply. Everything passed in
 * must live as long as the store.
 */
struct store *sqlite_store_new(const char *name, const char *path, const char *const *components,
	const struct clock *clock);

#endif
