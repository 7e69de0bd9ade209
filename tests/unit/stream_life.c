/* Event streams on a real server: slow readers, and how streams end. */
#include "stream_life.h"

#include "check.h"

#include <stdio.h>
#include <sys/socket.h>

#include "stream_fixture.h"
#include "waiting.h"

static struct stream_fixture fixture;

static int start(void **state)
{
	(void)state;
	stream_fixture_start_by_hand(&fixture, 2);
	return 0;
}

/* Puts all streams on the same loop, so that what the loop does for one is ordered with the
 * others. */
static int start_one_loop(void **state)
{
	(void)state;
	stream_fixture_start_by_hand(&fixture, 1);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	stream_fixture_stop(&fixture);
	return 0;
}

static void follow(struct stream_client *client, const char *target)
{
	stream_fixture_follow(&fixture, client, target);
}

/* Starts a stream whose client will read only a few values. */
static void follow_asleep(struct stream_client *client, const char *target)
{
	client_connect(client, stream_fixture_port(&fixture), 4096);
	client_get(client, target, "");
}

static void pass(int64_t ns)
{
	manual_clock_pass(&fixture.clock, ns);
}

/* ---- slow readers ------------------------------------------------------------------------ */

static int64_t count_sent(void)
{
	return stream_fixture_metric(&fixture, "quipu_http_stream_events_total");
}

static int64_t count_skipped(void)
{
	return stream_fixture_metric(&fixture, "quipu_http_stream_events_skipped_total");
}

/* Changes `key`, and returns when its loop has offered the value to its streams. */
static int64_t change_and_see(const char *key, struct stream_client *awake)
{
	int64_t version = stream_fixture_change(&fixture, key, 1000);
	int64_t tick = stream_fixture_change(&fixture, "tick", 0);

	while (client_next_id(awake) < tick)
		;
	return version;
}

/*
 * Changes the value until the client's socket and ours are full and values are skipped. The stream
 * "tick" of `awake` is on the same loop. Values that are offered in one round are written before
 * the next round, so if the loop sends only two ticks in two rounds, it can send nothing else.
 */
static int64_t overfill(const char *key, struct stream_client *awake)
{
	int64_t version = 0, sent;

	do {
		change_and_see(key, awake);
		sent = count_sent();
		change_and_see(key, awake);
		change_and_see(key, awake);
	} while (count_sent() > sent + 2);
	for (int i = 0; i < 20; i++)
		version = change_and_see(key, awake);
	assert_true(count_skipped() >= 20);
	return version;
}

static void a_slow_reader_skips_values_and_gets_the_newest(void **state)
{
	struct stream_client client, awake;
	int64_t last, id = 0, received = 0;

	(void)state;
	follow_asleep(&client, "/streams/a");
	follow(&awake, "/streams/tick");
	last = overfill("a", &awake);
	while (id < last) {
		int64_t next = client_next_id(&client);

		assert_true(next > id || received == 0);
		id = next;
		received++;
	}
	assert_int_equal(id, last);
	/* plus one, because the first id is 0 */
	assert_int_equal(received + count_skipped(), last + 1);
	print_message("a reader that slept was sent %lld of %lld values\n", (long long)received,
		(long long)last);
	stream_fixture_change(&fixture, "a", 0);
	assert_int_equal(client_next_id(&client), last + 1);
	client_close(&client);
	client_close(&awake);
}

static void a_reader_that_stops_is_given_up_and_others_are_not(void **state)
{
	struct stream_client asleep, awake;
	int64_t tick;

	(void)state;
	follow_asleep(&asleep, "/streams/a");
	follow(&awake, "/streams/tick");
	overfill("a", &awake);
	pass(FIXTURE_STALL_NS);
	/* so the sweep has visited all streams, and no client is late yet */
	client_wait_heartbeat(&awake);
	assert_int_equal(stream_fixture_metric(&fixture, "quipu_http_streams"), 2);
	pass(1);
	stream_fixture_wait_metric(&fixture, "quipu_http_streams", 1);
	tick = stream_fixture_change(&fixture, "tick", 0);
	assert_int_equal(client_next_id(&awake), tick);
	client_wait_end(&asleep);
	client_close(&asleep);
	client_close(&awake);
}

