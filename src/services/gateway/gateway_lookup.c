/* Reads limits without changing them: one user's limit, a forecast for the user's next send, or a
 * page of all limits. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "services/gateway/gateway_answers.h"
#include "services/gateway/gateway_batch.h"
#include "services/gateway/limit_rules.h"

/* ---- one user ---------------------------------------------------------------------------- */
const struct command_type gateway_lookup_type = {"gateway_lookup", false};

struct gateway_lookup *gateway_lookup_new(struct arena *arena)
{
	struct gateway_lookup *lookup = arena_new(arena, struct gateway_lookup);

	lookup->read.command.type = &gateway_lookup_type;
	return lookup;
}

static struct gateway_lookup *gateway_lookup_of(struct read *read)
{
	command_assert_type(&read->command, &gateway_lookup_type);
	return (struct gateway_lookup *)read;
}

static int compare_rows(const void *a, const void *b)
{
	return slice_compare(
		((const struct limit_row *)a)->user_id, ((const struct limit_row *)b)->user_id);
}

/* Fills `rows` with the users of the batch, sorted and without duplicates. Returns how many rows
 * there are. */
static size_t wanted_rows(const struct read_batch *batch, struct limit_row *rows)
{
	size_t kept = 0;

	for (size_t i = 0; i < batch->count; i++)
		rows[i].user_id = batch->reads[i]->command.key;
	qsort(rows, batch->count, sizeof(*rows), compare_rows);
	for (size_t i = 0; i < batch->count; i++) {
		if (kept == 0 || compare_rows(&rows[kept - 1], &rows[i]) != 0)
			rows[kept++] = rows[i];
	}
	return kept;
}

/* Returns the row. If its window has ended, sets current_count to 0, as the next send would. */
static struct limit_row as_of_now(
	const struct gateway *gateway, struct limit_row row, int64_t now_us)
{
	if (limit_has_elapsed(&row, now_us, gateway->window_unit_us))
		row.current_count = 0;
	return row;
}

static void answer_lookup(const struct gateway *gateway, struct command *command,
	struct limit_row row, int64_t now_us)
{
	struct user_id user = {.text = command->key};

	if (!row.exists) {
		command->answer = gateway_answer_no_config(command->arena, command->key);
		return;
	}
	row = as_of_now(gateway, row, now_us);
	command->answer = gateway_answer_config(command->arena, &user, &row);
}

/* ---- forecasts --------------------------------------------------------------------------- */

/* Returns true if the cache would refuse the send because the cached copy has no slots left. A send
 * is checked against the cache before the row; see gateway_cache.c. */
static bool cache_refuses(const struct cached_limit *cached)
{
	return cached->hit && cached->current_count >= cached->rate_limit;
}

static struct limit_view view_of_row(
	const struct gateway *gateway, const struct limit_row *row, int64_t now_us)
{
	int64_t reset_us = limit_reset_us(row, gateway->window_unit_us);

	return (struct limit_view){
		.rate_limit = row->rate_limit,
		.window_us = row->time_window * gateway->window_unit_us,
		.remaining = limit_left(row),
		.left_us = reset_us - now_us,
		.reset_us = reset_us,
	};
}

/*
 * Returns the time at which a cached copy stops refusing sends: the end of the copy's window or, if
 * the window has already ended or is unknown, the time at which the copy expires. A copy is kept
 * for up to a second longer than its window, and a copy that another program wrote may have no
 * window.
 */
static int64_t copy_reset_us(const struct cached_limit *cached, int64_t now_us)
{
	int64_t end_us = cached->window_start_us + cached->window_us;

	return end_us > now_us ? end_us : now_us + cached->ttl_us;
}

static struct limit_view view_of_copy(const struct cached_limit *cached, int64_t now_us)
{
	return (struct limit_view){
		.rate_limit = cached->rate_limit,
		.window_us = cached->window_us,
		.left_us = cached->ttl_us,
		.reset_us = copy_reset_us(cached, now_us),
	};
}

/* Answers how the limiter would decide about a send. `row` is a copy, so nothing is reserved. */
static void answer_forecast(const struct gateway *gateway, struct command *command,
	struct limit_row row, const struct cached_limit *cached, int64_t now_us)
{
	struct limit_view limit;

