/*
 * The cache in front of the store. It may refuse a send by itself; what it lets through is still
 * admitted by the row, so a cache that forgets, lies or is restored from an old copy can cost a
 * user slots or save the store work, and never admits one message too many.
 *
 * Sends with an Idempotency-Key pass it by: they may be repeats, which only the store can tell.
 */
#include "base/failpoint.h"
#include "flow/groups.h"
#include "services/gateway/gateway_batch.h"
#include "services/gateway/limit_rules.h"

static bool asks_cache(const struct gateway_command *command)
{
	return command->verb == GATEWAY_SEND && !command->write.idempotency &&
	       command->write.fate == WRITE_OPEN;
}

static int64_t wanted_by(const struct write_group *group)
{
	int64_t wanted = 0;

	for (size_t i = 0; i < group->count; i++)
		wanted += asks_cache(gateway_command_of(group->writes[i]));
	return wanted;
}

/* ---- filling ----------------------------------------------------------------------------- */

/* The row's window has elapsed: begins a new one, unless somebody else just did. */
static enum status refresh_rows(const struct gateway *gateway, struct session *session,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	const struct limit_repository *repository = gateway->repository;
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);

	if (status == STATUS_OK)
		status = repository->ops->lock(repository, session, rows, count, now_us);
	for (size_t i = 0; status == STATUS_OK && i < count; i++) {
		if (rows[i].exists && limit_has_elapsed(&rows[i], *now_us, gateway->window_unit_us))
			limit_refresh(&rows[i], *now_us);
	}
	if (status == STATUS_OK)
		status = repository->ops->put(repository, session, rows, count);
	if (status == STATUS_OK)
		status = session->ops->commit(session);
	return status;
}

/* Brings rows of elapsed windows, and the time, up to date. false: not now. */
static bool refresh_elapsed(const struct gateway *gateway, struct session *session,
	struct arena *arena, struct limit_row *rows, size_t count, int64_t *now_us)
{
	struct limit_row *elapsed = arena_array(arena, struct limit_row, count);
	size_t elapsed_count = 0;

	for (size_t i = 0; i < count; i++) {
		if (rows[i].exists && limit_has_elapsed(&rows[i], *now_us, gateway->window_unit_us))
			elapsed[elapsed_count++] = rows[i];
	}
	if (elapsed_count == 0)
		return true;
	if (refresh_rows(gateway, session, elapsed, elapsed_count, now_us) != STATUS_OK)
		return false;
	for (size_t i = 0, k = 0; i < count && k < elapsed_count; i++) {
		if (slice_equal(rows[i].user_id, elapsed[k].user_id))
			rows[i] = elapsed[k++];
	}
	return true;
}

/*
 * A configuration that changed between our look and our fill has deleted the copy before we made
 * it. So we look again after the fill and delete what is of another window; a change after that
 * look deletes the copy itself.
 */
static void recheck(struct gateway_lane *lane, struct session *session, struct arena *arena,
	const struct cached_limit *filled, size_t count)
{
	struct limit_row *rows = arena_array(arena, struct limit_row, count);
	struct slice *changed = arena_array(arena, struct slice, count);
	size_t changed_count = 0;
	int64_t now_us;
	enum status status, ignored;

	for (size_t i = 0; i < count; i++)
		rows[i].user_id = filled[i].user_id;
	status = lane->gateway->repository->ops->find(
		lane->gateway->repository, session, rows, count, &now_us);
	for (size_t i = 0; i < count; i++) {
		if (status != STATUS_OK || !rows[i].exists ||
			rows[i].last_refresh_us != filled[i].window_start_us)
			changed[changed_count++] = filled[i].user_id;
	}
	if (changed_count == 0)
		return;
	ignored = lane->cache->ops->limit_drop(lane->cache, changed, changed_count);
	(void)ignored; /* made up for before the cache is used again */
}

static struct cached_limit copy_of(const struct limit_row *row, int64_t now_us, int64_t unit_us)
{
	return (struct cached_limit){
		.user_id = row->user_id,
		.rate_limit = row->rate_limit,
		.current_count = limit_used(row),
		.window_start_us = row->last_refresh_us,
		.window_us = row->time_window * unit_us,
		.ttl_us = limit_reset_us(row, unit_us) - now_us,
	};
}

