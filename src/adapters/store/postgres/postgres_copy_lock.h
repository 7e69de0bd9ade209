/*
 * Keeps servers and `quipu copy` apart. Both functions take a lock that the connection holds until
 * it is closed. They block; on failure they return false with a reason in `why`.
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_COPY_LOCK_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_COPY_LOCK_H

#include "adapters/store/postgres/postgres_internal.h"

/* Admits a connection of a server, beside those of other servers. Refuses while a copy runs, and
 * while one is unfinished. */
QP_MUST_CHECK bool pg_admit_server(PGconn *connection, char *why, size_t size);

/* Admits the connection of a copy, if there is no other of a server or a copy. */
QP_MUST_CHECK bool pg_admit_copy(PGconn *connection, char *why, size_t size);

#endif
