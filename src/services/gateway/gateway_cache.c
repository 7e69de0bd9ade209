/*
 * A lane sends the cache one request for the whole batch. If the cache does not have some of the
 * users, the lane copies the rows of these users into the cache and sends a second request for
 * these users only. A configuration may change after its row was read and before the cache is
 * filled, so the lane checks the new copies against the rows after every fill; see recheck().
 */
#include "services/gateway/gateway_cache.h"

#include "base/failpoint.h"
#include "flow/groups.h"
#include "services/gateway/gateway_answers.h"
#include "services/gateway/limit_rules.h"

#define DROPS_MAX 256 /* copies per call of the cache */

/* Adds up the amounts of those commands in the group that the cache may refuse. */
static int64_t wanted_by(const struct write_group *group)
{
	int64_t wanted = 0;

	for (size_t i = 0; i < group->count; i++) {
		const struct gateway_command *command = gateway_command_of(group->writes[i]);

		if (gateway_command_is_open_spend(command))
			wanted += command->amount;
	}
	return wanted;
}

/* ---- stale copies ------------------------------------------------------------------------ */

/* Deletes the stale copies. Returns false if the cache is unavailable; the adapter then deletes the
 * copies before the cache is used again. */
static bool drop_stale(struct gateway_lane *lane)
{
	bool done = true;

	for (size_t i = 0; i < lane->stale_count; i += DROPS_MAX) {
		size_t left = lane->stale_count - i;

		if (lane->cache->ops->limit_drop(lane->cache, lane->stale + i,
			    left < DROPS_MAX ? left : DROPS_MAX) != STATUS_OK)
			done = false;
	}
	lane->stale = NULL;
	lane->stale_count = lane->stale_size = 0;
	arena_reset(&lane->stale_arena);
	return done;
}

static void grow_stale(struct gateway_lane *lane)
{
	size_t size = lane->stale_size > 0 ? 2 * lane->stale_size : 64;
	struct slice *stale = arena_array(&lane->stale_arena, struct slice, size);

	if (lane->stale_count > 0)
		memcpy(stale, lane->stale, lane->stale_count * sizeof(*stale));
	lane->stale = stale;
	lane->stale_size = size;
}

void gateway_cache_note_stale(struct gateway_lane *lane, struct slice user_id)
{
	if (lane->stale_count > 0 && slice_equal(lane->stale[lane->stale_count - 1], user_id))
		return;
	if (lane->stale_count == lane->stale_size)
		grow_stale(lane);
	lane->stale[lane->stale_count++] = arena_copy(&lane->stale_arena, user_id);
}

void gateway_cache_note_given_back(struct gateway_lane *lane, const struct write_batch *ended)
{
	for (size_t i = 0; i < ended->count; i++) {
		const struct gateway_command *command = gateway_command_of(ended->writes[i]);

		if (command->write.effect == EFFECT_FAILED && !command->cached)
			gateway_cache_note_stale(lane, command->user.text);
	}
}

void gateway_cache_drop_stale(struct gateway_lane *lane)
{
	drop_stale(lane); /* on failure, the adapter deletes the copies before the next use */
}

/* Called if a call of the cache has failed: although no reply arrived, the cache may have counted
 * the wanted slots, or stored a copy that has not been checked. */
static void note_doubtful(
	struct gateway_lane *lane, const struct cached_limit *limits, size_t count)
{
	for (size_t i = 0; i < count; i++)
		gateway_cache_note_stale(lane, limits[i].user_id);
}

/* ---- filling ----------------------------------------------------------------------------- */

/* Brings the row up to date; see limit_follow_default() and limit_update(). Returns true if the row
 * has changed. */
static bool refresh(const struct gateway *gateway, struct limit_row *row, int64_t now_us)
{
	int64_t start_us = row->last_refresh_us;

	limit_follow_default(row, &gateway->standard, now_us, gateway->window_unit_us);
	return limit_update(row, now_us, gateway->window_unit_us) ||
	       row->last_refresh_us != start_us;
}

