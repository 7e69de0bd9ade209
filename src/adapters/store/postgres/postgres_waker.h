/*
 * Carries announcements (ports/store.h) between the processes that share a database, with LISTEN
 * and NOTIFY on a connection and a thread of its own. NOTIFY inside the transaction of a batch
 * would make all commits wait for each other; here it goes out after them, at most every 20 ms for
 * a announcement, and without waiting for the disk.
 *
 * What is announced while the server is away is told when it is back; what others announce in the
 * meantime is lost, so everybody is called then.
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_WAKER_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_WAKER_H

#include "adapters/shared/listeners.h"

struct pg_waker;

/* Starts a thread. `listeners` are called on it when other processes announce something. */
struct pg_waker *pg_waker_start(
	const char *store_name, const char *url, struct listeners *listeners);

/* Any thread; never blocks. `announcement` is static. */
void pg_waker_announce(struct pg_waker *waker, const char *announcement);

/* Ends the thread, which takes no time whatever the server does, and frees. */
void pg_waker_stop(struct pg_waker *waker);

#endif
