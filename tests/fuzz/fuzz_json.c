/*
 * A body to a command of the count service or the gateway: the same calls that their routes make.
 * The input is an Idempotency-Key, a line feed, and the body; without a line feed all of it is the
 * body.
 */
#include "base/text.h"
#include "http/router.h"
#include "inbound/input.h"
#include "target.h"

static const struct int_rule amount_rule = {
	.field = "amount",
	.least = 1,
	.most = INT64_MAX,
	.fallback = 1,
	.message = "must be an integer from 1 to 9223372036854775807",
};

static const struct int_rule initial_rule = {
	.field = "initialValue",
	.least = INT64_MIN,
	.most = INT64_MAX,
	.fallback = 0,
	.message = "must be an integer within 64 bits",
};

static const struct int_rule narrow_rule = {
	.field = "amount",
	.least = -5,
	.most = 5,
	.required = true,
	.message = "must be an integer from -5 to 5",
};

static const struct int_rule limit_rule = {
	.field = "rateLimit",
	.alias = "rate_limit",
	.least = 1,
	.most = INT32_MAX,
	.required = true,
	.message = "is required and must be an integer from 1 to 2147483647",
};

/* The members of all routes that are tried here, some of which are not read. */
static const char *const members[] = {"amount", "itemId", "initialValue", "userId", "user_id",
	"rateLimit", "rate_limit", "message", NULL};

static const struct route route = {
	.method = "POST", .path = "/api/{x}", .members = members, .body_max = BODY_MAX_DEFAULT};

static void add_header(struct request *request, const char *name, struct slice value)
{
	request->headers[request->header_count].name = slice_of(name);
	request->headers[request->header_count].value = value;
	request->header_count++;
}

static void make_request(struct request *request, struct slice bytes)
{
	struct slice body = bytes;
	struct slice key = slice_cut(&body, '\n');

	memset(request, 0, sizeof(*request));
	arena_init(&request->arena, 4096);
	request->route = &route;
	request->method = slice_of(route.method);
	if (body.data) {
		add_header(request, "Idempotency-Key", slice_trim(key));
		request->body = body;
	} else {
		request->body = bytes;
	}
}

/* A refusal is problem+json that any client can read. */
static void check_refusal(const struct request *request)
{
	const struct answer *answer = &request->answer;
	json_t *problem = json_loadb(answer->body.data, answer->body.len, 0, NULL);

	MUST(answer->http_status == 400 || answer->http_status == 415);
	MUST(slice_is(answer->content_type, "application/problem+json"));
	MUST(json_is_object(problem));
	MUST(json_integer_value(json_object_get(problem, "status")) == answer->http_status);
	MUST(json_is_string(json_object_get(problem, "code")));
	json_decref(problem);
}

static void check_id(struct slice id)
{
	MUST(id.len >= 1 && id.len <= ID_BYTES_MAX);
	MUST(text_is_utf8(id) && !text_has_control(id));
}

static void check_key(struct slice key)
{
	if (!key.data)
		return;
	MUST(key.len >= 1 && key.len <= IDEMPOTENCY_KEY_BYTES_MAX);
	MUST(text_is_utf8(key) && !text_has_control(key));
}

/* POST …/increase and the like: one number. It is within its rule even where it is refused. */
static void try_amount(struct slice bytes, const struct int_rule *rule)
{
	struct request request;
	struct input input;
	struct slice key;
	int64_t amount;

	make_request(&request, bytes);
	input_init(&input, &request);
	input_read_body(&input);
	amount = input_int(&input, rule);
	MUST(amount == rule->fallback || (amount >= rule->least && amount <= rule->most));
	key = input_idempotency_key(&input);
	if (input_refuse(&input))
		check_refusal(&request);
	else
		check_key(key);
	arena_release(&request.arena);
}

/* POST /api/v1/internal/counts: an id and a number. */
static void try_create(struct slice bytes)
{
	struct request request;
	struct input input;
	struct slice id, key;

	make_request(&request, bytes);
	add_header(&request, "Content-Type", slice_of("application/json; charset=utf-8"));
	input_init(&input, &request);
	input_read_body(&input);
	id = input_id(&input, "itemId");
	(void)input_int(&input, &initial_rule);
	key = input_idempotency_key(&input);
	if (input_refuse(&input)) {
		check_refusal(&request);
	} else {
		check_id(id);
		check_key(key);
	}
	arena_release(&request.arena);
}

/* An integer that was sent as one is written in digits without zeros in front: one user, one
 * name. */
static void check_user(struct slice user, bool is_number)
{
	int64_t number;

	check_id(user);
	if (!is_number)
		return;
	MUST(text_to_int(user, &number) && number >= 0);
	MUST(user.len == 1 || user.data[0] != '0');
}

#define MESSAGE_BYTES_MAX 64

/* POST /api/send: a user and a text. */
static void try_send(struct slice bytes)
{
	struct request request;
	struct input input;
	struct slice user, text, key;
	bool is_number;

	make_request(&request, bytes);
	input_init(&input, &request);
	input_read_body(&input);
	user = input_id_or_number(&input, "userId", "user_id", &is_number);
	text = input_text(&input, "message", MESSAGE_BYTES_MAX, "is required");
	key = input_idempotency_key(&input);
	if (input_refuse(&input)) {
		check_refusal(&request);
	} else {
		check_user(user, is_number);
		MUST(text.len <= MESSAGE_BYTES_MAX && text_is_utf8(text) && !text_is_blank(text));
		check_key(key);
	}
	arena_release(&request.arena);
}

/* POST /api/config: a user and a number, both under either of two names. */
static void try_config(struct slice bytes)
{
	struct request request;
	struct input input;
	struct slice user;
	int64_t limit;
	bool is_number;

	make_request(&request, bytes);
	input_init(&input, &request);
	input_read_body(&input);
	user = input_id_or_number(&input, "userId", "user_id", &is_number);
	limit = input_int(&input, &limit_rule);
	if (input_refuse(&input)) {
		check_refusal(&request);
	} else {
		check_user(user, is_number);
		MUST(limit >= limit_rule.least && limit <= limit_rule.most);
	}
	arena_release(&request.arena);
}

/* Whatever is good enough for a request is good enough for an event. */
static void try_event(struct slice bytes)
{
	char why[JSON_WHY_SIZE];
	json_t *strict = json_parse_object(bytes, why);
	json_t *event = json_parse_event(bytes, why);

	MUST(event || !strict);
	MUST(event || memchr(why, '\0', sizeof(why)));
	json_decref(strict);
	json_decref(event);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice bytes = slice_make(data, size);

	try_amount(bytes, &amount_rule);
	try_amount(bytes, &narrow_rule);
	try_create(bytes);
	try_send(bytes);
	try_config(bytes);
	try_event(bytes);
	return 0;
}
