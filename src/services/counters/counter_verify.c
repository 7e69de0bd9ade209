/*
 * Messages and counters may be in different stores, so there is no common snapshot. Verification
 * reads a page of users with unread messages and a page of counters, and walks through both pages
 * together. Both pages are complete only up to a certain user, the horizon; users after the horizon
 * are left for the next page. A repair walks in the same way through the unread messages of one
 * user and the messages that the user's counter counts, and applies the missing changes in its own
 * transaction.
 */
#include "services/counters/counter_verify.h"

#include <assert.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "inbound/input.h"
#include "inbound/submit.h"
#include "services/counters/counter_feed.h"

#define MESSAGES_MAX 1000 /* the most messages of one user in a page */

/* ---- comparing --------------------------------------------------------------------------- */

/* A page of users with unread messages, and a page of counters, both sorted by user. */
struct sides {
	struct unread_count *messages;
	size_t message_count;
	struct counter_row *rows;
	size_t row_count;
	/* both pages are complete up to this user; empty if both are the last pages */
	struct slice horizon;
};

static struct session *open_messages(const struct counter_verifier *verifier)
{
	return verifier->messages_store->ops->open_session(verifier->messages_store, SESSION_READ);
}

static enum status read_messages(const struct counter_verifier *verifier,
	const struct verify_page *page, struct sides *sides)
{
	struct session *session = open_messages(verifier);
	struct row_page users = {.after = {page->rows.after[0]}, .limit = page->rows.limit};
	enum status status = verifier->messages->ops->count_unread(
		verifier->messages, session, page->arena, &users, sides->messages);

	session_close(session);
	sides->message_count = users.count;
	return status;
}

/* Returns the lower of two ids. An empty id sorts after all others. */
static struct slice lower(struct slice a, struct slice b)
{
	if (a.len == 0 || b.len == 0)
		return a.len == 0 ? b : a;
	return slice_compare(a, b) < 0 ? a : b;
}

static enum status read_sides(const struct counter_verifier *verifier, struct session *session,
	const struct verify_page *page, struct sides *sides)
{
	size_t limit = page->rows.limit;
	struct row_page users = {.after = {page->rows.after[0]}, .limit = limit};
	enum status status;

	sides->messages = arena_array(page->arena, struct unread_count, limit);
	sides->rows = arena_array(page->arena, struct counter_row, limit);
	status = read_messages(verifier, page, sides);
	if (status == STATUS_OK)
		status = verifier->counters->repository->ops->list(
			verifier->counters->repository, session, page->arena, &users, sides->rows);
	if (status != STATUS_OK)
		return status;
	sides->row_count = users.count;
	if (sides->message_count == limit)
		sides->horizon = sides->messages[limit - 1].user_id;
	if (sides->row_count == limit)
		sides->horizon = lower(sides->horizon, sides->rows[limit - 1].user_id);
	return STATUS_OK;
}

static void differ(struct verify_page *page, struct slice user_id, int64_t unread, int64_t counted)
{
	struct buffer members = buffer_make(page->arena, 96);
	struct buffer sentence = buffer_make(page->arena, user_id.len + 64);

	buffer_text(&members, ",\"userId\":");
	buffer_json_string(&members, user_id);
	buffer_format(&members, ",\"unread\":%lld,\"counted\":%lld", (long long)unread,
		(long long)counted);
	buffer_add(&sentence, user_id);
	buffer_format(&sentence, " has %lld unread, but the counter says %lld", (long long)unread,
		(long long)counted);
	verify_differ_with(
		page, user_id, "counter-differs", buffer_slice(&members), buffer_slice(&sentence));
}

/* Walks through both pages together up to the horizon, and reports each user whose counter differs
 * from the number of unread messages. Returns how many users it compared. */
static size_t compare_sides(const struct sides *sides, struct verify_page *page)
{
	size_t m = 0, r = 0, users = 0;

	while (m < sides->message_count || r < sides->row_count) {
		struct slice left =
			m < sides->message_count ? sides->messages[m].user_id : (struct slice){0};
		struct slice right =
			r < sides->row_count ? sides->rows[r].user_id : (struct slice){0};
		struct slice user_id = lower(left, right);
		int64_t unread = 0, counted = 0;

		if (sides->horizon.len > 0 && slice_compare(user_id, sides->horizon) > 0)
			break;
		if (slice_equal(left, user_id))
			unread = sides->messages[m++].count;
		if (slice_equal(right, user_id))
			counted = sides->rows[r++].count;
		if (unread != counted)
			differ(page, user_id, unread, counted);
		users++;
	}
	return users;
}

