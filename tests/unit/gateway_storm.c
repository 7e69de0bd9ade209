#include "gateway_storm.h"

#include "base/steady.h"
#include "check.h"
#include "waiting.h"

const char *const storm_users[STORM_USERS] = {"a", "b", "c"};

/* ---- what the bus has -------------------------------------------------------------------- */

static void copy_text(char *out, size_t size, struct slice text)
{
	must(text.len < size, "a text of a message is short");
	memcpy(out, text.data, text.len);
	out[text.len] = '\0';
}

static struct storm_message describe(const struct bus_message *message)
{
	struct storm_message described;

	must(slice_is(message->headers[0].name, "window-start"), "a message names its window");
	copy_text(described.id, sizeof(described.id), message->id);
	copy_text(described.user, sizeof(described.user), message->key);
	copy_text(described.window, sizeof(described.window), message->headers[0].value);
	described.is_confirmed = message->fate == BUS_CONFIRMED;
	return described;
}

static void keep(struct storm_bus *bus, const struct bus_message *message)
{
	struct storm_message kept = describe(message);

	for (size_t i = 0; i < bus->message_count; i++) {
		struct storm_message *other = &bus->messages[i];

		if (strcmp(other->id, kept.id) == 0 && strcmp(other->window, kept.window) == 0) {
			other->is_confirmed |= kept.is_confirmed;
			return;
		}
	}
	must(bus->message_count < STORM_MESSAGES_MAX, "the bus has room");
	bus->messages[bus->message_count++] = kept;
}

/* A message whose fate is unknown counts as published, which is the worst case. */
static void decide_fate(struct storm_bus *bus, struct bus_message *message)
{
	uint64_t drawn = dice_below(&bus->dice, 10);

	message->fate = drawn < 6 ? BUS_CONFIRMED : drawn < 8 ? BUS_NOT_PERSISTED : BUS_UNKNOWN;
	if (message->fate != BUS_NOT_PERSISTED)
		keep(bus, message);
}

const struct storm_message *storm_bus_find(const struct storm_bus *bus, const char *id)
{
	const struct storm_message *found = NULL;

	for (size_t i = 0; i < bus->message_count; i++) {
		const struct storm_message *message = &bus->messages[i];

		if (strcmp(message->id, id) == 0 && (!found || message->is_confirmed))
			found = message;
	}
	return found;
}

size_t storm_bus_count_in_window(const struct storm_bus *bus, const struct storm_message *message)
{
	size_t count = 0;

	for (size_t i = 0; i < bus->message_count; i++)
		count += strcmp(bus->messages[i].user, message->user) == 0 &&
			 strcmp(bus->messages[i].window, message->window) == 0;
	return count;
}

/* ---- the producer ------------------------------------------------------------------------ */

static struct storm_bus *bus_of(struct producer *producer)
{
	return (struct storm_bus *)producer;
}

static void wait_while_it_hangs(struct storm_bus *bus)
{
	pthread_mutex_lock(&bus->lock);
	while (bus->hangs)
		steady_wait_until(&bus->changed, &bus->lock, INT64_MAX);
	pthread_mutex_unlock(&bus->lock);
}

static enum status publish(
	struct producer *producer, struct bus_message *messages, size_t count, int64_t until_ns)
{
	struct storm_bus *bus = bus_of(producer);

	(void)until_ns;
	nap_ms((int64_t)dice_below(&bus->dice, 4));
	wait_while_it_hangs(bus);
	if (dice_below(&bus->dice, 20) == 0)
		return STATUS_BUS_UNAVAILABLE;
	for (size_t i = 0; i < count; i++)
		decide_fate(bus, &messages[i]);
	return STATUS_OK;
}

static enum status begin(
	struct producer *producer, struct bus_message *messages, size_t count, int64_t until_ns)
{
	struct storm_bus *bus = bus_of(producer);

