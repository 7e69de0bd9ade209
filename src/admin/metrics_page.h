/* The page at /metrics, for Prometheus. */
#ifndef QUIPU_ADMIN_METRICS_PAGE_H
#define QUIPU_ADMIN_METRICS_PAGE_H

#include "base/metrics.h"
#include "http/router.h"

/* Adds /metrics, which runs every collector of `metrics`. `metrics` must outlive the router. */
void metrics_page_add_route(struct metrics *metrics, struct router *router);

/* A metrics collector for the process and its version. `context` points to an int64_t: the wall
 * time of the start, in us. */
void process_collect(void *context, struct buffer *page);

#endif
