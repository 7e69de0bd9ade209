/* Values from many threads to many streams: none goes back, the last one always arrives. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "stream_fixture.h"
#include "waiting.h"

static struct stream_fixture fixture;

static int start_one(void **state)
{
	(void)state;
	stream_fixture_start_by_hand(&fixture, 1);
	return 0;
}

static int start(void **state)
{
	(void)state;
	stream_fixture_start_by_hand(&fixture, 3);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	stream_fixture_stop(&fixture);
	return 0;
}

static void follow(struct stream_client *client, const char *key)
{
	char target[64];

	snprintf(target, sizeof(target), "/streams/%s", key);
	stream_fixture_follow(&fixture, client, target);
}

static void publish(const char *key, int64_t version)
{
	char data[32];

	snprintf(data, sizeof(data), "%lld", (long long)version);
	hub_publish(fixture.hub, slice_of(key), version, slice_of(data));
}

static size_t count_keys(void)
{
	struct arena arena;
	struct hub_key *keys;
	size_t count;

	arena_init(&arena, 4096);
	count = hub_keys(fixture.hub, &arena, &keys);
	arena_release(&arena);
	return count;
}

static bool are_keys(void *count)
{
	return count_keys() == *(const size_t *)count;
}

static void wait_for_keys(size_t count)
{
	wait_until(are_keys, &count, "streams that are gone");
}

/* ---- one thread -------------------------------------------------------------------------- */

static void every_stream_of_a_key_gets_its_values_on_every_loop(void **state)
{
	struct stream_client clients[12], other;

	(void)state;
	follow(&other, "other");
	assert_int_equal(client_next_id(&other), 0);
	for (size_t i = 0; i < COUNT_OF(clients); i++) {
		follow(&clients[i], "a");
		assert_int_equal(client_next_id(&clients[i]), 0);
	}
	for (int64_t version = 1; version <= 20; version++) {
		publish("a", version);
		for (size_t i = 0; i < COUNT_OF(clients); i++)
			assert_int_equal(client_next_id(&clients[i]), version);
	}
	publish("other", 1);
	assert_int_equal(client_next_id(&other), 1); /* so nothing came before it */
	for (size_t i = 0; i < COUNT_OF(clients); i++)
		client_close(&clients[i]);
	client_close(&other);
}

static void an_older_version_is_never_sent(void **state)
{
	struct stream_client first, second;

	(void)state;
	follow(&first, "a");
	assert_int_equal(client_next_id(&first), 0);
	publish("a", 10);
	assert_int_equal(client_next_id(&first), 10);
	publish("a", 9);
	publish("a", 10);
	publish("a", 0);
	follow(&second, "a"); /* the look-up says 0, but the hub has a newer value */
	assert_int_equal(client_next_id(&second), 10);
	publish("a", 9);
	publish("a", 11);
	assert_int_equal(client_next_id(&first), 11); /* so nothing came before it */
	assert_int_equal(client_next_id(&second), 11);
	client_close(&first);
	client_close(&second);
}

/* Retracts the value of "a", as a caller does that has seen `version` as the newest. */
static void retract(int64_t version)
{
	const struct hub_key key = {slice_of("a"), version};

	hub_retract(fixture.hub, &key, slice_of("gone"));
}

static void a_value_that_is_gone_is_version_0_and_stays_gone(void **state)
{
	struct stream_client first, second, knows;
	struct client_event event;

	(void)state;
	follow(&first, "a");
	assert_int_equal(client_next_id(&first), 0);
	publish("a", 10);
	assert_int_equal(client_next_id(&first), 10);
	client_connect(&knows, stream_fixture_port(&fixture), 0);
	client_get(&knows, "/streams/a", "Last-Event-ID: 500\r\n");
	retract(10);
	client_next(&first, &event);
	assert_true(event.id == 0 && strcmp(event.data, "gone") == 0);
	assert_int_equal(client_next_id(&knows), 0);
	retract(10);
	retract(0);
	follow(&second, "a");
	assert_int_equal(client_next_id(&second), 0);
	assert_false(hub_publish(fixture.hub, slice_of("a"), 10, slice_of("from a cache")));
	publish("a", 11);
	assert_int_equal(client_next_id(&first), 11); /* so nothing came before it */
	assert_int_equal(client_next_id(&second), 11);
	assert_int_equal(client_next_id(&knows), 11);
	client_close(&first);
	client_close(&second);
	client_close(&knows);
}

