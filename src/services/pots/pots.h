/*
 * The pot service, specified by seed 003 (Pyggpot). Role `pots`.
 *
 *   pot_draw     draws coins at random
 *   pot_rules    what a command does to a pot
 *   pot_batch    runs many commands in one transaction, under the locks of their pots
 *   pot_answers  renders pots and coins as messages of proto/
 *   pot_lanes    the callbacks through which lanes run batches
 *   pot_routes   turns Twirp calls into commands and lookups
 *   pot_verify   checks the tables for `quipu verify`
 */
#ifndef QUIPU_SERVICES_POTS_H
#define QUIPU_SERVICES_POTS_H

#include "flow/lane_set.h"
#include "http/router.h"
#include "ports/pot_repository.h"

struct pots {
	const struct pot_repository *repository;
	struct lane_set *lanes; /* not owned */
	int64_t lock_ttl_us;  /* time after which a lock expires if its owner does not release it */
	int64_t lock_wait_us; /* average pause before a retry while another owner has the lock */
	int64_t lock_retries;
};

/* Returns the callbacks for the lanes of the service. `pots` must outlive the lanes. */
struct lane_service pots_lane_service(struct pots *pots);

/* Adds the routes. Their paths are allocated from `arena`; `pots` and `arena` must outlive the
 * router. */
void pots_add_routes(struct pots *pots, struct router *router, struct arena *arena);

#endif
