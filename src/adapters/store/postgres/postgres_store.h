/*
 * Implements ports/store.h with PostgreSQL. A store has a watcher thread, which connects, applies
 * migrations, and after an outage retries until the server is back. Sessions connect only while the
 * store is up, so that requests immediately get a 503 while the server is away.
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_STORE_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_STORE_H

#include "ports/store.h"

/*
 * `url` is a libpq connection URI. `components` (NULL-terminated) names the folders of sql/postgres
 * whose migrations the store applies. The strings must live as long as the store.
 */
struct store *postgres_store_new(const char *name, const char *url, const char *const *components);

#endif
