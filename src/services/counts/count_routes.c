/*
 * Turns HTTP requests into count commands and lookups. Runs on the loops and never blocks: commands
 * and lookups are created in the request's arena and submitted to a lane.
 */
#include "services/counts/counts.h"

#include "base/hash.h"
#include "inbound/input.h"
#include "inbound/submit.h"
#include "services/counts/count_batch.h"
#include "services/counts/count_lookup.h"

#define QUERY_IDS_MAX 1000
#define LIST_LIMIT 100
#define COUNT_BYTES_MAX 512 /* the longest JSON of one count */

/* ---- changes ----------------------------------------------------------------------------- */

static void submit_change(struct counts *counts, struct input *input, struct slice item_id,
	struct count_change change)
{
	struct count_command *command = count_command_new(&input->request->arena);

	command->change = change;
	command->write.command.key = item_id;
	submit_write(input, counts->lanes, &command->write);
}

static void submit_addition(struct counts *counts, struct request *request, int sign)
{
	static const struct int_rule amount_rule = {
		.field = "amount",
		.least = 1,
		.most = INT64_MAX,
		.fallback = 1,
		.message = "must be an integer from 1 to 9223372036854775807",
	};
	struct count_change change = {.verb = COUNT_VERB_ADD};
	struct input input;

	input_init(&input, request);
	input_check_id(&input, "itemId", request->params[0]);
	input_read_body(&input);
	change.amount = sign * input_int(&input, &amount_rule);
	submit_change(counts, &input, request->params[0], change);
}

static void increase(void *counts, struct request *request)
{
	submit_addition(counts, request, 1);
}

static void decrease(void *counts, struct request *request)
{
	submit_addition(counts, request, -1);
}

/* Reset and remove need only the id. The body is read only to refuse invalid JSON. */
static void submit_bare(struct counts *counts, struct request *request, enum count_verb verb)
{
	struct input input;

	input_init(&input, request);
	input_check_id(&input, "itemId", request->params[0]);
	input_read_body(&input);
	submit_change(counts, &input, request->params[0], (struct count_change){.verb = verb});
}

static void reset(void *counts, struct request *request)
{
	submit_bare(counts, request, COUNT_VERB_RESET);
}

static void remove_count(void *counts, struct request *request)
{
	submit_bare(counts, request, COUNT_VERB_REMOVE);
}

/* Reads any int64 from the body. */
static int64_t read_int64(struct input *input, const char *field)
{
	const struct int_rule rule = {
		.field = field,
		.least = INT64_MIN,
		.most = INT64_MAX,
		.message = "must be an integer from -9223372036854775808 to "
			   "9223372036854775807",
	};

	return input_int(input, &rule);
}

/* Returns whether the body has this field, even if it is null. */
static bool has_field(const struct input *input, const char *field)
{
	return json_object_get(input->body, field) != NULL;
}

static bool has_value(const struct input *input, const char *field)
{
	return has_field(input, field) && !json_is_null(json_object_get(input->body, field));
}

static struct count_bounds read_bounds(struct input *input)
{
	struct count_bounds bounds = {
		.min = {has_value(input, "minValue"), read_int64(input, "minValue")},
		.max = {has_value(input, "maxValue"), read_int64(input, "maxValue")},
	};

	if (input->error_count == 0 && count_bounds_are_empty(&bounds))
		input_error(input, "maxValue", "must not be less than minValue");
	return bounds;
}

static void create(void *counts, struct request *request)
{
	struct count_change change = {.verb = COUNT_VERB_CREATE};
	struct input input;
	struct slice item_id;

	input_init(&input, request);
	input_read_body(&input);
	item_id = input_id(&input, "itemId");
	change.amount = read_int64(&input, "initialValue");
	change.bounds = read_bounds(&input);
	if (input.error_count == 0 && !count_is_within(change.amount, &change.bounds))
		input_error(&input, "initialValue",
			"must be from minValue to maxValue; if it is absent, it is 0");
	submit_change(counts, &input, item_id, change);
}

/* Handles a PUT. A null bound is removed, and an absent bound stays as it is. */
static void put(void *counts, struct request *request)
{
	struct count_change change = {.verb = COUNT_VERB_PUT};
	struct input input;

	input_init(&input, request);
	input_check_id(&input, "itemId", request->params[0]);
	input_read_body(&input);
	change.sets_value = has_value(&input, "value");
	change.amount = read_int64(&input, "value");
	change.expects_value = has_value(&input, "expectedValue");
	change.expected = read_int64(&input, "expectedValue");
	change.sets_min = has_field(&input, "minValue");
	change.sets_max = has_field(&input, "maxValue");
	change.bounds = read_bounds(&input);
	if (!change.sets_value && !change.sets_min && !change.sets_max)
		input_error(&input, "value", "value, minValue or maxValue is required");
	submit_change(counts, &input, request->params[0], change);
}

/* ---- lookups ----------------------------------------------------------------------------- */

static void submit_lookup(struct counts *counts, struct input *input, const struct slice *item_ids,
	size_t item_count, bool single)
{
	struct count_lookup *lookup = count_lookup_new(&input->request->arena);

	lookup->item_ids = item_ids;
	lookup->item_count = item_count;
	lookup->single = single;
	lookup->read.command.answer_max = answer_list_max(item_count, COUNT_BYTES_MAX);
	submit_read(input, counts->lanes, &lookup->read);
}

