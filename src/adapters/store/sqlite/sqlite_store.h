/*
 * SQLite behind ports/store.h: one file, one process. All write sessions share ONE connection and
 * take turns on it in the order in which they ask, so nothing is ever busy and both lock modes are
 * the same; every read session has a connection of its own and is never held up by a write. COMMIT
 * returns after fsync (WAL, synchronous=FULL).
 *
 * An I/O error leaves the page cache of the kernel in doubt: after a failed fsync it may show what
 * the disk does not have. So the next transaction first opens the file anew, which reads the WAL as
 * after a crash, and copies all of it into the database; only when that is on disk does it begin.
 */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_STORE_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_STORE_H

#include "base/clock.h"
#include "ports/store.h"

/*
 * `path` is the database file, made by start() if it is missing; its folder must be there.
 * `components` (NULL-terminated) names the folders of sql/sqlite that are applied. Everything
 * passed in must live as long as the store.
 */
struct store *sqlite_store_new(const char *name, const char *path, const char *const *components,
	const struct clock *clock);

#endif
