/*
 * For a request, a page is read from each service, one service after another, and the pages are
 * merged into one. Records from different databases may have the same time and id. The merged page
 * never ends between two such records, so the time and id of its last record are enough to find the
 * next page.
 */
#include "admin/actions.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "inbound/input.h"

#define PAGE_LIMIT 100
#define NEWEST_US INT64_C(253402300799999999) /* the end of the year 9999 */
#define SOURCES_MAX (DEAD_LETTER_KINDS_MAX + ERASERS_MAX)

struct slice action_who(const struct request *request)
{
	return request->caller.kind == CALLER_KEY ? request->caller.name : (struct slice){0};
}

/* ---- the collection ---------------------------------------------------------------------- */

/* The records that the services have returned so far for one request. The struct lives in the
 * request's arena. */
struct collection {
	struct lane_set *lanes[SOURCES_MAX];
	size_t lanes_count;
	size_t limit;
	int64_t before_us; /* the page begins after the record with this time and id */
	int64_t before_id;
	struct operator_record *records;
	size_t count;
};

static void add_lanes(struct collection *collection, struct lane_set *lanes)
{
	for (size_t i = 0; i < collection->lanes_count; i++) {
		if (collection->lanes[i] == lanes)
			return;
	}
	collection->lanes[collection->lanes_count++] = lanes;
}

static void add_sources(struct collection *collection, const struct action_sources *sources)
{
	for (size_t i = 0; i < sources->letters->count; i++)
		add_lanes(collection, sources->letters->items[i].lanes);
	for (size_t i = 0; i < sources->erasers->count; i++)
		add_lanes(collection, sources->erasers->lanes[i]);
}

