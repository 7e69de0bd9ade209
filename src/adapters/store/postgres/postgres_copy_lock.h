/*
 * Keeps servers and `quipu copy` apart. Both functions take a lock that the connection holds until
 * it is closed. They block; on failure they return false with a reason in `why`.
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_COPY_LOCK_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_COPY_LOCK_H

#include "adapters/store/postgres/postgres_internal.h"

/* Admits a connection of a server; other servers may be connected too. Refuses while a copy runs or
 * is unfinished. */
QP_MUST_CHECK bool pg_admit_server(PGconn *connection, char *why, size_t size);

/* Admits the connection of a copy. Refuses if a server or another copy is connected. */
QP_MUST_CHECK bool pg_admit_copy(PGconn *connection, char *why, size_t size);

#endif
