/*
 * Turns HTTP requests into commands and lookups of the gateway: sends, takes, configurations and
 * forecasts. Runs on the loops and never blocks. A user id may be a number or a text (1001 and
 * "1001" are the same user), and answers use the form that the client used.
 */
#include "services/gateway/gateway.h"

#include "inbound/input.h"
#include "inbound/submit.h"
#include "services/gateway/gateway_batch.h"
#include "services/gateway/gateway_messages.h"
#include "services/gateway/limit_rules.h"

#define LIST_LIMIT 100
#define ROW_BYTES_MAX 512 /* the longest JSON of one configuration */
#define MESSAGE_BYTES_MAX (16 * 1024)

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

/* Returns true if the mode is "shadow". The default is "enforce". */
static bool read_shadow(struct input *input)
{
	struct slice mode = input_optional_id(input, "mode");
	bool is_shadow = slice_is(mode, "shadow");

	if (mode.len > 0 && !is_shadow && !slice_is(mode, "enforce"))
		input_error(input, "mode", "must be enforce or shadow");
	return is_shadow;
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
	command->shadow = read_shadow(&input);
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
	command->traceparent = request->traceparent;
	submit_write(&input, gateway->lanes, &command->write);
}

static void take(void *context, struct request *request)
{
	static const struct int_rule amount_rule = {
		.field = "amount",
		.least = 1,
		.most = INT32_MAX,
		.fallback = 1,
		.message = "must be an integer from 1 to 2147483647",
	};
	struct gateway *gateway = context;
	struct gateway_command *command = gateway_command_new(&request->arena);
	struct input input;

	input_init(&input, request);
	input_read_body(&input);
	input_check_id(&input, "userId", request->params[0]);
	command->verb = GATEWAY_TAKE;
	command->user.text = request->params[0];
	command->write.command.key = command->user.text;
	command->amount = (int32_t)input_int(&input, &amount_rule);
	submit_write(&input, gateway->lanes, &command->write);
}

static void look_up(struct gateway *gateway, struct request *request, bool is_forecast)
{
	struct gateway_lookup *lookup = gateway_lookup_new(&request->arena);
	struct input input;

	input_init(&input, request);
	input_check_id(&input, "userId", request->params[0]);
	lookup->is_forecast = is_forecast;
	lookup->read.command.key = request->params[0];
	submit_read(&input, gateway->lanes, &lookup->read);
}

static void show_config(void *gateway, struct request *request)
{
	look_up(gateway, request, false);
}

static void show_limit(void *gateway, struct request *request)
{
	look_up(gateway, request, true);
}

static void list_configs(void *context, struct request *request)
{
	struct gateway *gateway = context;
	struct gateway_list *list = gateway_list_new(&request->arena);
	struct input input;

	input_init(&input, request);
	list->gateway = gateway;
	list->path = request->path.raw;
	list->limit = input_limit(&input, LIST_LIMIT);
	list->after = input_query(&input, "after");
	if (list->after.len > 0)
		input_check_id(&input, "after", list->after);
	list->read.command.answer_max = answer_list_max(list->limit, ROW_BYTES_MAX);
	submit_read(&input, gateway->lanes, &list->read);
}

static void remove_config(void *context, struct request *request)
{
	struct gateway *gateway = context;
	struct gateway_command *command = gateway_command_new(&request->arena);
	struct input input;

	input_init(&input, request);
	input_read_body(&input);
	input_check_id(&input, "userId", request->params[0]);
	command->verb = GATEWAY_REMOVE;
	command->user.text = request->params[0];
	command->write.command.key = command->user.text;
	submit_write(&input, gateway->lanes, &command->write);
}

static void show_message(void *context, struct request *request)
{
	struct gateway_message *message = gateway_message_new(&request->arena);
	struct input input;

	input_init(&input, request);
	input_check_id(&input, "messageId", request->params[0]);
	message->gateway = context;
	message->id = request->params[0];
	submit_read(&input, message->gateway->lanes, &message->read);
}

static const char *const list_parameters[] = {"after", "limit", NULL};
static const char *const config_members[] = {
	"userId", "user_id", "rateLimit", "rate_limit", "timeWindow", "time_window", "mode", NULL};
static const char *const take_members[] = {"amount", NULL};
static const char *const send_members[] = {"userId", "user_id", "message", NULL};

void gateway_add_routes(struct gateway *gateway, struct router *router)
{
	const struct route routes[] = {
		{"POST", "/api/config", ACCESS_INTERNAL, configure, gateway, 0, config_members,
			NULL},
		{"GET", "/api/config", ACCESS_INTERNAL, list_configs, gateway, 0, NULL,
			list_parameters},
		{"GET", "/api/config/{userId}", ACCESS_INTERNAL, show_config, gateway, 0, NULL,
			NULL},
		{"DELETE", "/api/config/{userId}", ACCESS_INTERNAL, remove_config, gateway, 0, NULL,
			NULL},
		{"POST", "/api/send", ACCESS_EXTERNAL, send_message, gateway, 0, send_members,
			NULL},
		{"POST", "/api/limits/{userId}/take", ACCESS_EXTERNAL, take, gateway, 0,
			take_members, NULL},
		{"GET", "/api/limits/{userId}", ACCESS_EXTERNAL, show_limit, gateway, 0, NULL,
			NULL},
		{"GET", "/api/messages/{messageId}", ACCESS_EXTERNAL, show_message, gateway, 0,
			NULL, NULL},
	};

	router_add_all(router, "gateway", routes, sizeof(routes) / sizeof(routes[0]));
}