static int compare_numbers(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

/* Compares the times and ids of two records so that the newest record comes first. */
static int compare_places(const struct operator_record *a, const struct operator_record *b)
{
	int by_time = compare_numbers(b->at_us, a->at_us);

	return by_time != 0 ? by_time : compare_numbers(b->id, a->id);
}

static int compare_records(const void *left, const void *right)
{
	const struct operator_record *a = left, *b = right;
	int by_place = compare_places(a, b);

	return by_place != 0 ? by_place : slice_compare(a->target, b->target);
}

/* Sorts the records, and drops the duplicates that come from services with the same database. */
static void sort_records(struct collection *collection)
{
	struct operator_record *records = collection->records;
	size_t kept = 0;

	if (collection->count > 0)
		qsort(records, collection->count, sizeof(*records), compare_records);
	for (size_t i = 0; i < collection->count; i++) {
		if (kept == 0 || compare_records(&records[kept - 1], &records[i]) != 0)
			records[kept++] = records[i];
	}
	collection->count = kept;
}

/* ---- the answer -------------------------------------------------------------------------- */

static void write_record(struct buffer *body, const struct operator_record *record)
{
	buffer_member_time(body, "at", record->at_us);
	if (record->who.len > 0)
		buffer_member(body, "who", record->who);
	else
		buffer_text(body, ",\"who\":null");
	buffer_member(body, "action", record->action);
	buffer_member(body, "target", record->target);
	buffer_member(body, "detail", record->detail);
}

static struct slice cursor_of(struct arena *arena, const struct operator_record *record)
{
	struct buffer cursor = buffer_make(arena, 48);

	buffer_format(&cursor, "%lld-%lld", (long long)record->at_us, (long long)record->id);
	return buffer_slice(&cursor);
}

static struct answer answer_actions(struct request *request, struct collection *collection)
{
	struct buffer body = buffer_make(&request->arena, 4096);
	const struct operator_record *records = collection->records;
	struct answer answer;
	size_t shown = 0;

	sort_records(collection);
	buffer_text(&body, "{\"actions\":[");
	while (shown < collection->count &&
		(shown < collection->limit ||
			compare_places(&records[shown - 1], &records[shown]) == 0)) {
		buffer_text(&body, shown == 0 ? "{" : ",{");
		write_record(&body, &records[shown++]);
		buffer_char(&body, '}');
	}
	buffer_text(&body, "]}");
	answer = answer_json(200, buffer_slice(&body));
	if (shown < collection->count)
		answer_add_next(&answer, &request->arena, request->path.raw, collection->limit,
			cursor_of(&request->arena, &records[shown - 1]));
	return answer;
}

/* ---- reading from the services ----------------------------------------------------------- */

struct action_lookup {
	struct read read;
	struct collection *collection;
	size_t index; /* the index of the lookup's lanes in collection->lanes */
	struct operator_record *records;
	size_t count;
};

static const struct command_type action_lookup_type = {"action_lookup", false};

static struct action_lookup *action_lookup_of(struct command *command)
{
	command_assert_type(command, &action_lookup_type);
	return (struct action_lookup *)command;
}

static enum status look_up(struct read *read, struct session *session, struct arena *arena)
{
	struct action_lookup *lookup = action_lookup_of(&read->command);
	struct row_page page = {
		.after_number = lookup->collection->before_us,
		.after_minor = lookup->collection->before_id,
		/* one extra record shows whether there is a next page */
		.limit = lookup->collection->limit + 1,
	};
	enum status status =
		session->ops->list_actions(session, read->command.arena, &page, lookup->records);

	(void)arena;
	lookup->count = page.count;
	if (status == STATUS_OK)
		read->command.answer = answer_empty();
	return status;
}

static void ask(struct request *request, struct collection *collection, size_t index);

static void on_answered(struct request *request, struct command *command)
{
	struct action_lookup *lookup = action_lookup_of(command);
	struct collection *collection = lookup->collection;

	if (command->answer.http_status >= 400) {
		request_answer(request, command->answer);
		return;
	}
	collection->count += lookup->count;
	if (lookup->index + 1 < collection->lanes_count)
		ask(request, collection, lookup->index + 1);
	else
		request_answer(request, answer_actions(request, collection));
}

/* Reads a page from one service, and appends it to the pages of the previous services. */
static void ask(struct request *request, struct collection *collection, size_t index)
{
	struct action_lookup *lookup = arena_new(&request->arena, struct action_lookup);

	lookup->read.command.type = &action_lookup_type;
	/* enough for a page of about a hundred records: the `detail` of a record has at most
	 * 1 KiB, or 6 KiB if JSON must escape every byte */
	lookup->read.command.answer_max = ANSWER_LIST_MAX;
	lookup->read.look_up = look_up;
	lookup->collection = collection;
	lookup->index = index;
	lookup->records = collection->records + collection->count;
	request_submit_then(request, lane_set_reader(collection->lanes[index]),
		&lookup->read.command, on_answered);
}

/* ---- the route --------------------------------------------------------------------------- */

static bool read_cursor(struct slice cursor, struct collection *collection)
{
	const char *dash = memchr(cursor.data, '-', cursor.len);
	struct slice time, id;

	if (!dash)
		return false;
	time = (struct slice){cursor.data, (size_t)(dash - cursor.data)};
	id = (struct slice){dash + 1, cursor.len - time.len - 1};
	return text_to_int(time, &collection->before_us) && text_to_int(id, &collection->before_id);
}

static void get_actions(void *context, struct request *request)
{
	struct collection *collection = arena_new(&request->arena, struct collection);
	struct slice after;
	struct input input;

	input_init(&input, request);
	after = input_query(&input, "after");
	collection->limit = input_limit(&input, PAGE_LIMIT);
	if (collection->limit > PAGE_LIMIT)
		collection->limit = PAGE_LIMIT;
	collection->before_us = NEWEST_US;
	if (after.len > 0 && !read_cursor(after, collection))
		input_error(
			&input, "after", "must be taken from the Link header of the previous page");
	if (input_refuse(&input))
		return;
	add_sources(collection, context);
	collection->records = arena_array(&request->arena, struct operator_record,
		collection->lanes_count * (collection->limit + 1));
	if (collection->lanes_count == 0)
		request_answer(request, answer_actions(request, collection));
	else
		ask(request, collection, 0);
}

static const char *const parameters[] = {"after", "limit", NULL};

void actions_add_route(struct action_sources *sources, struct router *router)
{
	const struct route route = {"GET", "/operator/actions", ACCESS_ADMIN, get_actions, sources,
		0, NULL, parameters};

	router_add_all(router, NULL, &route, 1);
}
