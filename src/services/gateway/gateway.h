/*
 * The rate-limited notification gateway, specified by seed 001 (Gateway_API). Role `gateway`.
 *
 *   limit_rules      the decision of the limiter
 *   gateway_batch    the steps of a send: reserve in a transaction, publish, settle in a second one
 *   gateway_decide   the first transaction: reserves
 *   gateway_publish  publishes messages while the lane runs its next batch
 *   gateway_lookup   reads limits
 *   gateway_cache    the cache in front of the store: can refuse, but never admits by itself
 *   gateway_answers  renders answers
 *   gateway_events   messages on the bus
 *   gateway_messages the state of each message after its send
 *   gateway_lanes    the callbacks through which lanes run batches
 *   gateway_routes   turns HTTP requests into commands and lookups
 *   limit_verify     checks the tables for `quipu verify`
 *
 * The Sender_Service of the same seed is in sender.h.
 */
#ifndef QUIPU_SERVICES_GATEWAY_H
#define QUIPU_SERVICES_GATEWAY_H

#include "base/metrics.h"
#include "flow/lane_set.h"
#include "http/router.h"
#include "ports/bus.h"
#include "ports/cache.h"
#include "ports/limit_repository.h"
#include "ports/outbound_repository.h"
#include "services/gateway/limit_rules.h"

#define GATEWAY_CHANNEL "sms-outbound"
#define GATEWAY_GROUP "sender-service"
#define GATEWAY_DLQ_CHANNEL "sms-outbound.dlq"
#define GATEWAY_PARTITIONS 4

/* Owns nothing that its members point to. */
struct gateway {
	const struct limit_repository *repository;
	const struct outbound_repository *messages;
	struct bus *bus;
	struct cache *cache; /* NULL if no cache is configured */
	/* the cache session of the reader; NULL if there is no cache */
	struct cache_session *reader_cache;
	int64_t window_unit_us;        /* the length of a window with timeWindow 1 */
	struct limit_default standard; /* for users without a configuration */
	struct tally shadow_refusals;  /* commands admitted only because of shadow mode */
	struct lane_set *lanes;
};

/* Returns the callbacks for the lanes of the service. `gateway` must outlive the lanes. */
struct lane_service gateway_lane_service(struct gateway *gateway);

/* A metrics collector. Its context is the struct gateway. */
void gateway_collect(void *gateway, struct buffer *page);

/* Adds the routes. `gateway` must outlive the router. */
void gateway_add_routes(struct gateway *gateway, struct router *router);

#endif