/* Locks the rows and begins a new window in each row that still exists and whose window has
 * ended. */
static enum status update_rows(const struct gateway *gateway, struct session *session,
	struct arena *arena, struct limit_row *rows, size_t count, int64_t *now_us)
{
	const struct limit_repository *repository = gateway->repository;
	struct limit_row *changed = arena_array(arena, struct limit_row, count);
	size_t changed_count = 0;
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);

	if (status == STATUS_OK)
		status = repository->ops->lock(repository, session, rows, count, now_us);
	for (size_t i = 0; status == STATUS_OK && i < count; i++) {
		if (rows[i].exists && refresh(gateway, &rows[i], *now_us))
			changed[changed_count++] = rows[i];
	}
	if (status == STATUS_OK && changed_count > 0)
		status = repository->ops->put(repository, session, changed, changed_count);
	if (status == STATUS_OK)
		status = session->ops->commit(session);
	return status;
}

/* For each row whose window has ended, begins a new window in the store and in `rows`. If there is
 * such a row, also updates `now_us`. If the store fails, returns false and leaves `rows`
 * unchanged. */
static bool update_old(const struct gateway *gateway, struct session *session, struct arena *arena,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	struct limit_row *old = arena_array(arena, struct limit_row, count);
	size_t old_count = 0;

	for (size_t i = 0; i < count; i++) {
		struct limit_row updated = rows[i];

		if (rows[i].exists && refresh(gateway, &updated, *now_us))
			old[old_count++] = rows[i];
	}
	if (old_count == 0)
		return true;
	if (update_rows(gateway, session, arena, old, old_count, now_us) != STATUS_OK)
		return false;
	for (size_t i = 0, k = 0; i < count && k < old_count; i++) {
		if (slice_equal(rows[i].user_id, old[k].user_id))
			rows[i] = old[k++];
	}
	return true;
}

/*
 * Checks the copies that were just written into the cache. Every change of a configuration and
 * every slot that is given back deletes the cached copy, but if that happens between our read and
 * our fill, it is too early. Therefore the rows are read again after the fill. If it is not certain
 * that a row still has the same window as its copy and uses no fewer slots, the copy is deleted.
 * What happens after this second read deletes the copy as usual.
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
			rows[i].last_refresh_us != filled[i].window_start_us ||
			limit_used(&rows[i]) < filled[i].current_count)
			changed[changed_count++] = filled[i].user_id;
	}
	if (changed_count == 0)
		return;
	ignored = lane->cache->ops->limit_drop(lane->cache, changed, changed_count);
	(void)ignored; /* on failure, the adapter deletes the copies before the next use */
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

/* Reads the rows of users that the cache does not have and copies them into the cache. */
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
		!update_old(gateway, session, arena, rows, count, &now_us))
		return; /* the transaction that follows reports the error */
	for (size_t i = 0; i < count; i++) {
		if (rows[i].exists && !rows[i].shadow)
			filled[filled_count++] = copy_of(&rows[i], now_us, gateway->window_unit_us);
	}
	if (filled_count == 0)
		return;
	FAILPOINT("gateway.filling");
	if (lane->cache->ops->limit_fill(lane->cache, filled, filled_count) == STATUS_OK)
		recheck(lane, session, arena, filled, filled_count);
	else
		note_doubtful(lane, filled, filled_count);
}

/* ---- taking slots ------------------------------------------------------------------------ */

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

/* Takes slots for all users. On a miss, fills the cache from the store and tries once more. Returns
 * false if the cache is unavailable; if it was available before, notes all copies as stale. */
static bool take(struct gateway_lane *lane, struct session *session, struct arena *arena,
	struct cached_limit *limits, size_t count)
{
	const struct cache_session_ops *cache = lane->cache->ops;
	struct cached_limit *misses = arena_array(arena, struct cached_limit, count);
	bool was_up = lane->gateway->cache->ops->is_up(lane->gateway->cache);
	bool done = cache->limit_take(lane->cache, limits, count) == STATUS_OK;
	size_t missed = done ? keep_misses(limits, count, misses) : 0;

