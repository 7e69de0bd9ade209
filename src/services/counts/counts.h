/*
 * The count service, specified by seed 000 (count-processing-service). Role `counts`.
 *
 *   count_rules   what a command does to a count
 *   count_batch   many commands in one transaction
 *   count_bulk    commands with several changes
 *   count_lookup  many reads with one query, and pages
 *   count_answers renders answers
 *   count_lanes   connects lanes and batches
 *   count_routes  HTTP to commands
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
