#include "events/entitlement_event.h"
#include "inbound/input.h"
#include "inbound/submit.h"
#include "services/entitlements/entitlement_batch.h"

#define LIST_LIMIT 1000
#define TRACE_ID_AT 3 /* in a traceparent: 00-<32 hex>-<16 hex>-01 */
#define TRACE_ID_LEN 32
#define TRACEPARENT_LEN 55

/* ---- lanes ------------------------------------------------------------------------------- */

static void committed(void *context)
{
	struct store *store = ((struct entitlements *)context)->store;

	store->ops->announce(store, ENTITLEMENTS_ANNOUNCEMENT);
}

struct lane_service entitlements_lane_service(struct entitlements *entitlements)
{
	return (struct lane_service){
		.name = "entitlements",
		.context = entitlements,
		.decide = entitlement_decide,
		.committed = committed,
		.look_up = entitlement_look_up,
	};
}

/* ---- events ------------------------------------------------------------------------------ */

static struct slice time_text(struct arena *arena, int64_t time_us)
{
	struct buffer text = buffer_make(arena, 32);

	buffer_time(&text, time_us);
	return buffer_slice(&text);
}

bool entitlements_address(struct arena *arena, const struct claim *row, struct bus_message *message)
{
	struct entitlement_event event;
	bool granted = slice_is(row->type, ENTITLEMENT_GRANTED);

	if (entitlement_event_unpack(arena, row->payload, &event) ||
		!slice_equal(event.event_type, row->type))
		return false;
	message->channel = slice_of(ENTITLEMENTS_CHANNEL);
	message->subject = slice_of(
		granted ? ENTITLEMENTS_CHANNEL ".granted" : ENTITLEMENTS_CHANNEL ".revoked");
	message->key = row->key;
	message->value = row->payload;
	bus_message_add_header(message, "event_type", row->type);
	bus_message_add_header(message, "aggregate_key", row->key);
	bus_message_add_header(message, "occurred_at", time_text(arena, event.occurred_us));
	if (row->trace.len == TRACEPARENT_LEN) {
		bus_message_add_header(message, "trace_id",
			slice_make(row->trace.data + TRACE_ID_AT, TRACE_ID_LEN));
		bus_message_add_header(message, "traceparent", row->trace);
	}
	return true;
}

/* ---- routes ------------------------------------------------------------------------------ */

/* Of another length it is not a traceparent, and is left out as W3C says. */
static struct slice read_traceparent(const struct request *request)
{
	struct slice traceparent = request_header(request, "traceparent");

	return traceparent.len == TRACEPARENT_LEN ? traceparent : (struct slice){0};
}

static void submit_change(
	struct entitlements *entitlements, struct request *request, enum entitlement_verb verb)
{
	struct entitlement_command *command = entitlement_command_new(&request->arena);
	struct input input;

	input_init(&input, request);
	input_read_body(&input);
	command->verb = verb;
	command->user_id = input_id(&input, "user_id");
	command->unit = input_id(&input, "stock_keeping_unit");
	command->reason = input_id(&input, "reason");
	command->purchase_id = input_id(&input, "purchase_id");
	command->traceparent = read_traceparent(request);
	command->write.command.key =
		entitlement_lane_key(&request->arena, command->user_id, command->unit);
	input_require_key(&input);
	submit_write(&input, entitlements->lanes, &command->write);
}

static void post_grant(void *entitlements, struct request *request)
{
	submit_change(entitlements, request, ENTITLEMENT_GRANT);
}

static void post_revoke(void *entitlements, struct request *request)
{
	submit_change(entitlements, request, ENTITLEMENT_REVOKE);
}

static void list(void *context, struct request *request)
{
	struct entitlements *entitlements = context;
	struct entitlement_lookup *lookup = entitlement_lookup_new(&request->arena);
	struct input input;

	input_init(&input, request);
	input_check_id(&input, "user_id", request->params[0]);
	lookup->user_id = request->params[0];
	lookup->path = request->path.raw;
	lookup->limit = input_limit(&input, LIST_LIMIT);
	lookup->after = input_query(&input, "after");
	submit_read(&input, entitlements->lanes, &lookup->read);
}

void entitlements_add_routes(struct entitlements *entitlements, struct router *router)
{
	const struct route routes[] = {
		{"POST", "/v1/entitlements/grants", ACCESS_EXTERNAL, post_grant, entitlements, 0},
		{"POST", "/v1/entitlements/revokes", ACCESS_EXTERNAL, post_revoke, entitlements, 0},
		{"GET", "/v1/users/{user_id}/entitlements", ACCESS_EXTERNAL, list, entitlements, 0},
	};

	router_add_all(router, "entitlements", routes, sizeof(routes) / sizeof(routes[0]));
}