static void a_value_that_came_meanwhile_is_not_retracted(void **state)
{
	struct stream_client client;

	(void)state;
	follow(&client, "a");
	assert_int_equal(client_next_id(&client), 0);
	publish("a", 1);
	assert_int_equal(client_next_id(&client), 1);
	retract(-1); /* seen before anything was published */
	publish("a", 2);
	retract(1);
	assert_int_equal(client_next_id(&client), 2);
	publish("a", 3);
	assert_int_equal(client_next_id(&client), 3);
	client_close(&client);
}

static void what_is_published_while_the_loop_is_busy_is_sent_as_one(void **state)
{
	struct stream_client client, publisher;

	(void)state;
	follow(&client, "a");
	assert_int_equal(client_next_id(&client), 0);
	client_connect(&publisher, stream_fixture_port(&fixture), 0);
	client_send(&publisher,
		/* published on the loop */
		"POST /values/a?times=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n");
	assert_int_equal(client_next_id(&client), 1000);
	publish("a", 1001);
	assert_int_equal(client_next_id(&client), 1001);
	assert_int_equal(
		stream_fixture_metric(&fixture, "quipu_http_stream_events_skipped_total"), 999);
	assert_int_equal(stream_fixture_metric(&fixture, "quipu_http_stream_events_total"), 3);
	client_close(&client);
	client_close(&publisher);
}

static int compare_keys(const void *a, const void *b)
{
	const struct hub_key *left = a, *right = b;

	return slice_compare(left->key, right->key);
}

static void the_keys_are_those_with_streams(void **state)
{
	struct stream_client clients[3];
	struct arena arena;
	struct hub_key *keys;

	(void)state;
	assert_int_equal(count_keys(), 0);
	follow(&clients[0], "a");
	follow(&clients[1], "b");
	follow(&clients[2], "b");
	arena_init(&arena, 4096);
	assert_int_equal(hub_keys(fixture.hub, &arena, &keys), 2);
	qsort(keys, 2, sizeof(*keys), compare_keys);
	assert_slice(keys[0].key, "a");
	assert_slice(keys[1].key, "b");
	arena_release(&arena);
	assert_true(hub_wants(fixture.hub, slice_of("b")));
	assert_false(hub_wants(fixture.hub, slice_of("c")));
	client_close(&clients[0]);
	wait_for_keys(1);
	client_close(&clients[1]);
	client_close(&clients[2]);
	wait_for_keys(0);
	publish("a", 1);
	publish("b", 1);
	assert_int_equal(count_keys(), 0);
}

static void many_keys_are_kept_apart(void **state)
{
	enum { KEYS = 300 };
	static struct stream_client clients[KEYS];
	char key[16];

	(void)state;
	for (size_t i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "key%zu", i);
		follow(&clients[i], key);
		assert_int_equal(client_next_id(&clients[i]), 0);
	}
	assert_int_equal(count_keys(), KEYS);
	for (size_t i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "key%zu", i);
		publish(key, (int64_t)i + 1);
	}
	for (size_t i = 0; i < KEYS; i++) {
		assert_int_equal(client_next_id(&clients[i]), i + 1);
		client_close(&clients[i]);
	}
	wait_for_keys(0);
}

/* ---- many threads ------------------------------------------------------------------------ */

enum { PUBLISHERS = 4, SHARED_KEYS = 5, CHANGES = 3000, FOLLOWERS = 3, STEADY = 10, VISITS = 60 };

static const char *const shared_keys[SHARED_KEYS] = {"k0", "k1", "k2", "k3", "k4"};

static atomic_bool publishers_stop;

static void *change_all(void *argument)
{
	size_t first = (size_t)(uintptr_t)argument;

	for (size_t i = 0; i < CHANGES && !atomic_load(&publishers_stop); i++) {
		struct timespec pause = {.tv_nsec = 100 * NS_PER_US};

		stream_fixture_change(&fixture, shared_keys[(first + i) % SHARED_KEYS], i % 50);
		if (i % 4 == 0)
			nanosleep(&pause, NULL);
	}
	return NULL;
}

