#include "services/gateway/gateway.h"

#include <stdlib.h>

#include "inbound/input.h"
#include "inbound/submit.h"
#include "services/gateway/gateway_batch.h"
#include "services/gateway/limit_rules.h"

#define MESSAGE_BYTES_MAX (16 * 1024)

/* ---- lanes ------------------------------------------------------------------------------- */

static void *open_lane(void *context)
{
	struct gateway *gateway = context;
	struct gateway_lane *lane = qp_calloc(1, sizeof(*lane));

	lane->gateway = gateway;
	arena_init(&lane->stale_arena, 4096);
	lane->producer = gateway->bus->ops->open_producer(gateway->bus);
	if (gateway->cache)
		lane->cache = gateway->cache->ops->open_session(gateway->cache);
	return lane;
}

static void close_lane(void *context)
{
	struct gateway_lane *lane = context;

	lane->producer->ops->close(lane->producer);
	if (lane->cache)
		lane->cache->ops->close(lane->cache);
	arena_release(&lane->stale_arena);
	free(lane);
}

struct lane_service gateway_lane_service(struct gateway *gateway)
{
	return (struct lane_service){
		.name = "gateway",
		.context = gateway,
		.open_lane = open_lane,
		.close_lane = close_lane,
		.prepare = gateway_prepare,
		.decide = gateway_decide,
		.perform = gateway_perform,
		.settle = gateway_settle,
		.look_up = gateway_look_up,
	};
}

/* ---- routes ------------------------------------------------------------------------------ */

static struct gateway_command *new_command(struct input *input, enum gateway_verb verb)
{
	struct gateway_command *command = gateway_command_new(&input->request->arena);

	input_read_body(input);
	command->verb = verb;
	command->user.text =
		input_id_or_number(input, "userId", "user_id", &command->user.is_number);
	command->write.command.key = command->user.text;
	return command;
}

static void configure(void *context, struct request *request)
{
	static const struct int_rule rate_limit_rule = {
		.field = "rateLimit",
		.alias = "rate_limit",
		.least = 1,
		.most = INT32_MAX,
		.required = true,
		.message = "is required and must be an integer from 1 to 2147483647",
	};
	static const struct int_rule time_window_rule = {
		.field = "timeWindow",
		.alias = "time_window",
		.least = 1,
		.most = TIME_WINDOW_MAX,
		.required = true,
		.message = "is required and must be an integer of minutes from 1 to 525600",
	};
	struct gateway *gateway = context;
	struct gateway_command *command;
	struct input input;

	input_init(&input, request);
	command = new_command(&input, GATEWAY_CONFIGURE);
	command->rate_limit = (int32_t)input_int(&input, &rate_limit_rule);
	command->time_window = (int32_t)input_int(&input, &time_window_rule);
	submit_write(&input, gateway->lanes, &command->write);
}

static void send_message(void *context, struct request *request)
{
	struct gateway *gateway = context;
	struct gateway_command *command;
	struct input input;

	input_init(&input, request);
	command = new_command(&input, GATEWAY_SEND);
	command->message = input_text(&input, "message", MESSAGE_BYTES_MAX,
		"is required, must not be blank and must be at most 16384 bytes");
	command->traceparent = request_header(request, "traceparent");
	submit_write(&input, gateway->lanes, &command->write);
}

static void show_config(void *context, struct request *request)
{
	struct gateway *gateway = context;
	struct gateway_lookup *lookup = gateway_lookup_new(&request->arena);
	struct input input;

	input_init(&input, request);
	input_check_id(&input, "userId", request->params[0]);
	lookup->read.command.key = request->params[0];
	submit_read(&input, gateway->lanes, &lookup->read);
}

void gateway_add_routes(struct gateway *gateway, struct router *router)
{
	const struct route routes[] = {
		{"POST", "/api/config", ACCESS_INTERNAL, configure, gateway, 0},
		{"GET", "/api/config/{userId}", ACCESS_INTERNAL, show_config, gateway, 0},
		{"POST", "/api/send", ACCESS_EXTERNAL, send_message, gateway, 0},
	};

	router_add_all(router, "gateway", routes, sizeof(routes) / sizeof(routes[0]));
}
