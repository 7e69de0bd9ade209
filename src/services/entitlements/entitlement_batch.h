/*
 * A batch of grants and revokes in one transaction: the change, the line of the audit and the event
 * in the outbox (and, by the committer, the Idempotency-Key) are committed together.
 */
#ifndef QUIPU_SERVICES_ENTITLEMENTS_BATCH_H
#define QUIPU_SERVICES_ENTITLEMENTS_BATCH_H

#include "flow/reader.h"
#include "flow/write.h"
#include "services/entitlements/entitlement_rules.h"
#include "services/entitlements/entitlements.h"

/* The key of its command is made of the user's id and the unit: see entitlement_lane_key(). */
struct entitlement_command {
	struct write write;
	enum entitlement_verb verb;
	struct slice user_id;
	struct slice unit;
	struct slice reason;
	struct slice purchase_id;
	struct slice traceparent;
};

extern const struct command_type entitlement_command_type;

/* Creates one in `arena`, zeroed except for its type. */
struct entitlement_command *entitlement_command_new(struct arena *arena);

/* Aborts if `write` is of another type. */
struct entitlement_command *entitlement_command_of(struct write *write);

/* A page of one user's entitlements. */
struct entitlement_lookup {
	struct read read;
	struct slice user_id;
	struct slice path; /* raw, for the link to the next page */
	struct slice after;
	size_t limit;
};

extern const struct command_type entitlement_lookup_type;

/* Creates one in `arena`, zeroed except for its type. */
struct entitlement_lookup *entitlement_lookup_new(struct arena *arena);

/* Aborts if `read` is of another type. */
struct entitlement_lookup *entitlement_lookup_of(struct read *read);

/* Different for different pairs, and in their order. */
struct slice entitlement_lane_key(struct arena *arena, struct slice user_id, struct slice unit);

/* See flow/committer.h and flow/reader.h; the context is the struct entitlements. */
enum status entitlement_batch_decide(const struct entitlements *entitlements,
	struct session *session, const struct write_batch *batch);
enum status entitlement_batch_look_up(const struct entitlements *entitlements,
	struct session *session, const struct read_batch *batch);

#endif
