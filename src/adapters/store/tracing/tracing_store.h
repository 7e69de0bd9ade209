/*
 * The tracing store is a debugging aid (--trace-store). It forwards every call to another store,
 * the inner store, and logs the call at level debug, with its duration, number of rows and result:
 *
 *     {"level":"debug","part":"store","message":"counts.add","store":"counts-store","rows":"412",
 *      "us":"1834","result":"OK"}
 *
 * The inner store can be of any engine, because the tracing store uses only the ports. The tracing
 * store wraps the inner store, its sessions, and each of its repositories, including the claims,
 * dead letters and inbox inside other repositories. The struct store of the tracing store has the
 * same name, engine and settings as that of the inner store, so callers can use either. The tracing
 * store never logs values, because they may be secret.
 *
 * `rows` is the number of rows that the caller passed in. For verbs that choose the rows
 * themselves, such as lists and sweeps, it is the number of rows that they returned or changed, and
 * is left out if the call failed. Lines of verbs without a number of rows, such as commit, have no
 * `rows`, and lines of verbs that cannot fail have no `result`. is_up() and error_count() are
 * forwarded without a log line, because every scrape and every health check calls them.
 *
 * The wrapper costs two clock readings and one log line per call. Without --trace-store there is no
 * wrapper.
 */
#ifndef QUIPU_ADAPTERS_STORE_TRACING_TRACING_STORE_H
#define QUIPU_ADAPTERS_STORE_TRACING_TRACING_STORE_H

#include "ports/store.h"

/* Wraps a store that is not started yet, and takes ownership of it: free() frees both stores. Never
 * fails. */
struct store *tracing_store_new(struct store *inner);

#endif