	(void)until_ns;
	if (dice_below(&bus->dice, 20) == 0)
		return STATUS_BUS_UNAVAILABLE;
	for (size_t i = 0; i < count; i++)
		messages[i].fate = BUS_UNDER_WAY;
	must(bus->begun_count < BUS_BEGUN_MAX, "no more than BUS_BEGUN_MAX rounds are under way");
	bus->begun[bus->begun_count++] = (struct storm_round){messages, count};
	return STATUS_OK;
}

/* Now and then so long that the committer loses its patience and goes on without the bus. */
static int64_t draw_pause_ms(struct dice *dice)
{
	if (dice_below(dice, 30) == 0)
		return 60;
	return dice_below(dice, 3) > 0 ? (int64_t)dice_below(dice, 3) : 0;
}

/* Returns false if the bus hangs. */
static bool pause_unless_woken(struct storm_bus *bus)
{
	int64_t until_ns = in_ms(draw_pause_ms(&bus->dice));
	bool hangs;

	pthread_mutex_lock(&bus->lock);
	while (!bus->is_woken &&
		steady_wait_until(&bus->changed, &bus->lock, bus->hangs ? INT64_MAX : until_ns))
		;
	bus->is_woken = false;
	hangs = bus->hangs;
	pthread_mutex_unlock(&bus->lock);
	return !hangs;
}

/* Decides about half of the messages. Returns true if some are still under way. */
static bool decide_some(struct storm_bus *bus, const struct storm_round *round)
{
	bool is_under_way = false;

	for (size_t i = 0; i < round->count; i++) {
		struct bus_message *message = &round->messages[i];

		if (message->fate == BUS_UNDER_WAY && dice_below(&bus->dice, 2))
			decide_fate(bus, message);
		is_under_way |= message->fate == BUS_UNDER_WAY;
	}
	return is_under_way;
}

static void collect(struct producer *producer)
{
	struct storm_bus *bus = bus_of(producer);
	size_t kept = 0;

	if (!pause_unless_woken(bus))
		return;
	for (size_t i = 0; i < bus->begun_count; i++) {
		if (decide_some(bus, &bus->begun[i]))
			bus->begun[kept++] = bus->begun[i];
	}
	bus->begun_count = kept;
}

static void wake(struct producer *producer)
{
	struct storm_bus *bus = bus_of(producer);

	pthread_mutex_lock(&bus->lock);
	bus->is_woken = true;
	pthread_cond_signal(&bus->changed);
	pthread_mutex_unlock(&bus->lock);
}

void storm_bus_hang(struct storm_bus *bus, bool hangs)
{
	pthread_mutex_lock(&bus->lock);
	bus->hangs = hangs;
	pthread_cond_signal(&bus->changed);
	pthread_mutex_unlock(&bus->lock);
}

static const struct producer_ops blocking_ops = {.publish = publish};
static const struct producer_ops asynchronous_ops = {
	.publish = publish, .begin = begin, .collect = collect, .wake = wake};

void storm_bus_init(struct storm_bus *bus, uint64_t seed)
{
	memset(bus, 0, sizeof(*bus));
	bus->dice.state = seed;
	bus->producer.ops = dice_below(&bus->dice, 4) == 0 ? &blocking_ops : &asynchronous_ops;
	pthread_mutex_init(&bus->lock, NULL);
	steady_cond_init(&bus->changed);
}

void storm_bus_release(struct storm_bus *bus)
{
	pthread_cond_destroy(&bus->changed);
	pthread_mutex_destroy(&bus->lock);
}

/* ---- the store --------------------------------------------------------------------------- */

static struct storm_limits *limits_of(const struct limit_repository *repository)
{
	return (struct storm_limits *)(uintptr_t)repository;
}

