/*
 * The routes are the same for all kinds of dead letters; struct dead_letter_kind describes how
 * kinds differ. Each lookup carries its own look_up() function and each action its own decide()
 * function, so that lookups and actions can run in the lanes of any service.
 */
#include "admin/dead_letters.h"

#include <assert.h>

#include "admin/actions.h"
#include "base/failpoint.h"
#include "base/json.h"
#include "base/text.h"
#include "inbound/input.h"
#include "inbound/submit.h"

#define PAGE_LIMIT 100
#define LETTER_BYTES_MAX (6 * 1024 * 1024) /* the longest JSON of one letter with its payload */
#define WHY_BYTES_MAX 1024

void dead_letters_add_kind(struct dead_letter_kinds *kinds, const struct dead_letter_kind *kind)
{
	assert(kinds->count < DEAD_LETTER_KINDS_MAX);
	kinds->items[kinds->count++] = *kind;
}

/* Parses the payload first, because members copied from a broken payload would make the whole
 * answer invalid JSON. */
bool dead_letter_describe_json(struct arena *arena, struct slice payload, struct buffer *members)
{
	char why[JSON_WHY_SIZE];
	json_t *object = json_parse_object(payload, why);
	bool is_read = object && payload.data[0] == '{' && payload.data[payload.len - 1] == '}';

	(void)arena;
	json_decref(object);
	if (!is_read)
		return false;
	buffer_add(members, slice_make(payload.data + 1, payload.len - 2));
	return true;
}

/* Returns the kind that the path names. If no role of this process keeps dead letters of that kind,
 * answers the request and returns NULL. */
static const struct dead_letter_kind *find_kind(
	const struct dead_letter_kinds *kinds, struct request *request)
{
	struct slice kind = request->params[0];

	for (size_t i = 0; i < kinds->count; i++) {
		if (slice_is(kind, kinds->items[i].name))
			return &kinds->items[i];
	}
	request_answer(
		request, answer_problem(&request->arena, STATUS_ROLE_NOT_HERE,
				 "no role of this process keeps dead letters of the kind \"%.*s\"",
				 (int)kind.len, kind.data));
	return NULL;
}

/* ---- lookups ----------------------------------------------------------------------------- */

struct letter_lookup {
	struct read read;
	const struct dead_letter_kind *kind;
	struct slice path; /* the raw path, for the link to the next page */

	struct slice after; /* for a page of letters: the last id of the previous page */
	size_t limit;

	struct slice id; /* for one letter: its id */
};

static const struct command_type letter_lookup_type = {"letter_lookup", false};

static struct letter_lookup *letter_lookup_of(struct read *read)
{
	command_assert_type(&read->command, &letter_lookup_type);
	return (struct letter_lookup *)read;
}

static void write_letter(
	struct buffer *body, const struct dead_letter_kind *kind, const struct dead_letter *letter)
{
	buffer_member(body, "id", letter->id);
	buffer_member(body, "kind", slice_of(kind->name));
	buffer_member(body, "event_type", letter->type);
	buffer_member(body, "aggregate_key", letter->key);
	buffer_member(body, "position", letter->position);
	buffer_member(body, "error", letter->error);
	buffer_member_int(body, "attempt_count", letter->attempt_count);
	buffer_member_time(body, "created_at", letter->created_us);
}

static struct answer answer_page(
	const struct letter_lookup *lookup, const struct dead_letter *letters, size_t count)
{
	struct arena *arena = lookup->read.command.arena;
	struct buffer body = buffer_make(arena, 4096);
	struct answer answer;
	size_t shown = 0;

	buffer_text(&body, "{\"letters\":[");
	while (shown < count && shown < lookup->limit && body.len < ANSWER_LIST_MAX) {
		buffer_text(&body, shown == 0 ? "{" : ",{");
		write_letter(&body, lookup->kind, &letters[shown++]);
		buffer_char(&body, '}');
	}
	buffer_text(&body, "]}");
	answer = answer_json(200, buffer_slice(&body));
	if (count > shown)
		answer_add_next(&answer, arena, lookup->path, lookup->limit, letters[shown - 1].id);
	return answer;
}

static enum status look_up_page(struct read *read, struct session *session, struct arena *arena)
{
	struct letter_lookup *lookup = letter_lookup_of(read);
	struct dead_letter_page page = {
		.kind = slice_of(lookup->kind->letter_kind),
		.after = lookup->after,
		/* one extra letter shows whether there is a next page */
		.limit = lookup->limit + 1,
	};
	struct dead_letter *letters = arena_array(arena, struct dead_letter, page.limit);
	size_t count = 0;
	enum status status = lookup->kind->dead->ops->list(
		lookup->kind->dead, session, arena, &page, letters, &count);