static enum status look(const void *context, struct session *session, struct verify_page *page)
{
	struct sides sides = {0};
	enum status status = read_sides(context, session, page, &sides);

	if (status != STATUS_OK)
		return status;
	page->checked = compare_sides(&sides, page);
	buffer_add(&page->position, sides.horizon);
	return STATUS_OK;
}

struct verifier counter_verifier(const struct counter_verifier *verifier)
{
	static const struct verify_part part = {"users", look};

	return (struct verifier){
		.name = "unread",
		.counted_as = "users",
		.parts = &part,
		.part_count = 1,
		.context = verifier,
		.lanes = &verifier->counters->lanes,
	};
}

/* ---- repairing --------------------------------------------------------------------------- */

struct repair {
	struct write write; /* all repairs have the same key, so that one committer runs them all */
	struct counter_verifier *verifier;
	struct slice user_id;
};

struct repaired_user {
	struct slice user_id;
	struct repaired_user *next;
};

static const struct command_type repair_type = {"repair", true};

static struct repair *repair_of(struct write *write)
{
	command_assert_type(&write->command, &repair_type);
	return (struct repair *)write;
}

/* The differences between the unread messages of a user and the messages that the user's counter
 * counts. */
struct gap {
	struct counter_message *missing; /* unread, but not counted */
	size_t missing_count;
	struct counter_message *surplus; /* counted, but not unread */
	size_t surplus_count;
	bool has_more;     /* there may be messages after `last` */
	struct slice last; /* the last message id that was compared */
};

/* Returns a message of the user, with the current time as the time of the message's event. */
static struct counter_message message_now(struct slice user_id, struct slice message_id)
{
	return (struct counter_message){.user_id = user_id,
		.message_id = message_id,
		.event_us = clock_wall_us(&clock_system)};
}

/* Compares a page of unread messages with a page of counted messages, both sorted by message id. */
static void find_gap(struct slice user_id, const struct message *unread, size_t unread_count,
	const struct counter_message *counted, size_t counted_count, struct gap *gap)
{
	size_t u = 0, c = 0;

	gap->has_more = unread_count == MESSAGES_MAX || counted_count == MESSAGES_MAX;
	while (u < unread_count || c < counted_count) {
		struct slice left = u < unread_count ? unread[u].id : (struct slice){0};
		struct slice right = c < counted_count ? counted[c].message_id : (struct slice){0};
		struct slice id = lower(left, right);

		/* If one of the pages ends here and is full, the next message of its table is
		 * unknown, so the rest of the other page cannot be compared yet. */
		if ((left.len == 0 && unread_count == MESSAGES_MAX) ||
			(right.len == 0 && counted_count == MESSAGES_MAX))
			break;
		if (!slice_equal(right, id))
			gap->missing[gap->missing_count++] = message_now(user_id, id);
		if (!slice_equal(left, id))
			gap->surplus[gap->surplus_count++] = message_now(user_id, id);
		u += slice_equal(left, id);
		c += slice_equal(right, id);
		gap->last = id;
	}
}

/*
 * Fetches a page of the counted messages and then a page of the user's unread messages, and
 * compares them. The counted messages must be fetched first: if a message is counted in the first
 * page and not unread in the second, the user has really read it, because no message becomes unread
 * again. In the other order, a message sent between the two queries would look counted but not
 * unread, and the repair would mark it as read for ever. Uses its own sessions, because it reads
 * outside the transaction.
 */
static enum status read_gap(const struct repair *repair, struct arena *arena, struct gap *gap)
{
	const struct counters *counters = repair->verifier->counters;
	struct row_page unread_page = {
		.user_id = repair->user_id, .after = {gap->last}, .limit = MESSAGES_MAX};
	struct row_page counted_page = unread_page;
	struct message *unread = arena_array(arena, struct message, MESSAGES_MAX);
	struct counter_message *counted = arena_array(arena, struct counter_message, MESSAGES_MAX);
	struct session *there = open_messages(repair->verifier);
	struct session *here = counters->store->ops->open_session(counters->store, SESSION_READ);
	enum status status = counters->repository->ops->list_unread(
		counters->repository, here, arena, &counted_page, counted);

	FAILPOINT("counters.repair");
	if (status == STATUS_OK)
		status = repair->verifier->messages->ops->list_unread(
			repair->verifier->messages, there, arena, &unread_page, unread);
	if (status == STATUS_OK)
		find_gap(repair->user_id, unread, unread_page.count, counted, counted_page.count,
			gap);
	session_close(there);
	session_close(here);
	return status;
}

static enum status count(const struct repair *repair, struct session *session,
	struct counter_counting *counting, size_t *repaired)
{
	enum status status = counter_count(repair->verifier->counters, session, counting);

