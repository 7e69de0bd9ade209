/*
 * A debugging aid (--trace-store): a store that forwards every call to another store and logs it at
 * level debug, with how long it took, how many rows it was about, and its result:
 *
 *     {"level":"debug","part":"store","message":"counts.add","store":"counts-store","rows":"412",
 *      "us":"1834","result":"OK"}
 *
 * It wraps any engine, because it knows only the ports: the store, its sessions, and every
 * repository it hands out, including the claims, dead letters and inbox inside outboxes and
 * notifications. Name, engine and hints are those of the inner store, so nothing else in the
 * program notices. Values are never logged: they may be secret.
 *
 * `rows` is how many rows the caller passed in; of lists and sweeps how many came back or were
 * deleted. Verbs that are not about rows leave it out, those that cannot fail leave `result` out.
 * is_up() and error_count() are forwarded without a line: every scrape and every health check
 * calls them.
 *
 * Wrapping costs two clock readings and one line per call. Without the option no wrapper exists.
 */
#ifndef QUIPU_ADAPTERS_STORE_TRACING_TRACING_STORE_H
#define QUIPU_ADAPTERS_STORE_TRACING_TRACING_STORE_H

#include "ports/store.h"

/* Wraps a store that is not started yet, and owns it: free() frees both. Never fails. */
struct store *tracing_store_new(struct store *inner);

#endif