	if (status == STATUS_OK)
		read->command.answer = answer_page(lookup, letters, count);
	return status;
}

static struct answer answer_absent(
	struct arena *arena, const struct dead_letter_kind *kind, struct slice id)
{
	return answer_problem(arena, STATUS_DEAD_LETTER_NOT_FOUND,
		"there is no dead letter of the kind %s with the id \"%.*s\"", kind->name,
		(int)id.len, id.data);
}

static struct answer answer_letter(
	const struct letter_lookup *lookup, const struct dead_letter *letter)
{
	struct arena *arena = lookup->read.command.arena;
	struct buffer body = buffer_make(arena, 512 + 2 * letter->payload.len);
	struct buffer event = buffer_make(arena, 512);

	buffer_char(&body, '{');
	write_letter(&body, lookup->kind, letter);
	buffer_text(&body, ",\"payload\":\"");
	buffer_base64(&body, letter->payload);
	buffer_char(&body, '"');
	if (lookup->kind->describe(arena, letter->payload, &event)) {
		buffer_text(&body, ",\"event\":{");
		buffer_add(&body, buffer_slice(&event));
		buffer_char(&body, '}');
	}
	buffer_char(&body, '}');
	return answer_json(200, buffer_slice(&body));
}

static enum status look_up_letter(struct read *read, struct session *session, struct arena *arena)
{
	struct letter_lookup *lookup = letter_lookup_of(read);
	const struct dead_letter_kind *kind = lookup->kind;
	struct dead_letter letter;
	bool found = false;
	const struct dead_letter_name name = {slice_of(kind->letter_kind), lookup->id};
	enum status status =
		kind->dead->ops->find(kind->dead, session, arena, &name, &letter, &found);

	if (status != STATUS_OK)
		return status;
	read->command.answer = found ? answer_letter(lookup, &letter)
				     : answer_absent(read->command.arena, kind, lookup->id);
	return STATUS_OK;
}

/* Creates a lookup for the kind that the path names. If the kind is unknown, answers the request
 * and returns NULL. */
static struct letter_lookup *new_lookup(const struct dead_letter_kinds *kinds, struct input *input)
{
	struct request *request = input->request;
	struct letter_lookup *lookup = arena_new(&request->arena, struct letter_lookup);

	lookup->read.command.type = &letter_lookup_type;
	lookup->kind = find_kind(kinds, request);
	return lookup->kind ? lookup : NULL;
}

static void get_letters(void *context, struct request *request)
{
	struct letter_lookup *lookup;
	struct input input;

	input_init(&input, request);
	lookup = new_lookup(context, &input);
	if (!lookup)
		return;
	lookup->read.look_up = look_up_page;
	lookup->path = request->path.raw;
	lookup->limit = input_limit(&input, PAGE_LIMIT);
	lookup->read.command.answer_max = ANSWER_LIST_MAX;
	lookup->after = input_query(&input, "after");
	submit_read(&input, lookup->kind->lanes, &lookup->read);
}

static void get_letter(void *context, struct request *request)
{
	struct letter_lookup *lookup;
	struct input input;

	input_init(&input, request);
	lookup = new_lookup(context, &input);
	if (!lookup)
		return;
	input_check_id(&input, "id", request->params[1]);
	lookup->read.look_up = look_up_letter;
	lookup->id = request->params[1];
	lookup->read.command.answer_max = LETTER_BYTES_MAX;
	submit_read(&input, lookup->kind->lanes, &lookup->read);
}

/* ---- kinds ------------------------------------------------------------------------------- */

/* The command that counts the letters of one kind, in the lanes of the kind's service. A request
 * submits one such command per kind, one after another. */
struct kind_count {
	struct read read;
	const struct dead_letter_kinds *kinds;
	size_t index;     /* the kind whose letters this command counts */
	int64_t *waiting; /* the number of letters of each kind; shared by all these commands */
};

static const struct command_type kind_count_type = {"kind_count", false};

static struct kind_count *kind_count_of(struct command *command)
{
	command_assert_type(command, &kind_count_type);
	return (struct kind_count *)command;
}

static enum status count_kind(struct read *read, struct session *session, struct arena *arena)
{
	struct kind_count *count = kind_count_of(&read->command);
	const struct dead_letter_kind *kind = &count->kinds->items[count->index];
	enum status status = kind->dead->ops->depth(
		kind->dead, session, slice_of(kind->letter_kind), &count->waiting[count->index]);

	(void)arena;
	if (status == STATUS_OK)
		read->command.answer = answer_empty();
	return status;
}

static struct answer answer_kinds(struct arena *arena, const struct kind_count *count)
{
	struct buffer body = buffer_make(arena, 512);

