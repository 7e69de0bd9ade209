/*
 * Sweeps expired idempotency keys out of the stores, in small chunks: at start and every hour.
 */
#ifndef QUIPU_FLOW_JANITOR_H
#define QUIPU_FLOW_JANITOR_H

#include "ports/store.h"

struct janitor;

/* Starts a thread. The stores outlive it; it opens a session on each. */
struct janitor *janitor_start(struct store *const *stores, size_t store_count);

/* Ends the thread after the chunk it is at, and frees. */
void janitor_stop(struct janitor *janitor);

#endif
