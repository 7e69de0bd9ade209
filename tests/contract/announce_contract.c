/* What ports/store.h promises of announcements, on one engine. Two stores stand for two
 * processes. */
#include <pthread.h>
#include <stdatomic.h>

#include "adapters/store/postgres/postgres_store.h"
#include "base/clock.h"
#include "engine.h"
#include "waiting.h"

struct ear {
	_Atomic int heard;
};

static void hear(void *context)
{
	((struct ear *)context)->heard++;
}

static bool is_one_process(const struct engine *engine)
{
	return engine_time_is_ours(engine); /* SQLite */
}

/* Announces until it is heard: a call can get lost, above all before both are connected. */
static void announce_until_heard(struct store *store, const char *announcement, struct ear *ear)
{
	int64_t deadline_ns = hang_deadline_ns();
	int before = ear->heard;

	while (ear->heard == before) {
		store->ops->announce(store, announcement);
		for (int i = 0; i < 10 && ear->heard == before; i++)
			wait_on(deadline_ns, "an announcement is heard");
	}
}

/* Returns when nothing that `from` has announced is on its way to `to` any more: announcements stay
 * in order, but those that wait for their turn together. `marks` listens to "marks" at `to`. */
static void settle(struct store *from, struct ear *marks)
{
	for (int i = 0; i < 2; i++)
		announce_until_heard(from, "marks", marks);
}

static struct store *listening_store(
	struct engine *engine, const char *announcement, struct ear *ear, struct ear *marks)
{
	struct store *store = engine_other_store(engine);

	store->ops->listen(store, announcement, hear, ear);
	if (marks)
		store->ops->listen(store, "marks", hear, marks);
	engine_start(store);
	return store;
}

static void everybody_who_listens_in_this_process_is_called_at_once(void **state)
{
	struct engine *engine = *state;
	struct store *store = engine_other_store(engine);
	struct ear first = {0}, second = {0}, other = {0};

	store->ops->listen(store, "outbox", hear, &first);
	store->ops->listen(store, "other", hear, &other);
	store->ops->listen(store, "outbox", hear, &second);
	engine_start(store);
	if (!is_one_process(engine)) /* a new connection calls everybody once */
		WAIT_UNTIL(first.heard > 0 && second.heard > 0 && other.heard > 0);
	first.heard = second.heard = other.heard = 0;
	store->ops->announce(store, "outbox");
	assert_int_equal(first.heard, 1);
	assert_int_equal(second.heard, 1);
	assert_int_equal(other.heard, 0);
	nap_ms(100); /* for what must not come */
	store->ops->free(store);
	assert_int_equal(first.heard, 1);
	assert_int_equal(other.heard, 0);
}

static void who_no_longer_listens_is_not_called(void **state)
{
	struct engine *engine = *state;
	struct ear stays = {0}, goes = {0};
	struct store *store = engine->store;

	store->ops->listen(store, "outbox", hear, &stays);
	store->ops->listen(store, "outbox", hear, &goes);
	store->ops->listen(store, "other", hear, &goes);
	store->ops->unlisten(store, &goes);
	goes.heard = stays.heard = 0;
	store->ops->announce(store, "outbox");
	store->ops->announce(store, "other");
	nap_ms(100); /* for what must not come */
	assert_true(stays.heard >= 1);
	assert_int_equal(goes.heard, 0);
	store->ops->unlisten(store, &stays);
}

static void announcing_where_nobody_listens_is_harmless(void **state)
{
	struct engine *engine = *state;

	for (int i = 0; i < 1000; i++)
		engine->store->ops->announce(engine->store, "outbox");
}

