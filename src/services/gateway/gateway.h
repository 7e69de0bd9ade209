/*
 * The rate-limited notification gateway: seed 001, Gateway_API. Role `gateway`.
 *
 *   limit_rules    the decision: pure
 *   gateway_batch  reserve in one transaction, publish, settle in a second
 *   gateway_cache  the cache in front of it: refuses without the store, never admits by itself
 *   gateway_routes HTTP to commands and back
 */
#ifndef QUIPU_SERVICES_GATEWAY_H
#define QUIPU_SERVICES_GATEWAY_H

#include "flow/lane_set.h"
#include "http/router.h"
#include "ports/bus.h"
#include "ports/cache.h"
#include "ports/limit_repository.h"

#define GATEWAY_CHANNEL "sms-outbound"
#define GATEWAY_DLQ_CHANNEL "sms-outbound.dlq"
#define GATEWAY_PARTITIONS 4

struct gateway {
	const struct limit_repository *repository;
	struct bus *bus;
	struct cache *cache; /* NULL: none */
	int64_t window_unit_us;
	struct lane_set *lanes;
};

/* What the lanes of the service call; context is the struct gateway. */
struct lane_service gateway_lane_service(struct gateway *gateway);

/* Adds the routes. `gateway` outlives the router. */
void gateway_add_routes(struct gateway *gateway, struct router *router);

#endif
