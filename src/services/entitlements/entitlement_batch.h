/*
 * Runs a batch of grants and revokes in one transaction. Each change is committed together with its
 * sources, its audit line and, if the status changed, its event in the outbox. The committer
 * stores the Idempotency-Key's record in the same transaction.
 */
#ifndef QUIPU_SERVICES_ENTITLEMENTS_BATCH_H
#define QUIPU_SERVICES_ENTITLEMENTS_BATCH_H

#include "flow/write.h"
#include "services/entitlements/entitlement_rules.h"
#include "services/entitlements/entitlements.h"

/* A grant or a revoke. The key of its command is entitlement_lane_key(). */
struct entitlement_command {
	struct write write;
	bool is_grant; /* false for a revoke */
	struct slice user_id;
	struct slice unit;
	struct slice reason;
	struct slice purchase_id; /* may be empty */
	struct slice traceparent;
};

extern const struct command_type entitlement_command_type;

/* Creates a command in `arena`, zeroed except for its type. */
struct entitlement_command *entitlement_command_new(struct arena *arena);

/* Returns the command that `write` belongs to. Aborts if `write` is not an entitlement command. */
struct entitlement_command *entitlement_command_of(struct write *write);

/* Returns the key of commands on this user's entitlement to `unit`, allocated from `arena`.
 * Different pairs of user and unit have different keys, and the keys sort like the pairs. */
struct slice entitlement_lane_key(struct arena *arena, struct slice user_id, struct slice unit);

/* Decides the fate of every write of the batch (each a struct entitlement_command); see
 * flow/committer.h. Blocks. */
enum status entitlement_batch_decide(const struct entitlements *entitlements,
	struct session *session, const struct write_batch *batch);

#endif
