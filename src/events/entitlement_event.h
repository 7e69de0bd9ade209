/*
 * Packs and unpacks the event of a granted or revoked entitlement:
 * quipu.entitlements.v1.EntitlementEvent of proto/entitlements.proto. Pure.
 */
#ifndef QUIPU_EVENTS_ENTITLEMENT_EVENT_H
#define QUIPU_EVENTS_ENTITLEMENT_EVENT_H

#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/slice.h"

#define ENTITLEMENT_GRANTED "EntitlementGranted"
#define ENTITLEMENT_REVOKED "EntitlementRevoked"

struct entitlement_event {
	struct slice event_id;
	struct slice event_type;
	int64_t occurred_us;
	struct slice user_id;
	struct slice unit; /* stock_keeping_unit */
	struct slice source;
	struct slice source_id;
	int64_t version;
};

/* Returns `user_id:stock_keeping_unit`. This text is for people, and is the key of events on the
 * bus, so that the events of an entitlement keep their order. Two entitlements may have the same
 * text, because ids may contain colons. */
struct slice entitlement_aggregate_key(
	struct arena *arena, struct slice user_id, struct slice unit);

/* Returns the packed event, allocated from `arena`. */
struct slice entitlement_event_pack(struct arena *arena, const struct entitlement_event *event);

/*
 * Unpacks and checks an event from any sender; its texts are allocated from `arena`. Returns NULL
 * if the event is valid. Otherwise returns a static sentence that says what is wrong, and `event`
 * must not be used.
 */
const char *entitlement_event_unpack(
	struct arena *arena, struct slice packed, struct entitlement_event *event);

/* Appends the event as members of a JSON object, without braces. */
void entitlement_event_write_json(struct buffer *body, const struct entitlement_event *event);

#endif
