/*
 * The routes of erase.h. Each POST runs one step. A step is a write whose key is the person's id,
 * so two steps for the same person in one service run one after the other in the same lane. The
 * eraser of the service finds the rows, in places such as "messages received". The answer has one
 * number of rows for each place: the rows that the step has changed or, with dryRun, the rows that
 * an erasure would change.
 */
#include "admin/erase.h"

#include <assert.h>

#include "admin/actions.h"
#include "base/digest.h"
#include "inbound/input.h"
#include "inbound/submit.h"

#define STEP_ROWS 1000

void erase_add(struct erasers *erasers, const struct eraser *eraser, struct lane_set *lanes)
{
	assert(erasers->count < ERASERS_MAX);
	erasers->lanes[erasers->count] = lanes;
	erasers->items[erasers->count++] = eraser;
}

/* ---- a step ------------------------------------------------------------------------------ */

struct erase_command {
	struct write write; /* its key is the person's id */
	const struct eraser *eraser;
	struct slice who;
	bool dry_run;
};

static const struct command_type erase_command_type = {"erase_command", true};

static struct erase_command *erase_command_of(struct write *write)
{
	command_assert_type(&write->command, &erase_command_type);
	return (struct erase_command *)write;
}

#define PSEUDONYM_PREFIX "erased-"
#define PSEUDONYM_SIZE (sizeof(PSEUDONYM_PREFIX) - 1 + SHA256_SIZE)

bool erase_is_pseudonym(struct slice user_id)
{
	return user_id.len == PSEUDONYM_SIZE && slice_starts_with(user_id, PSEUDONYM_PREFIX);
}

/*
 * Returns the pseudonym for an id. The pseudonym is the same in every service and in every run. The
 * id cannot be computed from the pseudonym, but anyone who guesses the id can confirm the guess by
 * computing its digest.
 */
static struct slice pseudonym_of(struct arena *arena, struct slice user_id)
{
	const struct slice parts[] = {slice_of("quipu erased person"), user_id};
	struct buffer name = buffer_make(arena, 48);
	unsigned char digest[SHA256_SIZE];

	digest_parts(parts, 2, digest);
	buffer_text(&name, PSEUDONYM_PREFIX);
	for (size_t i = 0; i < SHA256_SIZE / 2; i++)
		buffer_format(&name, "%02x", digest[i]);
	return buffer_slice(&name);
}

static struct answer answer_step(const struct erase_command *command, const struct erasure *erasure)
{
	const struct eraser *eraser = command->eraser;
	struct buffer body = buffer_make(command->write.command.arena, 512);
	int64_t rows = 0;

	buffer_format(&body, "{\"service\":\"%s\",\"places\":[", eraser->service);
	for (size_t i = 0; i < eraser->place_count; i++) {
		buffer_format(&body, "%s{\"place\":\"%s\",\"rows\":%lld}", i > 0 ? "," : "",
			eraser->places[i], (long long)erasure->rows[i]);
		rows += erasure->rows[i];
	}
	buffer_format(&body, "],\"more\":%s}", rows > 0 && !command->dry_run ? "true" : "false");
	return answer_json(200, buffer_slice(&body));
}

static enum status decide(struct write *write, struct session *session, struct arena *arena)
{
	struct erase_command *command = erase_command_of(write);
	const struct eraser *eraser = command->eraser;
	struct erasure erasure = {
		.user_id = write->command.key,
		.pseudonym = pseudonym_of(arena, write->command.key),
		.who = command->who,
		.limit = STEP_ROWS,
	};
	enum status status = command->dry_run ? eraser->ops->count(eraser, session, &erasure)
					      : eraser->ops->erase(eraser, session, &erasure);

	if (status == STATUS_OK)
		write_answer(write, answer_step(command, &erasure));
	return status;
}

/* ---- routes ------------------------------------------------------------------------------ */

/* Returns the index of the service that the path names, or erasers->count if this process does not
 * run that service. */
static size_t find_service(const struct erasers *erasers, struct slice service)
{
	size_t at = 0;

	while (at < erasers->count && !slice_is(service, erasers->items[at]->service))
		at++;
	return at;
}

static bool read_dry_run(struct input *input)
{
	json_t *value = json_object_get(input->body, "dryRun");

	if (value && !json_is_boolean(value) && !json_is_null(value))
		input_error(input, "dryRun", "must be true or false");
	return json_is_true(value);
}

static void post_step(void *context, struct request *request)
{
	const struct erasers *erasers = context;
	size_t at = find_service(erasers, request->params[0]);
	struct erase_command *command = arena_new(&request->arena, struct erase_command);
	struct input input;

	if (at == erasers->count) {
		request_answer(request,
			answer_problem(&request->arena, STATUS_ROLE_NOT_HERE,
				"this process runs no service \"%.*s\" that keeps personal data",
				(int)request->params[0].len, request->params[0].data));
		return;
	}
	input_init(&input, request);
	input_read_body(&input);
	command->write.command.type = &erase_command_type;
	command->write.command.key = input_id(&input, "userId");
	command->write.decide = decide;
	command->eraser = erasers->items[at];
	command->who = action_who(request);
	command->dry_run = read_dry_run(&input);
	submit_write(&input, erasers->lanes[at], &command->write);
}

static void get_services(void *context, struct request *request)
{
	const struct erasers *erasers = context;
	struct buffer body = buffer_make(&request->arena, 128);

	buffer_text(&body, "{\"services\":[");
	for (size_t i = 0; i < erasers->count; i++)
		buffer_format(&body, "%s\"%s\"", i > 0 ? "," : "", erasers->items[i]->service);
	buffer_text(&body, "]}");
	request_answer(request, answer_json(200, buffer_slice(&body)));
}

static const char *const step_members[] = {"userId", "dryRun", NULL};

void erase_add_routes(struct erasers *erasers, struct router *router)
{
	const struct route routes[] = {
		{"GET", "/operator/erase", ACCESS_ADMIN, get_services, erasers, 0, NULL, NULL},
		{"POST", "/operator/erase/{service}", ACCESS_ADMIN, post_step, erasers, 0,
			step_members, NULL},
	};

	router_add_all(router, NULL, routes, sizeof(routes) / sizeof(routes[0]));
}