	buffer_text(&body, "{\"kinds\":[");
	for (size_t i = 0; i < count->kinds->count; i++) {
		buffer_text(&body, i == 0 ? "{" : ",{");
		buffer_member(&body, "kind", slice_of(count->kinds->items[i].name));
		buffer_member_int(&body, "waiting", count->waiting[i]);
		buffer_char(&body, '}');
	}
	buffer_text(&body, "]}");
	return answer_json(200, buffer_slice(&body));
}

static void submit_count(struct request *request, const struct kind_count *before, size_t index);

static void on_kind_counted(struct request *request, struct command *command)
{
	const struct kind_count *count = kind_count_of(command);

	if (command->answer.http_status >= 400)
		request_answer(request, command->answer);
	else if (count->index + 1 < count->kinds->count)
		submit_count(request, count, count->index + 1);
	else
		request_answer(request, answer_kinds(&request->arena, count));
}

static void submit_count(struct request *request, const struct kind_count *before, size_t index)
{
	struct kind_count *count = arena_new(&request->arena, struct kind_count);

	count->read.command.type = &kind_count_type;
	count->read.look_up = count_kind;
	count->kinds = before->kinds;
	count->waiting = before->waiting;
	count->index = index;
	request_submit_then(request, lane_set_reader(count->kinds->items[index].lanes),
		&count->read.command, on_kind_counted);
}

static void get_kinds(void *context, struct request *request)
{
	struct kind_count none = {.kinds = context};

	none.waiting = arena_array(&request->arena, int64_t, DEAD_LETTER_KINDS_MAX);
	if (none.kinds->count == 0)
		request_answer(request, answer_kinds(&request->arena, &none));
	else
		submit_count(request, &none, 0);
}

/* ---- actions ----------------------------------------------------------------------------- */

/* A replay or discard of one letter (whose id is the key of the command), or a resend of an
 * outbox's events. */
struct operator_action {
	struct write write;
	const struct dead_letter_kind *kind;
	enum dead_letter_action action;
	struct slice why;
	struct slice who;
	int64_t since_us; /* for a resend: only events published since this time are resent */
};

static const struct command_type operator_action_type = {"operator_action", true};

static struct operator_action *operator_action_of(struct write *write)
{
	command_assert_type(&write->command, &operator_action_type);
	return (struct operator_action *)write;
}

static struct answer answer_resolved(const struct operator_action *action)
{
	const struct command *command = &action->write.command;
	bool replayed = action->action == DEAD_LETTER_REPLAY;
	struct buffer body = buffer_make(command->arena, 128);

	buffer_text(&body, "{\"id\":");
	buffer_json_string(&body, command->key);
	buffer_format(&body, ",\"kind\":\"%s\",\"resolution\":\"%s\"}", action->kind->name,
		replayed ? "REPLAYED" : "DISCARDED");
	return answer_json(200, buffer_slice(&body));
}

/*
 * Makes the service apply the payload of a letter again. If the letter does not exist, or if its
 * payload still cannot be read, answers the write. Otherwise the caller must answer the write.
 */
static enum status take_again(
	struct operator_action *action, struct session *session, struct arena *arena)
{
	const struct dead_letter_kind *kind = action->kind;
	struct command *command = &action->write.command;
	struct dead_letter letter;
	bool found = false, is_read = false;
	const struct dead_letter_name name = {slice_of(kind->letter_kind), command->key};
	enum status status =
		kind->dead->ops->find(kind->dead, session, arena, &name, &letter, &found);

	if (status == STATUS_OK && found)
		status = kind->take_again(kind->context, session, arena, letter.payload, &is_read);
	if (status != STATUS_OK || is_read)
		return status;
	if (!found)
		write_answer(&action->write, answer_absent(command->arena, kind, command->key));
	else
		write_answer(&action->write,
			answer_problem(command->arena, STATUS_DEAD_LETTER_UNREADABLE,
				"the message still cannot be read; discard it, or replay it "
				"with a version that can read it"));
	return STATUS_OK;
}

static enum status decide_letter(struct write *write, struct session *session, struct arena *arena)
{
	struct operator_action *action = operator_action_of(write);
	const struct dead_letter_kind *kind = action->kind;
	const struct dead_letter_resolution resolution = {
		.name = {slice_of(kind->letter_kind), write->command.key},
		.action = action->action,
		.why = action->why,
		.who = action->who,
	};
	bool is_taken = action->action == DEAD_LETTER_REPLAY && kind->take_again;
	bool found = false;
	enum status status = STATUS_OK;