static void plan_fault(struct storm_limits *limits)
{
	static const enum status faults[] = {STATUS_RERUN, STATUS_LOCK_BUSY,
		STATUS_STORE_UNAVAILABLE, STATUS_OUTCOME_UNKNOWN, STATUS_POISON};
	size_t kinds = limits->is_gentle    ? 1
		       : limits->has_poison ? COUNT_OF(faults)
					    : COUNT_OF(faults) - 1;

	limits->store->survives = dice_below(&limits->dice, 2);
	if (dice_below(&limits->dice, 3) == 0)
		faulty_store_fail_at(limits->store, 1 + (int)dice_below(&limits->dice, 9),
			faults[dice_below(&limits->dice, kinds)]);
}

static void let_time_pass(struct storm_limits *limits)
{
	limits->store->now_us += 1 + (int64_t)dice_below(&limits->dice, 3);
	if (limits->is_gentle)
		return;
	if (dice_below(&limits->dice, 40) == 0)
		limits->store->now_us += IDEMPOTENCY_LEASE_US + 1;
	if (dice_below(&limits->dice, 60) == 0)
		limits->store->now_us += STORM_WINDOW_US;
}

/* A row is rarely held, and not for long. */
static void hold_rows(struct storm_limits *limits)
{
	for (size_t i = 0; i < STORM_USERS; i++) {
		if (dice_below(&limits->dice, 25) == 0)
			limits->is_held[i] = !limits->is_held[i];
		else if (dice_below(&limits->dice, 4) == 0)
			limits->is_held[i] = false;
		faulty_store_hold(limits->store, slice_of(storm_users[i]), limits->is_held[i]);
	}
}

static void calm_down(struct storm_limits *limits)
{
	faulty_store_fail_at(limits->store, 0, STATUS_OK);
	for (size_t i = 0; i < STORM_USERS; i++)
		faulty_store_hold(limits->store, slice_of(storm_users[i]), false);
}

static void rage(struct storm_limits *limits)
{
	let_time_pass(limits);
	if (atomic_load(&limits->is_calm)) {
		calm_down(limits);
		return;
	}
	plan_fault(limits);
	if (!limits->is_gentle)
		hold_rows(limits);
}

static enum status lock(const struct limit_repository *repository, struct session *session,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	rage(limits_of(repository));
	return faulty_limit_repository.ops->lock(
		&faulty_limit_repository, session, rows, count, now_us);
}

static enum status put(const struct limit_repository *repository, struct session *session,
	const struct limit_row *rows, size_t count)
{
	(void)repository;
	for (size_t i = 0; i < count; i++)
		storm_limits_check_row(&rows[i]);
	return faulty_limit_repository.ops->put(&faulty_limit_repository, session, rows, count);
}

/* If the storm is gentle, no two attempts to record the same effects fail: the committer repeats
 * them only a few times. */
static enum status settle(const struct limit_repository *repository, struct session *session,
	const struct limit_settlement *settlements, size_t count)
{
	struct storm_limits *limits = limits_of(repository);

	if (!limits->is_gentle && dice_below(&limits->dice, 4) == 0)
		rage(limits);
	return faulty_limit_repository.ops->settle(
		&faulty_limit_repository, session, settlements, count);
}

void storm_limits_init(struct storm_limits *limits, uint64_t seed, bool is_gentle)
{
	memset(limits, 0, sizeof(*limits));
	limits->ops = *faulty_limit_repository.ops;
	limits->ops.lock = lock;
	limits->ops.put = put;
	limits->ops.settle = settle;
	limits->base.ops = &limits->ops;
	limits->store = faulty_store_new();
	limits->dice.state = seed;
	limits->is_gentle = is_gentle;
	limits->has_poison = dice_below(&limits->dice, 3) == 0;
	atomic_init(&limits->is_calm, false);
}

void storm_limits_release(struct storm_limits *limits)
{
	faulty_store_free(limits->store);
}

void storm_limits_check_row(const struct limit_row *row)
{
	must(row->current_count >= 0, "no count is negative");
	must(row->current_count <= row->reserved_count, "what is confirmed was reserved");
	must(row->reserved_count <= row->rate_limit, "no more is reserved than the limit");
}