static void other_processes_hear_it_too_and_nobody_hears_himself_twice(void **state)
{
	struct engine *engine = *state;
	struct ear here = {0}, there = {0}, marks_here = {0}, marks_there = {0};
	struct store *stores[2];

	if (is_one_process(engine))
		return;
	stores[0] = listening_store(engine, "outbox", &here, &marks_here);
	stores[1] = listening_store(engine, "outbox", &there, &marks_there);
	settle(stores[0], &marks_there);
	settle(stores[1], &marks_here);
	here.heard = there.heard = 0;
	stores[0]->ops->announce(stores[0], "outbox");
	stores[0]->ops->announce(stores[0], "another announcement");
	settle(stores[0], &marks_there);
	settle(stores[1], &marks_here);
	assert_int_equal(there.heard, 1);
	assert_int_equal(here.heard, 1);
	stores[0]->ops->free(stores[0]);
	stores[1]->ops->free(stores[1]);
}

static void many_announcements_are_told_to_others_as_few(void **state)
{
	struct engine *engine = *state;
	struct ear there = {0}, marks = {0};
	struct store *store;
	int64_t began_ms;
	int heard;

	if (is_one_process(engine))
		return;
	store = listening_store(engine, "outbox", &there, &marks);
	settle(engine->store, &marks);
	there.heard = 0;
	began_ms = steady_ms();
	for (int i = 0; i < 400; i++) {
		engine->store->ops->announce(engine->store, "outbox");
		if (i % 40 == 0)
			wait_a_moment();
	}
	settle(engine->store, &marks);
	heard = there.heard;
	assert_in_range(heard, 1, (steady_ms() - began_ms) / 20 + 2);
	store->ops->free(store);
}

static void a_lost_connection_is_made_anew(void **state)
{
	struct engine *engine = *state;
	struct ear there = {0};
	struct store *store;

	if (is_one_process(engine))
		return;
	store = listening_store(engine, "outbox", &there, NULL);
	announce_until_heard(engine->store, "outbox", &there);
	engine_execute(engine, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
			       "WHERE datname = current_database() AND pid <> pg_backend_pid()");
	announce_until_heard(engine->store, "outbox", &there);
	store->ops->free(store);
}

/* ---- the end ----------------------------------------------------------------------------- */

static void a_store_is_freed_while_it_listens(void **state)
{
	struct engine *engine = *state;
	struct ear ear = {0};
	struct store *store = listening_store(engine, "outbox", &ear, NULL);

	store->ops->announce(store, "outbox");
	store->ops->free(store); /* returns, though its thread waits for calls */
}

static void a_store_is_freed_while_the_server_is_away(void **state)
{
	static const char *const components[] = {"common", NULL};
	struct engine *engine = *state;
	struct ear ear = {0};
	char why[256];
	struct store *store;

	if (is_one_process(engine))
		return;
	store = postgres_store_new("away", "postgres://127.0.0.1:1/nothing", components);
	store->ops->listen(store, "outbox", hear, &ear);
	assert_true(store->ops->start(store, why, sizeof(why)));
	nap_ms(100); /* it tries to connect */
	store->ops->announce(store, "outbox");
	assert_int_equal(ear.heard, 1);
	store->ops->free(
		store); /* does not block, although the waker's thread waits for the server */
}

static void *announce_many(void *argument)
{
	struct store *store = argument;

	for (int i = 0; i < 2000; i++)
		store->ops->announce(store, i % 2 ? "outbox" : "notifications");
	return NULL;
}

static void any_thread_may_announce(void **state)
{
	struct engine *engine = *state;
	struct ear ear = {0};
	struct store *store = listening_store(engine, "outbox", &ear, NULL);
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, announce_many, store), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_true(ear.heard >= 4000);
	store->ops->free(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(everybody_who_listens_in_this_process_is_called_at_once),
		ENGINE_TEST(who_no_longer_listens_is_not_called),
		ENGINE_TEST(announcing_where_nobody_listens_is_harmless),
		ENGINE_TEST(other_processes_hear_it_too_and_nobody_hears_himself_twice),
		ENGINE_TEST(many_announcements_are_told_to_others_as_few),
		ENGINE_TEST(a_lost_connection_is_made_anew),
		ENGINE_TEST(a_store_is_freed_while_it_listens),
		ENGINE_TEST(a_store_is_freed_while_the_server_is_away),
		ENGINE_TEST(any_thread_may_announce),
	};

	return cmocka_run_group_tests_name("announcements", tests, NULL, NULL);
}
