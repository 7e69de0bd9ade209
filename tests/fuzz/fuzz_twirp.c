/*
 * A body for every method of Pyggpot, in both encodings, through its route, its rules and a
 * store. The first byte of the input chooses the method and the encoding; the rest is the body. The
 * same body is also read as a message with fields of every type, and what is read is written and
 * read again.
 */
#include <coin.pb-c.h>
#include <every_type.pb-c.h>
#include <jansson.h>
#include <pot.pb-c.h>

#include "../unit/faulty_store.h"
#include "base/text.h"
#include "http/twirp.h"
#include "http/worker.h"
#include "services/pots/pot_batch.h"
#include "services/pots/pots.h"
#include "target.h"

#define MAX_COINS 2147483647

static struct {
	struct arena arena;
	struct arena batch; /* of one run */
	struct router *router;
	struct faulty_store *store;
	struct session *session;
	struct pots pots;
	struct lane_set *lanes;
	struct http_worker worker;
	int32_t pot_id;
} world;

/* A pot with the id 1 and some coins; nothing that a run changes is kept. */
static void make_world(void)
{
	struct lane_settings settings = {
		.lanes = 1, .depth_max = 10, .bytes_max = 1 << 30, .batch_max = 10};
	struct store *store;
	struct lane_service service;

	arena_init(&world.arena, 65536);
	arena_init(&world.batch, 65536);
	world.router = router_new();
	world.store = faulty_store_new();
	store = &world.store->base;
	world.session = faulty_store_open_session(world.store, SESSION_WRITE);
	world.pot_id = faulty_store_add_pot(world.store, "PPP", MAX_COINS);
	world.pots = (struct pots){.repository = &faulty_pot_repository, .lock_ttl_us = 1000000};
	service = pots_lane_service(&world.pots);
	world.lanes = world.pots.lanes = lane_set_new(&service, store, &settings);
	pots_add_routes(&world.pots, world.router, &world.arena);
}

/* ---- messages ---------------------------------------------------------------------------- */

/* What is read can be written, and is the same when it is read again. */
static void check_message(const ProtobufCMessageDescriptor *descriptor,
	enum proto_encoding encoding, struct slice body, struct arena *arena)
{
	struct proto_error error = {0};
	ProtobufCMessage *message = proto_read(descriptor, encoding, body, arena, &error);
	ProtobufCMessage *again;
	struct slice binary, json;

	if (!message) {
		MUST(error.where && error.why && *error.why);
		return;
	}
	binary = proto_write(message, PROTO_BINARY, arena);
	again = proto_read(descriptor, PROTO_BINARY, binary, arena, &error);
	MUST(again);
	json = proto_write(again, PROTO_JSON, arena);
	MUST(slice_equal(json, proto_write(message, PROTO_JSON, arena)));
	MUST(text_is_utf8(json));
	again = proto_read(descriptor, PROTO_JSON, json, arena, &error);
	MUST(again && slice_equal(json, proto_write(again, PROTO_JSON, arena)));
}

static void check_messages(enum proto_encoding encoding, struct slice body)
{
	const ProtobufCMessageDescriptor *descriptors[] = {
		&quipu__test__every_type__descriptor,
		&pyggpot__pot__create_pot_request__descriptor,
		&pyggpot__pot__list_pots_request__descriptor,
		&pyggpot__coin__remove_coins_request__descriptor,
	};
	struct arena arena;

	arena_init(&arena, 65536);
	for (size_t i = 0; i < sizeof(descriptors) / sizeof(descriptors[0]); i++)
		check_message(descriptors[i], encoding, body, &arena);
	arena_release(&arena);
}

/* ---- requests ---------------------------------------------------------------------------- */

static void check_error(const struct answer *answer)
{
	json_t *error =
		json_loadb(answer->body.data, answer->body.len, JSON_REJECT_DUPLICATES, NULL);

	MUST(slice_is(answer->content_type, "application/json"));
	MUST(json_is_string(json_object_get(error, "code")));
	MUST(json_string_length(json_object_get(error, "msg")) > 0);
	MUST(json_is_string(json_object_get(json_object_get(error, "meta"), "reason")));
	json_decref(error);
}

static void check_coins(const struct coins *before, const struct coins *after)
{
	MUST(coins_total(after) <= MAX_COINS);
	for (size_t kind = 0; kind < COIN_KINDS; kind++)
		MUST(before->of[kind] >= 0 && after->of[kind] >= 0);
}