/* ---- life and death ---------------------------------------------------------------------- */

/* Everything else that could end a connection, except for a stall, is shorter than a heartbeat. */
static void a_quiet_stream_shows_that_it_is_alive(void **state)
{
	struct stream_client client;

	(void)state;
	follow(&client, "/streams/a");
	assert_int_equal(client_next_id(&client), 0);
	for (int64_t passed = 0; passed <= FIXTURE_STALL_NS; passed += FIXTURE_HEARTBEAT_NS) {
		pass(FIXTURE_HEARTBEAT_NS);
		client_wait_heartbeat(&client);
	}
	stream_fixture_change(&fixture, "a", 0);
	assert_int_equal(client_next_id(&client), 1);
	assert_int_equal(client.heartbeats, 3);
	client_close(&client);
}

/* The heartbeat of the other stream shows that the server has checked both. */
static void a_stream_with_news_needs_no_heartbeat(void **state)
{
	struct stream_client client, quiet;

	(void)state;
	follow(&client, "/streams/a");
	follow(&quiet, "/streams/b");
	assert_int_equal(client_next_id(&client), 0);
	assert_int_equal(client_next_id(&quiet), 0);
	pass(FIXTURE_HEARTBEAT_NS / 2);
	stream_fixture_change(&fixture, "a", 0);
	assert_int_equal(client_next_id(&client), 1);
	pass(FIXTURE_HEARTBEAT_NS / 2);
	client_wait_heartbeat(&quiet);
	stream_fixture_change(&fixture, "a", 0);
	assert_int_equal(client_next_id(&client), 2);
	assert_int_equal(client.heartbeats, 0);
	client_close(&client);
	client_close(&quiet);
}

static void a_client_that_leaves_is_forgotten(void **state)
{
	struct stream_client client;

	(void)state;
	follow(&client, "/streams/a");
	assert_int_equal(client_next_id(&client), 0);
	assert_true(hub_wants(fixture.hub, slice_of("a")));
	client_close(&client);
	stream_fixture_wait_metric(&fixture, "quipu_http_connections", 0);
	assert_false(hub_wants(fixture.hub, slice_of("a")));
	assert_int_equal(stream_fixture_metric(&fixture, "quipu_http_streams"), 0);

	follow(&client, "/streams/a");
	client_vanish(&client);
	stream_fixture_wait_metric(&fixture, "quipu_http_connections", 0);
	assert_false(hub_wants(fixture.hub, slice_of("a")));
	stream_fixture_change(&fixture, "a", 0);
}

