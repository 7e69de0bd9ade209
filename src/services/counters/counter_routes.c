/* Turns HTTP requests into lookups and streams of counters. Runs on the loops and never blocks. */
#include "inbound/input.h"
#include "inbound/submit.h"
#include "services/counters/counter_lookup.h"

/* ---- lookups ----------------------------------------------------------------------------- */

static struct counter_lookup *new_lookup(struct input *input)
{
	struct counter_lookup *lookup = counter_lookup_new(&input->request->arena);

	input_check_id(input, "userId", input->request->params[0]);
	lookup->read.command.key = input->request->params[0];
	return lookup;
}

static void submit_lookup(struct counters *counters, struct request *request, bool is_list)
{
	struct counter_lookup *lookup;
	struct input input;

	input_init(&input, request);
	lookup = new_lookup(&input);
	lookup->is_list = is_list;
	submit_read(&input, counters->lanes, &lookup->read);
}

static void get_counter(void *counters, struct request *request)
{
	submit_lookup(counters, request, false);
}

static void get_counters(void *counters, struct request *request)
{
	submit_lookup(counters, request, true);
}

/* ---- the stream -------------------------------------------------------------------------- */

/* Starts the stream with the value from the lookup, or with a newer value if one arrived meanwhile.
 * Publishes the value first, because the feed retracts only what was published. If the value was
 * retracted and comes from the cache, the stream starts with the 0 that hub_subscribe() offered. */
static void begin_stream(struct request *request, struct command *command)
{
	struct counter_lookup *lookup = counter_lookup_of(read_of(command));

	if (command->answer.http_status != 200) {
		request_answer(request, command->answer);
		return;
	}
	if (lookup->version == 0 ||
		hub_publish(lookup->hub, command->key, lookup->version, command->answer.body))
		stream_offer(lookup->stream, lookup->version, command->answer.body);
	stream_start(lookup->stream);
}

/* Subscribes before looking up the value, so that no change in between is missed. */
static void get_stream(void *context, struct request *request)
{
	struct counters *counters = context;
	struct counter_lookup *lookup;
	struct input input;

	input_init(&input, request);
	lookup = new_lookup(&input);
	if (input_refuse(&input))
		return;
	lookup->hub = counters->hub;
	lookup->stream = hub_subscribe(counters->hub, request, request->params[0]);
	if (lookup->stream)
		request_submit_then(request, lane_set_reader(counters->lanes),
			&lookup->read.command, begin_stream);
}

static const char *const stream_parameters[] = {"access_token", "lastEventId", NULL};

void counters_add_routes(struct counters *counters, struct router *router)
{
	const struct route routes[] = {
		{"GET", "/counters/user/{userId}/UnreadMessages", ACCESS_OWNER, get_counter,
			counters, 0, NULL, NULL},
		{"GET", "/counters/user/{userId}", ACCESS_OWNER, get_counters, counters, 0, NULL,
			NULL},
		{"GET", "/counters/user/{userId}/stream", ACCESS_OWNER_STREAM, get_stream, counters,
			0, NULL, stream_parameters},
		{"GET", "/api/v1/counters/user/{userId}/UnreadMessages", ACCESS_OWNER, get_counter,
			counters, 0, NULL, NULL},
		{"GET", "/api/v1/counters/user/{userId}", ACCESS_OWNER, get_counters, counters, 0,
			NULL, NULL},
		{"GET", "/api/v1/counters/user/{userId}/stream", ACCESS_OWNER_STREAM, get_stream,
			counters, 0, NULL, stream_parameters},
	};

	router_add_all(router, "counters", routes, sizeof(routes) / sizeof(routes[0]));
}
