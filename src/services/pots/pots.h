/*
 * The pot service: seed 003, Pyggpot. Role `pots`.
 *
 *   pot_draw     coins at random
 *   pot_rules    what a command does to a pot
 *   pot_batch    many commands in one transaction, under the locks of their pots
 *   pot_answers  pots and coins as the messages of proto/
 *   pot_routes   Twirp to commands
 */
#ifndef QUIPU_SERVICES_POTS_H
#define QUIPU_SERVICES_POTS_H

#include "flow/lane_set.h"
#include "http/router.h"
#include "ports/pot_repository.h"

struct pots {
	const struct pot_repository *repository;
	struct lane_set *lanes;
	int64_t lock_ttl_us;  /* how long a lock lasts that is not released */
	int64_t lock_wait_us; /* how long to wait for one that another has, before each retry */
	int64_t lock_retries;
};

/* What the lanes of the service call; context is the struct pots. */
struct lane_service pots_lane_service(struct pots *pots);

/* Adds the routes, with memory of `arena`, which outlives the router. So does `pots`. */
void pots_add_routes(struct pots *pots, struct router *router, struct arena *arena);

#endif
