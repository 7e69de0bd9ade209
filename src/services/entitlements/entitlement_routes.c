/* Turns HTTP requests into grants, revokes and lookups. Runs on the loops and never blocks. */
#include "inbound/input.h"
#include "inbound/submit.h"
#include "services/entitlements/entitlement_batch.h"
#include "services/entitlements/entitlement_bulk.h"
#include "services/entitlements/entitlement_lookup.h"

#define ROW_BYTES_MAX 512    /* the longest JSON of one entitlement in a list */
#define SOURCE_BYTES_MAX 768 /* the longest JSON of one source */
#define LIST_LIMIT 1000
#define LINE_BYTES_MAX 1024 /* the longest JSON of one audit line */
#define AUDIT_LIMIT 100

/* Reads the id of the purchase, which only some reasons require. */
static struct slice read_purchase(struct input *input, struct slice reason)
{
	static const char field[] = "purchase_id";

	return entitlement_needs_purchase(reason) ? input_id(input, field)
						  : input_optional_id(input, field);
}

struct entitlement_command *entitlement_read_change(struct input *input, bool is_grant)
{
	struct request *request = input->request;
	struct entitlement_command *command = entitlement_command_new(&request->arena);

	command->is_grant = is_grant;
	command->user_id = input_id(input, "user_id");
	command->unit = input_id(input, "stock_keeping_unit");
	command->reason = input_id(input, "reason");
	command->purchase_id = read_purchase(input, command->reason);
	command->traceparent = request->traceparent;
	command->write.command.key =
		entitlement_lane_key(&request->arena, command->user_id, command->unit);
	return command;
}

static void submit_change(struct entitlements *entitlements, struct request *request, bool is_grant)
{
	struct entitlement_command *command;
	struct input input;

	input_init(&input, request);
	input_read_body(&input);
	command = entitlement_read_change(&input, is_grant);
	input_require_key(&input);
	submit_write(&input, entitlements->lanes, &command->write);
}

static void post_grant(void *entitlements, struct request *request)
{
	submit_change(entitlements, request, true);
}

static void post_revoke(void *entitlements, struct request *request)
{
	submit_change(entitlements, request, false);
}

/* Reads the status by which a list is filtered. */
static struct slice read_status(struct input *input)
{
	struct slice status = input_query(input, "status");

	if (status.data && !slice_is(status, "ACTIVE") && !slice_is(status, "REVOKED"))
		input_error(input, "status", "must be ACTIVE or REVOKED");
	return status;
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
	lookup->read.command.key = lookup->user_id;
	lookup->read.command.answer_max = answer_list_max(lookup->limit, ROW_BYTES_MAX);
	lookup->after = input_query(&input, "after");
	lookup->status = read_status(&input);
	submit_read(&input, entitlements->lanes, &lookup->read);
}

static_assert(ROW_BYTES_MAX + ENTITLEMENT_SOURCES_FEW * SOURCE_BYTES_MAX <= LARGE_ANSWER,
	"an answer with ENTITLEMENT_SOURCES_FEW sources must have at most LARGE_ANSWER bytes");

static void on_looked(struct request *request, struct command *command);

static void submit_look(struct input *input, bool wants_all)
{
	struct request *request = input->request;
	struct entitlements *entitlements = request->route->context;
	struct entitlement_lookup *lookup = entitlement_lookup_new(&request->arena);

	lookup->user_id = request->params[0];
	lookup->unit = request->params[1];
	lookup->wants_all = wants_all;
	lookup->read.command.key = lookup->user_id;
	if (wants_all)
		lookup->read.command.answer_max =
			answer_list_max(ENTITLEMENT_SOURCES_MAX, SOURCE_BYTES_MAX);
	submit_read_then(input, entitlements->lanes, &lookup->read, on_looked);
}

/* If the entitlement has more than ENTITLEMENT_SOURCES_FEW sources, looks it up again, this time as
 * a large read. */
static void on_looked(struct request *request, struct command *command)
{
	struct input input;

	if (!entitlement_lookup_of(read_of(command))->has_more) {
		request_answer(request, command->answer);
		return;
	}
	input_init(&input, request);
	submit_look(&input, true);
}

/* The first lookup returns at most ENTITLEMENT_SOURCES_FEW sources, because most entitlements have
 * no more. If the first lookup allowed ENTITLEMENT_SOURCES_MAX sources, every lookup would be a
 * large read, and a batch may contain only a few large reads. */
static void look(void *context, struct request *request)
{
	struct input input;

	(void)context;
	input_init(&input, request);
	input_check_id(&input, "user_id", request->params[0]);
	input_check_id(&input, "stock_keeping_unit", request->params[1]);
	submit_look(&input, false);
}

static void audit(void *context, struct request *request)
{
	struct entitlements *entitlements = context;
	struct audit_lookup *lookup = audit_lookup_new(&request->arena);
	struct slice before;
	struct input input;

	input_init(&input, request);
	input_check_id(&input, "user_id", request->params[0]);
	before = input_query(&input, "before");
	if (before.data && !audit_cursor_read(before, &lookup->page))
		input_error(&input, "before",
			"must be taken from the Link header of the previous page");
	lookup->repository = entitlements->repository;
	lookup->path = request->path.raw;
	lookup->page.user_id = request->params[0];
	lookup->page.limit = input_limit(&input, AUDIT_LIMIT);
	lookup->read.command.key = lookup->page.user_id;
	lookup->read.command.answer_max = answer_list_max(lookup->page.limit, LINE_BYTES_MAX);
	submit_read(&input, entitlements->lanes, &lookup->read);
}

static const char *const change_members[] = {
	"user_id", "stock_keeping_unit", "reason", "purchase_id", NULL};
static const char *const list_parameters[] = {"after", "limit", "status", NULL};
static const char *const audit_parameters[] = {"before", "limit", NULL};

void entitlements_add_routes(struct entitlements *entitlements, struct router *router)
{
	const struct route routes[] = {
		{"POST", "/v1/entitlements/grants", ACCESS_EXTERNAL, post_grant, entitlements, 0,
			change_members, NULL},
		{"POST", "/v1/entitlements/revokes", ACCESS_EXTERNAL, post_revoke, entitlements, 0,
			change_members, NULL},
		{"GET", "/v1/users/{user_id}/entitlements", ACCESS_EXTERNAL, list, entitlements, 0,
			NULL, list_parameters},
		{"GET", "/v1/users/{user_id}/entitlements/{stock_keeping_unit}", ACCESS_EXTERNAL,
			look, entitlements, 0, NULL, NULL},
		{"GET", "/v1/users/{user_id}/entitlement-audit", ACCESS_EXTERNAL, audit,
			entitlements, 0, NULL, audit_parameters},
	};

	router_add_all(router, "entitlements", routes, sizeof(routes) / sizeof(routes[0]));
	entitlements_add_bulk_routes(entitlements, router);
}
