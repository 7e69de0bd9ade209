/*
 * The routes behind `quipu erase-user`. Each service registers its eraser (ports/eraser.h), which
 * works through the lanes of that service, so an erasure is a write like any other: bounded,
 * recorded in its own transaction, and answered after COMMIT. One request is one step; the caller
 * repeats it while the answer says that there is more. Nothing is remembered in between, so an
 * erasure that was interrupted is simply run again.
 *
 *   GET  /operator/erase            lists the services
 *   POST /operator/erase/{service}  runs a step, or with dryRun counts what there is
 */
#ifndef QUIPU_ADMIN_ERASE_H
#define QUIPU_ADMIN_ERASE_H

#include "flow/lane_set.h"
#include "http/router.h"
#include "ports/eraser.h"

#define ERASERS_MAX 8

struct erasers {
	const struct eraser *items[ERASERS_MAX];
	struct lane_set *lanes[ERASERS_MAX]; /* of its service; not owned */
	size_t count;
};

/* Adds the routes. `erasers` outlives the router. */
void erase_add_routes(struct erasers *erasers, struct router *router);

/* Registers the eraser of a service. At start, before the first request. */
void erase_add(struct erasers *erasers, const struct eraser *eraser, struct lane_set *lanes);

#endif