	*repaired += counting->changed;
	return status;
}

/* Repairs one page of the user's messages. */
static enum status repair_page(const struct repair *repair, struct session *session,
	struct arena *arena, struct gap *gap, size_t *repaired)
{
	struct counter_counting fresh = {.arena = arena}, read = {.arena = arena, .is_read = true};
	enum status status;

	gap->missing = arena_array(arena, struct counter_message, MESSAGES_MAX);
	gap->surplus = arena_array(arena, struct counter_message, MESSAGES_MAX);
	gap->missing_count = gap->surplus_count = 0;
	status = read_gap(repair, arena, gap);
	fresh.messages = gap->missing;
	fresh.count = gap->missing_count;
	read.messages = gap->surplus;
	read.count = gap->surplus_count;
	if (status == STATUS_OK)
		status = count(repair, session, &fresh, repaired);
	if (status == STATUS_OK)
		status = count(repair, session, &read, repaired);
	return status;
}

static bool is_owner(const struct counter_verifier *verifier)
{
	return atomic_load(&verifier->has_owner) && pthread_equal(verifier->owner, pthread_self());
}

/* Notes only the user's id; after the commit, counter_verify_committed() reads the counter. */
static void note_repaired(const struct repair *repair)
{
	struct counter_verifier *verifier = repair->verifier;
	struct repaired_user *user;

	if (!atomic_load(&verifier->has_owner)) {
		verifier->owner = pthread_self();
		atomic_store(&verifier->has_owner, true);
	}
	assert(is_owner(verifier));
	user = arena_new(&verifier->arena, struct repaired_user);
	user->user_id = arena_copy(&verifier->arena, repair->user_id);
	user->next = verifier->repaired;
	verifier->repaired = user;
}

void counter_verify_committed(struct counter_verifier *verifier)
{
	struct counters *counters = verifier->counters;

	if (!is_owner(verifier))
		return;
	for (struct repaired_user *user = verifier->repaired; user; user = user->next) {
		struct counter_row row = {.user_id = user->user_id};

		if (counters->repository->ops->find(
			    counters->repository, verifier->session, &row, 1) == STATUS_OK &&
			row.exists)
			counters_publish(counters, verifier->cache, &verifier->arena, &row, 1);
	}
	verifier->repaired = NULL;
	arena_reset(&verifier->arena);
}

void counter_verify_open(struct counter_verifier *verifier)
{
	struct store *store = verifier->counters->store;
	struct cache *cache = verifier->counters->cache;

	arena_init(&verifier->arena, 16 * 1024);
	verifier->session = store->ops->open_session(store, SESSION_READ);
	if (cache)
		verifier->cache = cache->ops->open_session(cache);
}

void counter_verify_close(struct counter_verifier *verifier)
{
	session_close(verifier->session);
	if (verifier->cache)
		verifier->cache->ops->close(verifier->cache);
	arena_release(&verifier->arena);
}

static enum status decide(struct write *write, struct session *session, struct arena *arena)
{
	struct repair *repair = repair_of(write);
	struct buffer body = buffer_make(write->command.arena, 64);
	struct gap gap = {.has_more = true};
	size_t repaired = 0;

	note_repaired(repair);
	while (gap.has_more) {
		enum status status = repair_page(repair, session, arena, &gap, &repaired);

		if (status != STATUS_OK)
			return status;
	}
	buffer_text(&body, "{\"userId\":");
	buffer_json_string(&body, repair->user_id);
	buffer_format(&body, ",\"repaired\":%zu}", repaired);
	write_answer(write, answer_json(200, buffer_slice(&body)));
	return STATUS_OK;
}

static void post_repair(void *context, struct request *request)
{
	struct counter_verifier *verifier = context;
	struct repair *repair = arena_new(&request->arena, struct repair);
	struct input input;

	input_init(&input, request);
	input_check_id(&input, "userId", request->params[0]);
	input_read_body(&input);
	repair->verifier = verifier;
	repair->write.command.type = &repair_type;
	repair->write.decide = decide;
	repair->user_id = request->params[0];
	repair->write.command.key = slice_of("repair");
	submit_write(&input, verifier->counters->lanes, &repair->write);
}

void counter_verify_add_routes(struct counter_verifier *verifier, struct router *router)
{
	const struct route routes[] = {
		{"POST", "/operator/verify/unread/{userId}/repair", ACCESS_ADMIN, post_repair,
			verifier, 0, NULL, NULL},
	};

	router_add_all(router, NULL, routes, sizeof(routes) / sizeof(routes[0]));
}
