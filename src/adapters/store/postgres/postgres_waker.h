/*
 * The waker carries announcements (ports/store.h) between the processes that share a database. It
 * uses LISTEN and NOTIFY, on a connection and a thread of its own. NOTIFY inside the transaction of
 * a batch would make all commits wait for each other. Therefore the waker sends NOTIFY after the
 * commits, at most every 20 ms for each announcement, and without waiting for the disk.
 *
 * If this process announces something while the server is away, the waker sends the announcement
 * when the server is back. While the waker is not connected, it may miss announcements of other
 * processes, so it calls all listeners after each reconnection.
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_WAKER_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_WAKER_H

#include "adapters/shared/listeners.h"

struct pg_waker;

/* Starts the thread, which calls `listeners` when other processes announce something. All arguments
 * must live until pg_waker_stop(). */
struct pg_waker *pg_waker_start(
	const char *store_name, const char *url, struct listeners *listeners);

/* Sends an announcement, a static string, to other processes. Any thread; never blocks. */
void pg_waker_announce(struct pg_waker *waker, const char *announcement);

/* Ends the thread immediately, even if the server hangs, and frees the waker. */
void pg_waker_stop(struct pg_waker *waker);

#endif