	if (is_taken)
		status = take_again(action, session, arena);
	if (status != STATUS_OK || write->fate != WRITE_OPEN)
		return status;
	FAILPOINT("dlq.taken");
	status = kind->dead->ops->resolve(kind->dead, session, &resolution, &found);
	/* Another session has resolved or erased the letter since take_again() found it. Without
	 * the rollback, the payload would be applied although the letter is not replayed. */
	if (status == STATUS_OK && is_taken && !found)
		return STATUS_RERUN;
	if (status == STATUS_OK)
		write_answer(write,
			found ? answer_resolved(action)
			      : answer_absent(write->command.arena, kind, write->command.key));
	return status;
}

/* Creates an action for the kind that the path names. If the kind is unknown, answers the request
 * and returns NULL. */
static struct operator_action *new_action(
	const struct dead_letter_kinds *kinds, struct request *request)
{
	struct operator_action *action = arena_new(&request->arena, struct operator_action);

	action->write.command.type = &operator_action_type;
	action->who = action_who(request);
	action->kind = find_kind(kinds, request);
	return action->kind ? action : NULL;
}

/* Creates an action for the letter that the path names, and reads the request's body into `input`.
 * If the kind of the letter is unknown, answers the request and returns NULL. */
static struct operator_action *new_letter_action(
	const struct dead_letter_kinds *kinds, struct input *input, enum dead_letter_action verb)
{
	struct operator_action *action = new_action(kinds, input->request);

	if (!action)
		return NULL;
	action->action = verb;
	action->write.decide = decide_letter;
	action->write.command.key = input->request->params[1];
	input_check_id(input, "id", action->write.command.key);
	input_read_body(input);
	return action;
}

static void replay(void *context, struct request *request)
{
	struct operator_action *action;
	struct input input;

	input_init(&input, request);
	action = new_letter_action(context, &input, DEAD_LETTER_REPLAY);
	if (action)
		submit_write(&input, action->kind->lanes, &action->write);
}

static void discard(void *context, struct request *request)
{
	struct operator_action *action;
	struct input input;

	input_init(&input, request);
	action = new_letter_action(context, &input, DEAD_LETTER_DISCARD);
	if (!action)
		return;
	action->why = input_text(&input, "why", WHY_BYTES_MAX,
		"must be the reason for discarding the letter, in at most 1024 bytes");
	submit_write(&input, action->kind->lanes, &action->write);
}

/* ---- the outbox -------------------------------------------------------------------------- */

static enum status decide_resend(struct write *write, struct session *session, struct arena *arena)
{
	struct operator_action *action = operator_action_of(write);
	struct buffer body = buffer_make(write->command.arena, 32);
	size_t count = 0;
	enum status status = action->kind->outbox->ops->resend(
		action->kind->outbox, session, action->since_us, action->who, &count);

	(void)arena;
	if (status != STATUS_OK)
		return status;
	buffer_format(&body, "{\"resent\":%zu}", count);
	write_answer(write, answer_json(200, buffer_slice(&body)));
	return STATUS_OK;
}

static void resend(void *context, struct request *request)
{
	struct operator_action *action = new_action(context, request);
	struct slice since;
	struct input input;

	if (!action)
		return;
	input_init(&input, request);
	input_read_body(&input);
	if (!action->kind->outbox)
		input_error(&input, "kind", "must be the name of an outbox");
	since = input_id(&input, "since");
	if (since.len > 0 && !text_to_time_us(since, &action->since_us))
		input_error(&input, "since", "must be a time such as 2026-01-08T07:10:00Z");
	action->write.decide = decide_resend;
	action->write.command.key = request->params[0];
	submit_write(&input, action->kind->lanes, &action->write);
}

static const char *const list_parameters[] = {"after", "limit", NULL};
static const char *const discard_members[] = {"why", NULL};
static const char *const resend_members[] = {"since", NULL};

void dead_letters_add_routes(struct dead_letter_kinds *kinds, struct router *router)
{
	const struct route routes[] = {
		{"GET", "/operator/dlq", ACCESS_ADMIN, get_kinds, kinds, 0, NULL, NULL},
		{"GET", "/operator/dlq/{kind}", ACCESS_ADMIN, get_letters, kinds, 0, NULL,
			list_parameters},
		{"GET", "/operator/dlq/{kind}/{id}", ACCESS_ADMIN, get_letter, kinds, 0, NULL,
			NULL},
		{"POST", "/operator/dlq/{kind}/{id}/replay", ACCESS_ADMIN, replay, kinds, 0, NULL,
			NULL},
		{"POST", "/operator/dlq/{kind}/{id}/discard", ACCESS_ADMIN, discard, kinds, 0,
			discard_members, NULL},
		{"POST", "/operator/{kind}/resend", ACCESS_ADMIN, resend, kinds, 0, resend_members,
			NULL},
	};

	router_add_all(router, NULL, routes, sizeof(routes) / sizeof(routes[0]));
}
