/*
 * GET /operator/actions lists the actions of operators, newest first, from every database in which
 * this process records actions. Services may share a database or have their own. Therefore the
 * actions are read through the lanes of every service, and an action that several services return
 * is shown once.
 */
#ifndef QUIPU_ADMIN_ACTIONS_H
#define QUIPU_ADMIN_ACTIONS_H

#include "admin/dead_letters.h"
#include "admin/erase.h"

/* The parts of the program that record actions. */
struct action_sources {
	const struct dead_letter_kinds *letters;
	const struct erasers *erasers;
};

/* Adds the route. `sources` must outlive the router. */
void actions_add_route(struct action_sources *sources, struct router *router);

/* Returns whom to record as the author of an action: the id of the caller's API key, or an empty
 * slice if the caller has none. */
struct slice action_who(const struct request *request);

#endif