/* Reads the rows of the users that the cache does not know, and puts what it finds into it. */
static void fill(struct gateway_lane *lane, struct session *session, struct arena *arena,
	const struct cached_limit *misses, size_t count)
{
	const struct gateway *gateway = lane->gateway;
	struct limit_row *rows = arena_array(arena, struct limit_row, count);
	struct cached_limit *filled = arena_array(arena, struct cached_limit, count);
	size_t filled_count = 0;
	int64_t now_us;

	for (size_t i = 0; i < count; i++)
		rows[i].user_id = misses[i].user_id;
	if (gateway->repository->ops->find(gateway->repository, session, rows, count, &now_us) !=
			STATUS_OK ||
		!refresh_elapsed(gateway, session, arena, rows, count, &now_us))
		return; /* the store path will say what is wrong */
	for (size_t i = 0; i < count; i++) {
		if (rows[i].exists)
			filled[filled_count++] = copy_of(&rows[i], now_us, gateway->window_unit_us);
	}
	if (filled_count == 0)
		return;
	FAILPOINT("gateway.filling");
	if (lane->cache->ops->limit_fill(lane->cache, filled, filled_count) == STATUS_OK)
		recheck(lane, session, arena, filled, filled_count);
}

/* ---- asking ------------------------------------------------------------------------------ */

static size_t keep_misses(
	const struct cached_limit *limits, size_t count, struct cached_limit *misses)
{
	size_t missed = 0;

	for (size_t i = 0; i < count; i++) {
		if (!limits[i].hit)
			misses[missed++] = limits[i];
	}
	return missed;
}

static void merge_hits(struct cached_limit *limits, size_t count, const struct cached_limit *again)
{
	for (size_t i = 0; i < count; i++) {
		if (!limits[i].hit)
			limits[i] = *again++;
	}
}

/* Asks for all; what misses is filled from the store and asked for once more. */
static bool take(struct gateway_lane *lane, struct session *session, struct arena *arena,
	struct cached_limit *limits, size_t count)
{
	const struct cache_session_ops *cache = lane->cache->ops;
	struct cached_limit *misses = arena_array(arena, struct cached_limit, count);
	size_t missed;

	if (cache->limit_take(lane->cache, limits, count) != STATUS_OK)
		return false;
	missed = keep_misses(limits, count, misses);
	if (missed == 0)
		return true;
	fill(lane, session, arena, misses, missed);
	if (cache->limit_take(lane->cache, misses, missed) != STATUS_OK)
		return false;
	merge_hits(limits, count, misses);
	return true;
}

/* The first `granted` go on, the rest is refused. */
static void apply(const struct write_group *group, const struct cached_limit *limit)
{
	int64_t granted = limit->granted;

	for (size_t i = 0; i < group->count && limit->hit; i++) {
		struct gateway_command *command = gateway_command_of(group->writes[i]);

		if (!asks_cache(command))
			continue;
		if (granted-- > 0) {
			command->cached = true;
			command->window_start_us = limit->window_start_us;
			continue;
		}
		write_answer(&command->write,
			gateway_answer_refused(command->write.command.arena, command,
				limit->rate_limit, limit->window_us, limit->ttl_us));
	}
}

static void ask_cache(
	struct gateway_lane *lane, struct session *session, const struct write_batch *batch)
{
	size_t count, asked = 0;
	struct write_group *groups = write_groups(batch, &count);
	struct cached_limit *limits = arena_array(batch->arena, struct cached_limit, count);

	for (size_t i = 0; i < count; i++) {
		int64_t wanted = wanted_by(&groups[i]);

		if (wanted == 0)
			continue;
		groups[asked] = groups[i];
		limits[asked].user_id = groups[i].key;
		limits[asked++].wanted = wanted;
	}
	if (asked == 0 || !take(lane, session, batch->arena, limits, asked))
		return;
	for (size_t i = 0; i < asked; i++)
		apply(&groups[i], &limits[i]);
}

/* false: the cache is away, and with it what is stale in it. */
static bool drop_stale(struct gateway_lane *lane)
{
	enum status status = STATUS_OK;

	if (lane->stale_count > 0)
		status = lane->cache->ops->limit_drop(lane->cache, lane->stale, lane->stale_count);
	lane->stale_count = 0;
	arena_reset(&lane->stale_arena);
	return status == STATUS_OK;
}

/* A bus that is known to be down is not worth a reservation. Repeats may still be answered. */
static void refuse_without_bus(struct gateway_lane *lane, const struct write_batch *batch)
{
	struct bus *bus = lane->gateway->bus;

	if (bus->ops->is_up(bus))
		return;
	for (size_t i = 0; i < batch->count; i++) {
		struct gateway_command *command = gateway_command_of(batch->writes[i]);

		if (asks_cache(command))
			write_answer(&command->write, answer_failure(command->write.command.arena,
							      STATUS_BUS_UNAVAILABLE));
	}
}

void gateway_prepare(void *context, struct session *session, const struct write_batch *batch)
{
	struct gateway_lane *lane = context;

	if (lane->cache && drop_stale(lane))
		ask_cache(lane, session, batch);
	refuse_without_bus(lane, batch);
}
