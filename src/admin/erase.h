/*
 * The routes behind `quipu erase-user`. Each service registers its eraser (ports/eraser.h), which
 * runs in the lanes of that service. Therefore an erasure is a write like any other: bounded,
 * recorded in the transaction that carries it out, and answered after COMMIT. One request is one
 * step; the caller repeats the request until the answer says that nothing is left. The server keeps
 * no state between steps, so an interrupted erasure can simply be run again.
 *
 *   GET  /operator/erase            lists the services
 *   POST /operator/erase/{service}  runs a step; with dryRun, only counts the rows
 */
#ifndef QUIPU_ADMIN_ERASE_H
#define QUIPU_ADMIN_ERASE_H

#include "flow/lane_set.h"
#include "http/router.h"
#include "ports/eraser.h"

#define ERASERS_MAX 8

struct erasers {
	const struct eraser *items[ERASERS_MAX];
	struct lane_set *lanes[ERASERS_MAX]; /* the lanes of each service; not owned */
	size_t count;
};

/* Returns whether `user_id` has the form of a pseudonym, which replaces the id of an erased
 * person. */
bool erase_is_pseudonym(struct slice user_id);

/* Adds the routes. `erasers` must outlive the router. */
void erase_add_routes(struct erasers *erasers, struct router *router);

/* Registers the eraser of a service. Called at start, before the first request. */
void erase_add(struct erasers *erasers, const struct eraser *eraser, struct lane_set *lanes);

#endif