	if (missed > 0) {
		fill(lane, session, arena, misses, missed);
		done = cache->limit_take(lane->cache, misses, missed) == STATUS_OK;
	}
	if (done)
		merge_hits(limits, count, misses);
	else if (was_up)
		note_doubtful(lane, limits, count);
	return done;
}

/*
 * Goes through the commands in order. Marks each command for which enough granted slots are left,
 * and refuses commands once no slot is left. A take stays open in two cases: if some slots are
 * left, but too few for the take, and if the take exceeds the whole limit. The row then decides
 * about the take, because the row shows whether any window could admit it. While the store is down,
 * the lane takes no slots from the cache, so no command is marked, and commands are refused only if
 * the cached copy has no slots left.
 */
static void apply(struct gateway_lane *lane, const struct write_group *group,
	const struct cached_limit *limit)
{
	const struct limit_view view = {
		.rate_limit = limit->rate_limit,
		.window_us = limit->window_us,
		.left_us = limit->ttl_us,
	};
	bool is_used_up = limit->current_count >= limit->rate_limit;
	int64_t left = limit->granted;

	for (size_t i = 0; i < group->count && limit->hit; i++) {
		struct gateway_command *command = gateway_command_of(group->writes[i]);

		if (!gateway_command_is_open_spend(command))
			continue;
		if (command->amount <= left) {
			left -= command->amount;
			command->cached = true;
			command->window_start_us = limit->window_start_us;
		} else if (left == 0 && is_used_up && command->amount <= limit->rate_limit) {
			write_answer(&command->write, gateway_answer_refused(command, &view));
		}
	}
	if (left > 0) /* the cache has counted slots that no command uses */
		gateway_cache_note_stale(lane, group->key);
}

/* Returns true if the user's copy may differ from the row after the command has failed. */
static bool may_differ(const struct gateway_command *command)
{
	return command->cached || command->verb == GATEWAY_CONFIGURE ||
	       command->verb == GATEWAY_REMOVE;
}

/* Deletes the copies of these writes without waiting for the lane's next use of the cache, because
 * that may be a long time away, and meanwhile other processes could read the copies. A copy may
 * also count slots of failed publishes, which are free again in the row. Deleting the copy frees
 * these slots in the cache too, which is harmless, because the row enforces the limit. */
void gateway_cache_forget(struct gateway_lane *lane, const struct command_list *writes)
{
	for (struct command *command = writes->first; command; command = command->next) {
		if (command->type == &gateway_command_type &&
			may_differ(gateway_command_of(write_of(command))))
			gateway_cache_note_stale(lane, command->key);
	}
	gateway_cache_drop_stale(lane);
}

void gateway_cache_refuse(
	struct gateway_lane *lane, struct session *session, const struct write_batch *batch)
{
	size_t count, asked = 0;
	struct write_group *groups = write_groups(batch, &count);
	struct cached_limit *limits = arena_array(batch->arena, struct cached_limit, count);
	bool is_up = session->store->ops->is_up(session->store);

	if (!drop_stale(lane))
		return;
	for (size_t i = 0; i < count; i++) {
		int64_t wanted = wanted_by(&groups[i]);

		if (wanted == 0)
			continue;
		groups[asked] = groups[i];
		limits[asked].user_id = groups[i].key;
		/* Take no slots while the store is down, because no send could be admitted, and
		 * every copy that had granted slots would have to be deleted. */
		limits[asked++].wanted = is_up ? wanted : 0;
	}
	if (asked == 0)
		return;
	if (take(lane, session, batch->arena, limits, asked)) {
		for (size_t i = 0; i < asked; i++)
			apply(lane, &groups[i], &limits[i]);
	}
	/* Do not wait for the next batch: until then, other lanes could read the stale copies. */
	gateway_cache_drop_stale(lane);
}