static void get_one(void *counts, struct request *request)
{
	struct input input;

	input_init(&input, request);
	input_check_id(&input, "itemId", request->params[0]);
	submit_lookup(counts, &input, &request->params[0], 1, true);
}

/* Returns whether item_ids[at] is among the first `count` ids. */
static bool is_listed(const struct slice *item_ids, const uint64_t *hashes, size_t count, size_t at)
{
	for (size_t i = 0; i < count; i++) {
		if (hashes[i] == hashes[at] && slice_equal(item_ids[i], item_ids[at]))
			return true;
	}
	return false;
}

static bool names_ids(const struct query_pair *pair)
{
	return slice_is(pair->name, "itemIds") || slice_is(pair->name, "itemIds[]");
}

/* Returns how many ids the query names. Refuses a query that combines ids with the parameters of a
 * page. */
static size_t count_item_ids(struct input *input)
{
	const struct query *query = &input->request->query;
	size_t asked = 0;

	for (size_t i = 0; i < query->count; i++)
		asked += names_ids(&query->pairs[i]);
	if (asked > 0 && asked < query->count)
		input_error(input, "itemIds",
			"cannot be combined with prefix, after or limit: those are for a page of "
			"all counts");
	if (asked > QUERY_IDS_MAX)
		input_error(input, "itemIds", "must be at most 1000 ids");
	return asked;
}

/*
 * Refuses a comma that is not encoded. Some clients write a list as itemIds=a,b, and others do not
 * encode a comma that is part of an id. The server cannot distinguish these two cases.
 */
static void refuse_commas(struct input *input)
{
	struct slice query = input->request->path.query;

	if (memchr(query.data, ',', query.len))
		input_error(input, "itemIds",
			"must be repeated for each id (itemIds=a&itemIds=b); write a comma that is "
			"part of an id as %2C");
}

/* Looks up the counts that a query such as itemIds=a&itemIds[]=b names. The query has no other
 * parameters, and an id may occur more than once. */
static void get_by_id(struct counts *counts, struct input *input, size_t asked)
{
	struct arena *arena = &input->request->arena;
	struct slice *item_ids = arena_array(arena, struct slice, asked);
	uint64_t *hashes = arena_array(arena, uint64_t, asked);
	size_t count = 0;

	refuse_commas(input);
	for (size_t i = 0; i < asked; i++) {
		item_ids[count] = input->request->query.pairs[i].value;
		input_check_id(input, "itemIds", item_ids[count]);
		hashes[count] = hash_bytes(item_ids[count]);
		if (!is_listed(item_ids, hashes, count, count))
			count++;
	}
	submit_lookup(counts, input, item_ids, count, false);
}

/* Returns an id from the query. The parameter may be absent or empty. */
static struct slice read_page_id(struct input *input, const char *name)
{
	struct slice id = input_query(input, name);

	if (id.len > 0)
		input_check_id(input, name, id);
	return id;
}

static void get_page(struct counts *counts, struct input *input)
{
	struct count_listing *listing = count_listing_new(&input->request->arena);

	listing->repository = counts->repository;
	listing->path = input->request->path.raw;
	listing->prefix = read_page_id(input, "prefix");
	listing->after = read_page_id(input, "after");
	listing->limit = input_limit(input, LIST_LIMIT);
	listing->read.command.answer_max = answer_list_max(listing->limit, COUNT_BYTES_MAX);
	submit_read(input, counts->lanes, &listing->read);
}

static void get_many(void *counts, struct request *request)
{
	struct input input;
	size_t asked;

	input_init(&input, request);
	asked = count_item_ids(&input);
	if (!input_is_good(&input))
		input_refuse(&input);
	else if (asked > 0)
		get_by_id(counts, &input, asked);
	else
		get_page(counts, &input);
}

/* ---- routes ------------------------------------------------------------------------------ */

static const char *const amount_members[] = {"amount", NULL};
static const char *const new_members[] = {"itemId", "initialValue", "minValue", "maxValue", NULL};
static const char *const put_members[] = {"value", "expectedValue", "minValue", "maxValue", NULL};
static const char *const list_parameters[] = {
	"itemIds", "itemIds[]", "prefix", "after", "limit", NULL};

void counts_add_routes(struct counts *counts, struct router *router)
{
	const struct route routes[] = {
		{"POST", "/api/v1/counts/{itemId}/increase", ACCESS_EXTERNAL, increase, counts, 0,
			amount_members, NULL},
		{"POST", "/api/v1/counts/{itemId}/decrease", ACCESS_EXTERNAL, decrease, counts, 0,
			amount_members, NULL},
		{"POST", "/api/v1/counts/{itemId}/reset", ACCESS_EXTERNAL, reset, counts, 0, NULL,
			NULL},
		{"POST", "/api/v1/internal/counts", ACCESS_INTERNAL, create, counts, 0, new_members,
			NULL},
		{"GET", "/api/v1/internal/counts", ACCESS_INTERNAL, get_many, counts, 0, NULL,
			list_parameters},
		{"GET", "/api/v1/internal/counts/{itemId}", ACCESS_INTERNAL, get_one, counts, 0,
			NULL, NULL},
		{"PUT", "/api/v1/internal/counts/{itemId}", ACCESS_INTERNAL, put, counts, 0,
			put_members, NULL},
		{"DELETE", "/api/v1/internal/counts/{itemId}", ACCESS_INTERNAL, remove_count,
			counts, 0, NULL, NULL},
	};

	router_add_all(router, "counts", routes, sizeof(routes) / sizeof(routes[0]));
	counts_add_bulk_routes(counts, router);
}