	if (!row.exists && gateway->standard.rate_limit == 0) {
		command->answer = gateway_answer_no_config(command->arena, command->key);
		return;
	}
	if (!row.exists)
		limit_make_default(&row, &gateway->standard, now_us);
	limit_follow_default(&row, &gateway->standard, now_us, gateway->window_unit_us);
	limit_update(&row, now_us, gateway->window_unit_us);
	limit = cache_refuses(cached) ? view_of_copy(cached, now_us)
				      : view_of_row(gateway, &row, now_us);
	command->answer = gateway_answer_forecast(command->arena, &limit,
		limit.remaining > 0 || (row.shadow && !cache_refuses(cached)), row.shadow);
}

/* Reads the users' cached copies without taking slots. Without a cache, or while the cache is
 * unavailable, every user is a miss. */
static struct cached_limit *peek(const struct gateway *gateway, struct arena *arena,
	const struct limit_row *rows, size_t count)
{
	struct cached_limit *limits = arena_array(arena, struct cached_limit, count);
	struct cache_session *cache = gateway->reader_cache;

	for (size_t i = 0; i < count; i++)
		limits[i].user_id = rows[i].user_id;
	if (cache && cache->ops->limit_take(cache, limits, count) != STATUS_OK)
		memset(limits, 0, count * sizeof(*limits));
	return limits;
}

/* ---- batches ----------------------------------------------------------------------------- */

static bool has_forecast(const struct read_batch *batch)
{
	for (size_t i = 0; i < batch->count; i++) {
		if (gateway_lookup_of(batch->reads[i])->is_forecast)
			return true;
	}
	return false;
}

enum status gateway_batch_look_up(
	const struct gateway *gateway, struct session *session, const struct read_batch *batch)
{
	struct limit_row *rows = arena_array(batch->arena, struct limit_row, batch->count);
	size_t count = wanted_rows(batch, rows);
	struct cached_limit *cached =
		has_forecast(batch) ? peek(gateway, batch->arena, rows, count) : NULL;
	int64_t now_us;
	enum status status =
		gateway->repository->ops->find(gateway->repository, session, rows, count, &now_us);

	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < batch->count; i++) {
		struct gateway_lookup *lookup = gateway_lookup_of(batch->reads[i]);
		struct command *command = &lookup->read.command;
		struct limit_row wanted = {.user_id = command->key};
		const struct limit_row *row =
			bsearch(&wanted, rows, count, sizeof(*rows), compare_rows);

		assert(row);
		if (lookup->is_forecast)
			answer_forecast(gateway, command, *row, &cached[row - rows], now_us);
		else
			answer_lookup(gateway, command, *row, now_us);
	}
	return STATUS_OK;
}

/* ---- lists ------------------------------------------------------------------------------- */

static const struct command_type gateway_list_type = {"gateway_list", false};

static enum status look_up_list(struct read *read, struct session *session, struct arena *arena)
{
	struct gateway_list *list = (struct gateway_list *)read;
	const struct gateway *gateway = list->gateway;
	struct arena *kept = read->command.arena;
	/* One extra row shows whether there is a next page. */
	struct row_page page = {.after = {list->after}, .limit = list->limit + 1};
	struct limit_row *rows = arena_array(arena, struct limit_row, page.limit);
	enum status status;
	size_t shown;

	command_assert_type(&read->command, &gateway_list_type);
	status = gateway->repository->ops->list(gateway->repository, session, arena, &page, rows);
	if (status != STATUS_OK)
		return status;
	shown = page.count < list->limit ? page.count : list->limit;
	for (size_t i = 0; i < shown; i++)
		rows[i] = as_of_now(gateway, rows[i], page.now_us);
	read->command.answer = gateway_answer_list(kept, rows, shown);
	if (page.count > shown)
		answer_add_next(&read->command.answer, kept, list->path, list->limit,
			rows[shown - 1].user_id);
	return STATUS_OK;
}

struct gateway_list *gateway_list_new(struct arena *arena)
{
	struct gateway_list *list = arena_new(arena, struct gateway_list);

	list->read.command.type = &gateway_list_type;
	list->read.look_up = look_up_list;
	return list;
}
