/* The route for many grants in one request. Runs on the loops. */
#ifndef QUIPU_SERVICES_ENTITLEMENTS_BULK_H
#define QUIPU_SERVICES_ENTITLEMENTS_BULK_H

#include "inbound/input.h"
#include "services/entitlements/entitlement_batch.h"

/* Reads a grant or a revoke from the fields of input->body and creates its command. Defined in
 * entitlement_routes.c. */
struct entitlement_command *entitlement_read_change(struct input *input, bool is_grant);

/* Adds the route of batch requests. Called by entitlements_add_routes(). */
void entitlements_add_bulk_routes(struct entitlements *entitlements, struct router *router);

#endif
