/* The page at /metrics, for Prometheus. */
#ifndef QUIPU_ADMIN_METRICS_PAGE_H
#define QUIPU_ADMIN_METRICS_PAGE_H

#include "base/metrics.h"
#include "http/router.h"

/* Adds /metrics, which runs every collector of `metrics`. `metrics` outlives the router. */
void metrics_page_add_route(struct metrics *metrics, struct router *router);

/* A metrics collector (context: not used) for the resident memory of the process. */
void process_collect(void *context, struct buffer *page);

#endif
