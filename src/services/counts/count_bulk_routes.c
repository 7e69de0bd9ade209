/*
 * POST /api/v1/counts/batch is handled in one of two ways. Independent changes are submitted to
 * their own lanes, each with its own Idempotency-Key if it has one, as if they were separate
 * requests. An atomic batch becomes one command, which runs in one transaction. A batch with one
 * Idempotency-Key for all changes also becomes one command, because everything under one
 * Idempotency-Key must commit together or not at all.
 */
#include "base/hash.h"
#include "base/uuid.h"
#include "inbound/elements.h"
#include "inbound/fan_out.h"
#include "inbound/submit.h"
#include "services/counts/count_answers.h"
#include "services/counts/counts.h"

#define STEP_BYTES_MAX 1024 /* the longest JSON of one result */

static const char *const change_members[] = {"itemId", "verb", "amount", "idempotencyKey", NULL};

struct verb {
	const char *name;
	const char *path; /* the route for a single change with this verb */
	enum count_verb verb;
	int sign;
};

static const struct verb verbs[] = {
	{"increase", "/api/v1/counts/{itemId}/increase", COUNT_VERB_ADD, 1},
	{"decrease", "/api/v1/counts/{itemId}/decrease", COUNT_VERB_ADD, -1},
	{"reset", "/api/v1/counts/{itemId}/reset", COUNT_VERB_RESET, 0},
};

/* One change of a batch request. */
struct bulk_change {
	struct count_step step;
	const struct verb *verb;
	struct slice key;    /* {NULL, 0} if the change has no Idempotency-Key */
	struct write *write; /* the change's command, if it is submitted separately */
};

static const struct verb *read_verb(struct input *input)
{
	const char *name = json_string_value(json_object_get(input->body, "verb"));

	for (size_t i = 0; name && i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	}
	input_error(input, "verb", "is required and must be increase, decrease or reset");
	return &verbs[0];
}

static int64_t read_amount(struct input *input, const struct verb *verb)
{
	static const struct int_rule rule = {
		.field = "amount",
		.least = 1,
		.most = INT64_MAX,
		.fallback = 1,
		.message = "must be an integer from 1 to 9223372036854775807",
	};

	const json_t *amount = json_object_get(input->body, "amount");

	if (verb->sign == 0 && amount && !json_is_null(amount))
		input_error(input, "amount", "must be absent for a reset");
	return verb->sign * input_int(input, &rule);
}

static void read_change(struct elements *elements, struct bulk_change *change)
{
	struct input *input = elements->input;

	change->verb = read_verb(input);
	change->step.item_id = input_id(input, "itemId");
	change->step.change.verb = change->verb->verb;
	change->step.change.amount = read_amount(input, change->verb);
	change->key = elements_key(elements, "idempotencyKey");
}

/* Returns the body that the change would have as a separate request: an object with its amount, or
 * NULL if it has no amount. */
static json_t *body_alone(const json_t *change)
{
	json_t *amount = json_object_get(change, "amount");
	json_t *body = NULL;

	if (amount) {
		body = json_object();
		json_object_set(body, "amount", amount);
	}
	return body;
}

/* Creates a separate command for `change`, which was read from the current element of
 * `elements`. */
static void create_alone(struct elements *elements, struct bulk_change *change)
{
	struct input *input = elements->input;
	struct count_command *command = count_command_new(&input->request->arena);
	struct asked asked = {"POST", change->verb->path, change->step.item_id, NULL};

	command->change = change->step.change;
	command->write.command.key = change->step.item_id;
	change->write = &command->write;
	if (!change->key.data)
		return;
	asked.body = body_alone(input->body);
	submit_key_as(input->request, change->write, change->key, &asked);
	json_decref(asked.body);
}

static bool read_atomic(struct input *input)
{
	const json_t *value = json_object_get(input->body, "atomic");

	if (value && !json_is_boolean(value) && !json_is_null(value))
		input_error(input, "atomic", "must be true or false");
	return json_is_true(value);
}

static struct bulk_change *read_changes(struct input *input, bool is_one, size_t *count)
{
	struct elements elements = elements_of(input, "changes", change_members);
	struct bulk_change *changes =
		arena_array(&input->request->arena, struct bulk_change, elements.count);

	for (size_t i = 0; i < elements.count; i++) {
		if (!elements_enter(&elements, i))
			continue;
		read_change(&elements, &changes[i]);
		if (is_one && changes[i].key.data)
			input_error(input, "idempotencyKey",
				"must be absent if atomic is true or the header Idempotency-Key is "
				"sent");
		if (!is_one && input_is_good(input))
			create_alone(&elements, &changes[i]);
		elements_leave(&elements);
	}
	*count = elements.count;
	return changes;
}

/*
 * Submits one command for all changes. The command's key is unique, so that other commands on the
 * same items need not wait while this command waits for busy rows.
 */
static void submit_one(struct counts *counts, struct input *input,
	const struct bulk_change *changes, size_t count, bool is_atomic)
{
	struct arena *arena = &input->request->arena;
	struct count_command *command = count_command_new(arena);
	char *key = arena_alloc(arena, UUID_SIZE);

	uuid_random(key);
	command->steps = arena_array(arena, struct count_step, count);
	for (size_t i = 0; i < count; i++)
		command->steps[i] = changes[i].step;
	command->step_count = command->write.command.weight = count;
	command->is_atomic = is_atomic;
	command->write.command.key = slice_of(key);
	command->write.command.answer_max = answer_list_max(count, STEP_BYTES_MAX);
	submit_write_near(input, counts->lanes, &command->write,
		count > 0 ? changes[0].step.item_id : command->write.command.key);
}

static void submit_each(
	struct counts *counts, struct input *input, const struct bulk_change *changes, size_t count)
{
	struct write **writes = arena_array(&input->request->arena, struct write *, count);

	for (size_t i = 0; i < count; i++)
		writes[i] = changes[i].write;
	fan_out(input, counts->lanes, writes, count, count_answer_results);
}

static void post_batch(void *counts, struct request *request)
{
	struct bulk_change *changes;
	struct input input;
	size_t count;
	bool is_atomic, is_one;

	input_init(&input, request);
	input_read_body(&input);
	is_atomic = read_atomic(&input);
	is_one = is_atomic || request_header(request, "Idempotency-Key").data;
	changes = read_changes(&input, is_one, &count);
	if (is_one)
		submit_one(counts, &input, changes, count, is_atomic);
	else
		submit_each(counts, &input, changes, count);
}

#define BATCH_BODY_MAX (1024 * 1024)

static const char *const batch_members[] = {"changes", "atomic", NULL};

void counts_add_bulk_routes(struct counts *counts, struct router *router)
{
	const struct route route = {"POST", "/api/v1/counts/batch", ACCESS_EXTERNAL, post_batch,
		counts, BATCH_BODY_MAX, batch_members, NULL};

	router_add_all(router, "counts", &route, 1);
}