/* Connects, reads a few values and leaves, in order or with a reset, again and again. */
static void *come_and_go(void *argument)
{
	size_t seed = (size_t)(uintptr_t)argument;

	for (size_t i = 0; i < VISITS; i++) {
		struct stream_client client;
		int64_t id = -1;

		follow(&client, shared_keys[(seed + i) % SHARED_KEYS]);
		for (size_t reads = (seed * 7 + i) % 4; reads > 0; reads--) {
			struct client_event event;

			if (!client_next_within(&client, &event, 50))
				break; /* the publishers may have ended */
			must(event.id > id, "a value went back");
			id = event.id;
		}
		if (i % 2)
			client_close(&client);
		else
			client_vanish(&client);
	}
	return NULL;
}

static void assert_ends_with(struct stream_client *client, int64_t last)
{
	int64_t id = -1;

	while (id < last) {
		int64_t next = client_next_id(client);

		assert_true(next > id);
		id = next;
	}
	assert_int_equal(id, last);
}

static void the_last_value_reaches_every_stream_whatever_else_happens(void **state)
{
	static struct stream_client steady[STEADY];
	pthread_t publishers[PUBLISHERS], followers[FOLLOWERS];
	size_t i;

	(void)state;
	atomic_store(&publishers_stop, false);
	for (i = 0; i < STEADY; i++)
		follow(&steady[i], shared_keys[i % SHARED_KEYS]);
	for (i = 0; i < PUBLISHERS; i++)
		assert_int_equal(
			pthread_create(&publishers[i], NULL, change_all, (void *)(uintptr_t)i), 0);
	for (i = 0; i < FOLLOWERS; i++)
		assert_int_equal(
			pthread_create(&followers[i], NULL, come_and_go, (void *)(uintptr_t)i), 0);
	for (i = 0; i < PUBLISHERS; i++)
		pthread_join(publishers[i], NULL);
	for (i = 0; i < STEADY; i++)
		assert_ends_with(&steady[i], PUBLISHERS * CHANGES / SHARED_KEYS);
	for (i = 0; i < FOLLOWERS; i++)
		pthread_join(followers[i], NULL);
	for (i = 0; i < STEADY; i++)
		client_close(&steady[i]);
	wait_for_keys(0);
	print_message("%lld values sent, %lld skipped\n",
		(long long)stream_fixture_metric(&fixture, "quipu_http_stream_events_total"),
		(long long)stream_fixture_metric(
			&fixture, "quipu_http_stream_events_skipped_total"));
}

static void publishers_may_outlive_the_server(void **state)
{
	pthread_t publishers[PUBLISHERS];
	struct stream_client clients[20];

	(void)state;
	for (int round = 0; round < 10; round++) {
		stream_fixture_start_by_hand(&fixture, 3);
		atomic_store(&publishers_stop, false);
		for (size_t i = 0; i < COUNT_OF(clients); i++)
			follow(&clients[i], shared_keys[i % SHARED_KEYS]);
		for (size_t i = 0; i < PUBLISHERS; i++)
			assert_int_equal(pthread_create(&publishers[i], NULL, change_all,
						 (void *)(uintptr_t)i),
				0);
		assert_true(client_next_id(&clients[0]) >= 0);
		if (round % 2)
			assert_true(stream_fixture_drain(&fixture, HANG_MS));
		stream_fixture_end(&fixture);
		atomic_store(&publishers_stop, true);
		for (size_t i = 0; i < PUBLISHERS; i++)
			pthread_join(publishers[i], NULL);
		for (size_t i = 0; i < COUNT_OF(clients); i++)
			client_close(&clients[i]);
		stream_fixture_stop(&fixture);
	}
}

#define with_server(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_server(every_stream_of_a_key_gets_its_values_on_every_loop),
		with_server(an_older_version_is_never_sent),
		with_server(a_value_that_is_gone_is_version_0_and_stays_gone),
		with_server(a_value_that_came_meanwhile_is_not_retracted),
		cmocka_unit_test_setup_teardown(
			what_is_published_while_the_loop_is_busy_is_sent_as_one, start_one, stop),
		with_server(the_keys_are_those_with_streams),
		with_server(many_keys_are_kept_apart),
		with_server(the_last_value_reaches_every_stream_whatever_else_happens),
		cmocka_unit_test(publishers_may_outlive_the_server),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
