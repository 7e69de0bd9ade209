/*
 * The count service, specified by seed 000 (count-processing-service). Role `counts`.
 *
 *   count_rules   what a command does to a count
 *   count_batch   runs many commands in one transaction
 *   count_bulk    runs commands with several changes
 *   count_lookup  answers many lookups with one query, and reads pages
 *   count_answers renders answers
 *   count_lanes   the callbacks through which lanes run batches
 *   count_routes  turns HTTP requests into commands and lookups
 *   count_verify  checks the tables for `quipu verify`
 */
#ifndef QUIPU_SERVICES_COUNTS_H
#define QUIPU_SERVICES_COUNTS_H

#include "flow/lane_set.h"
#include "http/router.h"
#include "ports/count_repository.h"

struct counts {
	const struct count_repository *repository;
	struct lane_set *lanes; /* not owned */
};

/* Returns the callbacks for the lanes of the service. `counts` must outlive the lanes. */
struct lane_service counts_lane_service(struct counts *counts);

/* Adds the routes. `counts` must outlive the router. */
void counts_add_routes(struct counts *counts, struct router *router);

/* Adds the route of batch requests. Called by counts_add_routes(). */
void counts_add_bulk_routes(struct counts *counts, struct router *router);

#endif
