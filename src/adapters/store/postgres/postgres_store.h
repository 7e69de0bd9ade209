/*
 * PostgreSQL behind ports/store.h. A store has one watcher thread, which connects, applies the
 * migrations, and after a loss tries again until the server is back; sessions connect only while
 * the store is up, so a server that is down costs a request nothing but its 503.
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_STORE_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_STORE_H

#include "ports/store.h"

/*
 * `url` is a libpq connection URI; `components` (NULL-terminated) names the folders of sql/postgres
 * that are applied. The strings must live as long as the store.
 */
struct store *postgres_store_new(const char *name, const char *url, const char *const *components);

#endif
