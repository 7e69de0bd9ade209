/*
 * GET /operator/actions: what operators did, newest first, from every database in which this
 * process records it. Services may share a database or have one each, so each service is asked in
 * its own lanes, and what two of them return alike is one action.
 */
#ifndef QUIPU_ADMIN_ACTIONS_H
#define QUIPU_ADMIN_ACTIONS_H

#include "admin/dead_letters.h"
#include "admin/erase.h"

/* Who records actions. */
struct action_sources {
	const struct dead_letter_kinds *letters;
	const struct erasers *erasers;
};

/* Adds the route. `sources` outlives the router. */
void actions_add_route(struct action_sources *sources, struct router *router);

/* Returns who is asking, for the record of an action: the id of the API key, or nothing. */
struct slice action_who(const struct request *request);

#endif
