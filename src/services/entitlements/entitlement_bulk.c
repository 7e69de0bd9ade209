/*
 * A campaign grants one thing to many users. The grants are independent: each is submitted with its
 * own Idempotency-Key, as if it were a separate request. Therefore an interrupted campaign can
 * simply be sent again.
 */
#include "services/entitlements/entitlement_bulk.h"

#include "inbound/elements.h"
#include "inbound/fan_out.h"
#include "inbound/submit.h"

#define BATCH_BODY_MAX (1024 * 1024)

static const char *const grant_members[] = {
	"user_id", "stock_keeping_unit", "reason", "purchase_id", "idempotency_key", NULL};
static const char *const batch_members[] = {"grants", NULL};

/* Sets the Idempotency-Key of the current grant, as if the grant had come through the route for a
 * single grant. */
static void set_key(struct elements *elements, struct write *write)
{
	struct input *input = elements->input;
	struct slice key = elements_key(elements, "idempotency_key");
	struct asked asked = {.method = "POST", .path = "/v1/entitlements/grants"};

	if (!key.data)
		input_error(input, "idempotency_key",
			"is required, so that the grant can be repeated safely");
	if (!input_is_good(input))
		return;
	asked.body = json_copy(input->body);
	json_object_del(asked.body, "idempotency_key");
	submit_key_as(input->request, write, key, &asked);
	json_decref(asked.body);
}

static void refuse_header(struct input *input)
{
	if (request_header(input->request, "Idempotency-Key").data)
		input_error(input, "Idempotency-Key",
			"must not be sent with a batch: each grant has an idempotency_key of its "
			"own");
}

static void write_result(struct buffer *body, const struct answer *answer)
{
	if (answer->http_status == 200) {
		buffer_add(body, slice_make(answer->body.data, answer->body.len - 1));
	} else {
		buffer_text(body, "{\"problem\":");
		buffer_add(body, answer->body);
	}
	buffer_text(body, answer->replayed ? ",\"replayed\":true}" : "}");
}

static struct answer render(struct arena *arena, struct write *const *writes, size_t count)
{
	struct buffer body = buffer_make(arena, 160 * count + 32);

	buffer_text(&body, "{\"results\":[");
	for (size_t i = 0; i < count; i++) {
		if (i > 0)
			buffer_char(&body, ',');
		write_result(&body, &writes[i]->command.answer);
	}
	buffer_text(&body, "]}");
	return answer_json(200, buffer_slice(&body));
}

static void post_grants(void *context, struct request *request)
{
	struct entitlements *entitlements = context;
	struct elements elements;
	struct write **writes;
	struct input input;

	input_init(&input, request);
	input_read_body(&input);
	refuse_header(&input);
	elements = elements_of(&input, "grants", grant_members);
	writes = arena_array(&request->arena, struct write *, elements.count);
	for (size_t i = 0; i < elements.count; i++) {
		if (!elements_enter(&elements, i))
			continue;
		writes[i] = &entitlement_read_change(&input, true)->write;
		set_key(&elements, writes[i]);
		elements_leave(&elements);
	}
	fan_out(&input, entitlements->lanes, writes, elements.count, render);
}

void entitlements_add_bulk_routes(struct entitlements *entitlements, struct router *router)
{
	const struct route route = {"POST", "/v1/entitlements/grants/batch", ACCESS_EXTERNAL,
		post_grants, entitlements, BATCH_BODY_MAX, batch_members, NULL};

	router_add_all(router, "entitlements", &route, 1);
}