/* In a transaction: the coins as it sees them. Leaves the pot locked. */
static struct coins take_pot(void)
{
	struct pot_lock lock = {.token = "x", .ttl_us = 1};
	struct pot_content content = {.pot_id = world.pot_id};

	MUST(faulty_pot_repository.ops->take(
		     &faulty_pot_repository, world.session, &lock, &content, 1) == STATUS_OK);
	MUST(content.exists);
	return content.coins;
}

/* What a committer does, and then undoes. */
static void run_write(struct write *write)
{
	struct write_batch batch = {.writes = &write, .count = 1, .arena = &world.batch};
	struct coins before = faulty_store_get_pot(world.store, world.pot_id).coins;
	struct coins after;

	MUST(world.session->ops->begin(world.session, TRANSACTION_WAIT) == STATUS_OK);
	MUST(pot_batch_decide(&world.pots, world.session, &batch) == STATUS_OK);
	MUST(write->fate == WRITE_ANSWERED);
	after = take_pot();
	check_coins(&before, &after);
	world.session->ops->rollback(world.session);
}

static void run_read(struct read *read)
{
	struct read_batch batch = {.reads = &read, .count = 1, .arena = &world.batch};

	MUST(pot_batch_look_up(&faulty_pot_repository, world.session, &batch) == STATUS_OK);
}

/* Takes what the handler has submitted out of its lane and runs it. */
static const struct answer *run_command(struct request *request)
{
	struct command_list taken = {0};

	if (!request->command)
		return &request->answer;
	if (lane_take(lane_set_writer(world.lanes, 0), &taken, 1, 0) && taken.first)
		run_write(write_of(taken.first));
	else if (lane_take(lane_set_reader(world.lanes), &taken, 1, 0) && taken.first)
		run_read(read_of(taken.first));
	MUST(taken.first == request->command);
	return &request->command->answer;
}

static void check_answer(
	const struct route *route, enum proto_encoding encoding, struct request *request)
{
	const struct answer *answer = run_command(request);
	const char *method = strrchr(route->path, '/') + 1;
	const ProtobufCServiceDescriptor *service = strstr(route->path, ".Coin/")
							    ? &pyggpot__coin__coin__descriptor
							    : &pyggpot__pot__pot__descriptor;
	const ProtobufCMethodDescriptor *described =
		protobuf_c_service_descriptor_get_method_by_name(service, method);
	struct proto_error error;

	if (answer->http_status == 200)
		MUST(proto_read(
			described->output, encoding, answer->body, &request->arena, &error));
	else
		check_error(answer);
}

static void send_body(const struct route *route, enum proto_encoding encoding, struct slice body)
{
	struct request request = {.worker = &world.worker, .route = route};

	arena_init(&request.arena, 4096);
	request.method = slice_of(route->method);
	request.target = request.path.raw = slice_of(route->path);
	request.body = body;
	request.headers[0].name = slice_of("Content-Type");
	request.headers[0].value =
		slice_of(encoding == PROTO_JSON ? "application/json" : "application/protobuf");
	request.header_count = 1;
	route->handle(route->context, &request);
	router_apply_style(world.router, &request);
	check_answer(route, encoding, &request);
	arena_release(&request.arena);
}

/* One pot has coins of all kinds, so that what is removed by chance is looked at too. */
static void fill_pot(void)
{
	struct pot_lock lock = {.token = "x", .ttl_us = 1};
	struct pot_change change = {.pot_id = world.pot_id,
		.is_changed = {true, true, true},
		.coins = {{1000, 500000000, 7}}};

	MUST(world.session->ops->begin(world.session, TRANSACTION_WAIT) == STATUS_OK);
	take_pot();
	MUST(faulty_pot_repository.ops->put(
		     &faulty_pot_repository, world.session, &lock, &change, 1) == STATUS_OK);
	MUST(world.session->ops->commit(world.session) == STATUS_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum proto_encoding encoding;
	struct slice body;

	if (!world.router) {
		make_world();
		fill_pot();
	}
	if (size == 0 || size > TWIRP_BODY_MAX)
		return 0;
	encoding = data[0] & 1 ? PROTO_BINARY : PROTO_JSON;
	body = slice_make(data + 1, size - 1);
	send_body(router_at(world.router, (data[0] >> 1) % router_count(world.router)), encoding,
		body);
	check_messages(encoding, body);
	arena_reset(&world.batch);
	return 0;
}
