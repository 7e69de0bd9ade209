/*
 * A debugging aid (--trace-store): a store that forwards every call to another store and logs it at
 * level debug, with its duration, its number of rows and its result:
 *
 *     {"level":"debug","part":"store","message":"counts.add","store":"counts-store","rows":"412",
 *      "us":"1834","result":"OK"}
 *
 * It can wrap any engine, because it uses only the ports: the store, its sessions, and every
 * repository it hands out, including the claims, dead letters and inbox inside outboxes and
 * notifications. It has the name, engine and hints of the inner store, so nothing else in the
 * program notices. Values are never logged, because they may be secret.
 *
 * `rows` is how many rows the caller passed in; for lists and sweeps it is how many came back or
 * were deleted. Verbs that are not about rows leave it out, and those that cannot fail leave out
 * `result`. is_up() and error_count() are forwarded without a line, because every scrape and every
 * health check calls them.
 *
 * Wrapping costs two clock readings and one line per call. Without the option there is no wrapper.
 */
#ifndef QUIPU_ADAPTERS_STORE_TRACING_TRACING_STORE_H
#define QUIPU_ADAPTERS_STORE_TRACING_TRACING_STORE_H

#include "ports/store.h"

/* Wraps a store that is not started yet, and becomes its owner: free() frees both. Never fails. */
struct store *tracing_store_new(struct store *inner);

#endif