static void a_client_that_leaves_during_the_first_look_up_is_forgotten(void **state)
{
	struct stream_client client;

	(void)state;
	client_connect(&client, stream_fixture_port(&fixture), 0);
	stream_fixture_hold_reads(&fixture);
	client_send(&client, "GET /streams/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
	stream_fixture_wait_read(&fixture, 1);
	client_vanish(&client);
	stream_fixture_release_reads(&fixture);
	stream_fixture_wait_metric(&fixture, "quipu_http_connections", 0);
	stream_fixture_wait_metric(&fixture, "quipu_http_requests_in_flight", 0);
	assert_false(hub_wants(fixture.hub, slice_of("a")));
}

static void a_client_that_closes_its_side_gets_the_value_and_the_end(void **state)
{
	struct stream_client client;
	struct client_event event;

	(void)state;
	client_connect(&client, stream_fixture_port(&fixture), 0);
	client_send(&client, "GET /streams/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
	shutdown(client.fd, SHUT_WR);
	client_read_head(&client);
	client_next(&client, &event);
	client_wait_end(&client);
	stream_fixture_wait_metric(&fixture, "quipu_http_connections", 0);
	client_close(&client);
}

static void the_owner_is_told_once(void **state)
{
	struct stream_client client;

	(void)state;
	follow(&client, "/owned");
	assert_int_equal(client_next_id(&client), 1);
	assert_int_equal(atomic_load(&fixture.owners_told), 0);
	client_close(&client);
	stream_fixture_wait_metric(&fixture, "quipu_http_connections", 0);
	assert_int_equal(atomic_load(&fixture.owners_told), 1);
}

static void a_service_can_end_a_stream(void **state)
{
	struct stream_client client;
	struct client_event event;

	(void)state;
	follow(&client, "/owned?close");
	assert_false(client_next_within(&client, &event, HANG_MS));
	assert_true(client.ended);
	assert_true(client.retry_ms >= 0);
	assert_int_equal(atomic_load(&fixture.owners_told), 1);
	client_close(&client);
	stream_fixture_wait_metric(&fixture, "quipu_http_connections", 0);
	assert_int_equal(atomic_load(&fixture.owners_told), 1);
}

/* ---- drains ------------------------------------------------------------------------------ */

/* The server's clock stands still, so no timeout can help. */
static void a_drain_ends_streams_with_their_newest_value(void **state)
{
	struct stream_client clients[20];
	int64_t last;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(clients); i++) {
		follow(&clients[i], "/streams/a");
		assert_int_equal(client_next_id(&clients[i]), 0);
	}
	last = stream_fixture_change(&fixture, "a", 0);
	assert_true(stream_fixture_drain(&fixture, HANG_MS));
	for (size_t i = 0; i < COUNT_OF(clients); i++) {
		assert_int_equal(client_next_id(&clients[i]), last);
		client_wait_end(&clients[i]);
		client_close(&clients[i]);
	}
	assert_false(hub_wants(fixture.hub, slice_of("a")));
}

static void a_drain_does_not_wait_for_a_reader_that_stopped(void **state)
{
	struct stream_client asleep, awake;

	(void)state;
	follow_asleep(&asleep, "/streams/a");
	follow(&awake, "/streams/tick");
	overfill("a", &awake);
	assert_true(stream_fixture_drain(&fixture, HANG_MS));
	client_wait_end(&asleep);
	client_wait_end(&awake);
	client_close(&asleep);
	client_close(&awake);
}

static void a_stream_that_begins_in_a_drain_gives_its_value_and_ends(void **state)
{
	struct stream_client client;

	(void)state;
	client_connect(&client, stream_fixture_port(&fixture), 0);
	stream_fixture_hold_reads(&fixture);
	client_send(&client, "GET /streams/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
	stream_fixture_wait_read(&fixture, 1);
	assert_false(stream_fixture_drain(&fixture, 50));
	stream_fixture_change(&fixture, "a", 0);
	stream_fixture_release_reads(&fixture);
	client_read_head(&client);
	assert_int_equal(client_next_id(&client), 1);
	client_wait_end(&client);
	client_close(&client);
	assert_true(stream_fixture_drain(&fixture, HANG_MS));
}

#define with_server(test) cmocka_unit_test_setup_teardown(test, start, stop)
#define with_one_loop(test) cmocka_unit_test_setup_teardown(test, start_one_loop, stop)

int run_stream_life_tests(void)
{
	const struct CMUnitTest tests[] = {
		with_one_loop(a_slow_reader_skips_values_and_gets_the_newest),
		with_one_loop(a_reader_that_stops_is_given_up_and_others_are_not),
		with_server(a_quiet_stream_shows_that_it_is_alive),
		with_one_loop(a_stream_with_news_needs_no_heartbeat),
		with_server(a_client_that_leaves_is_forgotten),
		with_server(a_client_that_leaves_during_the_first_look_up_is_forgotten),
		with_server(a_client_that_closes_its_side_gets_the_value_and_the_end),
		with_server(the_owner_is_told_once),
		with_server(a_service_can_end_a_stream),
		with_server(a_drain_ends_streams_with_their_newest_value),
		with_one_loop(a_drain_does_not_wait_for_a_reader_that_stopped),
		with_server(a_stream_that_begins_in_a_drain_gives_its_value_and_ends),
	};

	return cmocka_run_group_tests_name("life of streams", tests, NULL, NULL);
}
