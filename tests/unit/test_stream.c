/* Event streams on a real server: what is sent, in which order, and how a stream ends. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "stream_client.h"
#include "stream_fixture.h"

#define PATIENCE_NS (10 * NS_PER_S)
#define QUIET_MS 200 /* how long nothing may come where nothing is to come */

static struct stream_fixture fixture;

static int start_with(int64_t heartbeat_ms, int64_t stall_ms)
{
	stream_fixture_start(&fixture, 2, heartbeat_ms, stall_ms);
	return 0;
}

static int start(void **state)
{
	(void)state;
	return start_with(60000, 60000);
}

static int start_nervous(void **state)
{
	(void)state;
	return start_with(300, 600);
}

static int stop(void **state)
{
	(void)state;
	stream_fixture_stop(&fixture);
	return 0;
}

static void connect_to_fixture(struct stream_client *client)
{
	client_connect(client, stream_fixture_port(&fixture), 0);
}

static void follow(struct stream_client *client, const char *target)
{
	connect_to_fixture(client);
	client_get(client, target, "");
	assert_contains(slice_of(client->head), "HTTP/1.1 200 OK\r\n");
}

static void wait_for_metric(const char *name, int64_t value)
{
	int64_t until_ns = clock_steady_ns(&clock_system) + PATIENCE_NS;
	struct timespec pause = {.tv_nsec = 5 * NS_PER_MS};

	while (stream_fixture_metric(&fixture, name) != value) {
		if (clock_steady_ns(&clock_system) > until_ns)
			fail_msg("%s is %lld, not %lld", name,
				(long long)stream_fixture_metric(&fixture, name), (long long)value);
		nanosleep(&pause, NULL);
	}
}

static void assert_quiet(struct stream_client *client)
{
	struct client_event event;

	assert_false(client_next(client, &event, QUIET_MS));
	assert_false(client->ended);
}

/* ---- events ------------------------------------------------------------------------------ */

static void assert_event(int64_t id, const char *data, const char *expected)
{
	struct stream_event *event = stream_event_new(id, slice_of(data));

	assert_slice(slice_make(event->bytes, event->len), expected);
	stream_event_drop(event);
}

static void an_event_is_its_id_and_its_lines(void **state)
{
	(void)state;
	assert_event(7, "{\"count\":3}", "id: 7\ndata: {\"count\":3}\n\n");
	assert_event(0, "", "id: 0\ndata: \n\n");
	assert_event(INT64_MAX, "a\nb", "id: 9223372036854775807\ndata: a\ndata: b\n\n");
	assert_event(1, "a\r\nb\rc\n\n", "id: 1\ndata: a\ndata: b\ndata: c\ndata: \ndata: \n\n");
	assert_event(1, "\r", "id: 1\ndata: \ndata: \n\n");
}

static void an_event_lives_until_it_is_dropped_by_all(void **state)
{
	struct stream_event *event = stream_event_new(1, (struct slice){0});

	(void)state;
	stream_event_hold(event);
	stream_event_drop(event);
	assert_slice(slice_make(event->bytes, event->len), "id: 1\ndata: \n\n");
	stream_event_drop(event);
	stream_event_drop(NULL);
}

/* ---- what is sent ------------------------------------------------------------------------ */

static void the_head_says_that_it_goes_on(void **state)
{
	struct stream_client client;
	struct slice head;

	(void)state;
	follow(&client, "/streams/a");
	head = slice_of(client.head);
	assert_contains(head, "Content-Type: text/event-stream\r\n");
	assert_contains(head, "Cache-Control: no-store\r\n");
	assert_contains(head, "X-Accel-Buffering: no\r\n");
	assert_contains(head, "X-Request-Id: ");
	assert_contains(head, "Connection: close\r\n");
	assert_false(has_text(head, "Content-Length"));
	assert_false(has_text(head, "Transfer-Encoding"));
	client_close(&client);
}

static void the_current_value_comes_at_once_and_then_every_change(void **state)
{
	struct stream_client client;
	struct client_event event;

	(void)state;
	stream_fixture_change(&fixture, "a", 0);
	follow(&client, "/streams/a");
	assert_true(client_next(&client, &event, 5000));
	assert_int_equal(event.id, 1);
	assert_string_equal(event.data, "{\"key\":\"a\",\"version\":1,\"pad\":\"\"}");
	assert_true(client.retry_ms >= 1000 && client.retry_ms < 3000);
	for (int64_t version = 2; version < 50; version++) {
		stream_fixture_change(&fixture, "a", 0);
		assert_int_equal(client_next_id(&client), version);
	}
	stream_fixture_change(&fixture, "b", 0);
	assert_quiet(&client);
	client_close(&client);
}

static void a_change_during_the_first_look_up_is_not_missed(void **state)
{
	struct stream_client client;

	(void)state;
	connect_to_fixture(&client);
	stream_fixture_hold_reads(&fixture);
	client_send(&client, "GET /streams/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
	stream_fixture_wait_read(&fixture, 1);
	stream_fixture_change(&fixture, "a", 0);
	stream_fixture_change(&fixture, "a", 0);
	stream_fixture_release_reads(&fixture);
	client_read_head(&client);
	assert_int_equal(client_next_id(&client), 2);
	assert_quiet(&client);
	client_close(&client);
}

static void what_the_client_has_is_not_sent_again(void **state)
{
	struct stream_client client;

	(void)state;
	for (int i = 0; i < 5; i++)
		stream_fixture_change(&fixture, "a", 0);
	connect_to_fixture(&client);
	client_get(&client, "/streams/a", "Last-Event-ID: 5\r\n");
	assert_quiet(&client);
	assert_true(client.retry_ms >= 0); /* so it has begun */
	stream_fixture_change(&fixture, "a", 0);
	assert_int_equal(client_next_id(&client), 6);
	client_close(&client);

	connect_to_fixture(&client);
	client_get(&client, "/streams/a", "Last-Event-ID: 3\r\n");
	assert_int_equal(client_next_id(&client), 6);
	client_close(&client);
}

static void a_last_event_id_that_is_none_of_ours_says_nothing(void **state)
{
	const char *const lines[] = {
		"Last-Event-ID: \r\n",
		"Last-Event-ID: -1\r\n",
		"Last-Event-ID: abc\r\n",
		"Last-Event-ID: 99999999999999999999\r\n",
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(lines); i++) {
		struct stream_client client;

		connect_to_fixture(&client);
		client_get(&client, "/streams/a", lines[i]);
		assert_int_equal(client_next_id(&client), 0);
		client_close(&client);
	}
}

static void a_value_of_several_lines_arrives_whole(void **state)
{
	struct stream_client client;
	struct client_event event;

	(void)state;
	follow(&client, "/owned");
	assert_true(client_next(&client, &event, 5000));
	assert_string_equal(event.data, "two\nlines");
	client_close(&client);
}

static void a_client_of_http_1_0_is_served(void **state)
{
	struct stream_client client;

	(void)state;
	connect_to_fixture(&client);
	client_send(&client, "GET /streams/a HTTP/1.0\r\n\r\n");
	client_read_head(&client);
	assert_int_equal(client_next_id(&client), 0);
	stream_fixture_change(&fixture, "a", 0);
	assert_int_equal(client_next_id(&client), 1);
	client_close(&client);
}

static void head_gets_the_head_and_the_connection_goes_on(void **state)
{
	struct stream_client client;
	struct slice head;

	(void)state;
	connect_to_fixture(&client);
	for (int i = 0; i < 2; i++) {
		client_send(&client, "HEAD /streams/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
		client_read_head(&client);
		head = slice_of(client.head);
		assert_contains(head, "HTTP/1.1 200 OK\r\n");
		assert_contains(head, "Content-Type: text/event-stream\r\n");
		assert_false(has_text(head, "Content-Length"));
	}
	client_get(&client, "/keys", "");
	assert_string_equal(client_read(&client, 1), "0");
	assert_int_equal(stream_fixture_metric(&fixture, "quipu_http_streams"), 0);
	client_close(&client);
}

static void a_stream_can_still_be_refused(void **state)
{
	struct stream_client client;

	(void)state;
	stream_fixture_fail_reads(&fixture);
	connect_to_fixture(&client);
	client_get(&client, "/streams/a", "");
	assert_contains(slice_of(client.head), "HTTP/1.1 503 ");
	assert_contains(slice_of(client.head), "Content-Length: ");
	assert_contains(slice_of(client.head), "Content-Type: application/problem+json\r\n");
	assert_true(client_wait_end(&client, 5000));
	assert_false(hub_wants(fixture.hub, slice_of("a")));
	client_close(&client);
}

static void admission_applies(void **state)
{
	struct stream_client client;

	(void)state;
	connect_to_fixture(&client);
	client_send(&client, "GET /streams/a HTTP/1.1\r\nHost: evil.example\r\n\r\n");
	client_read_head(&client);
	assert_contains(slice_of(client.head), "HTTP/1.1 403 ");
	client_close(&client);
}

/* ---- order on the connection ------------------------------------------------------------- */

static void what_was_asked_before_is_answered_before(void **state)
{
	struct stream_client client;

	(void)state;
	connect_to_fixture(&client);
	stream_fixture_hold_reads(&fixture);
	client_send(&client, "GET /values/a HTTP/1.1\r\nHost: localhost\r\n\r\n"
			     "GET /streams/a HTTP/1.1\r\nHost: localhost\r\n\r\n"
			     "POST /values/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
	stream_fixture_wait_read(&fixture, 1);
	stream_fixture_change(&fixture, "a", 0);
	stream_fixture_release_reads(&fixture);
	client_read_head(&client);
	assert_contains(slice_of(client.head), "Content-Type: application/json\r\n");
	client_read(&client, strlen("{\"key\":\"a\",\"version\":0,\"pad\":\"\"}"));
	client_read_head(&client);
	assert_contains(slice_of(client.head), "Content-Type: text/event-stream\r\n");
	assert_int_equal(client_next_id(&client), 1); /* and nobody ran the POST behind it */
	assert_quiet(&client);
	client_close(&client);
}

static void a_stream_behind_a_change_waits_for_it(void **state)
{
	struct stream_client client;

	(void)state;
	connect_to_fixture(&client);
	client_send(&client, "POST /values/a?times=3 HTTP/1.1\r\nHost: localhost\r\n\r\n"
			     "GET /streams/a HTTP/1.1\r\nHost: localhost\r\n\r\n"
			     "POST /values/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
	client_read_head(&client);
	assert_string_equal(client_read(&client, 1), "3");
	client_read_head(&client);
	assert_int_equal(client_next_id(&client), 3);
	assert_quiet(&client);
	client_close(&client);
}

static void what_the_client_goes_on_sending_is_ignored_up_to_a_bound(void **state)
{
	struct stream_client client;
	char noise[1025];

	(void)state;
	memset(noise, 'x', sizeof(noise) - 1);
	noise[sizeof(noise) - 1] = '\0';
	follow(&client, "/streams/a");
	assert_int_equal(client_next_id(&client), 0);
	for (int i = 0; i < 64; i++)
		client_send(&client, noise);
	stream_fixture_change(&fixture, "a", 0);
	assert_int_equal(client_next_id(&client), 1);
	client_send(&client, "x");
	assert_true(client_wait_end(&client, 5000));
	wait_for_metric("quipu_http_connections", 0);
	client_close(&client);
}

/* ---- slow readers ------------------------------------------------------------------------ */

/* Changes the value until the client's socket and ours are full and values are skipped. */
static int64_t overfill(const char *key, size_t pad)
{
	int64_t skipped = stream_fixture_metric(&fixture, "quipu_http_stream_events_skipped_total");
	int64_t sent = -1, version = 0;
	int unsent = 0; /* changes since the last that was sent */

	while (unsent < 100) {
		struct timespec pause = {.tv_nsec = NS_PER_MS};
		int64_t now = stream_fixture_metric(&fixture, "quipu_http_stream_events_total");

		unsent = now == sent ? unsent + 1 : 0;
		sent = now;
		version = stream_fixture_change(&fixture, key, pad);
		nanosleep(&pause, NULL);
	}
	assert_true(stream_fixture_metric(&fixture, "quipu_http_stream_events_skipped_total") >
		    skipped);
	return version;
}

static void a_slow_reader_skips_values_and_gets_the_newest(void **state)
{
	struct stream_client client;
	int64_t last, id = 0, received = 0;

	(void)state;
	client_connect(&client, stream_fixture_port(&fixture), 4096);
	client_get(&client, "/streams/a", "");
	last = overfill("a", 1000);
	while (id < last) {
		int64_t next = client_next_id(&client);

		assert_true(next > id || received == 0);
		id = next;
		received++;
	}
	assert_int_equal(id, last);
	assert_true(received < last);
	print_message("a reader that slept was sent %lld of %lld values\n", (long long)received,
		(long long)last);
	assert_quiet(&client);
	stream_fixture_change(&fixture, "a", 0);
	assert_int_equal(client_next_id(&client), last + 1);
	client_close(&client);
}

static void a_reader_that_stops_is_given_up_and_others_are_not(void **state)
{
	struct stream_client asleep, awake;
	int64_t last;

	(void)state;
	client_connect(&asleep, stream_fixture_port(&fixture), 4096);
	client_get(&asleep, "/streams/a", "");
	follow(&awake, "/streams/b");
	last = overfill("a", 1000);
	assert_true(last > 0);
	wait_for_metric("quipu_http_streams", 1);
	stream_fixture_change(&fixture, "b", 0);
	assert_int_equal(client_next_id(&awake), 0);
	assert_int_equal(client_next_id(&awake), 1);
	assert_true(client_wait_end(&asleep, 5000));
	client_close(&asleep);
	client_close(&awake);
}

/* ---- life and death ---------------------------------------------------------------------- */

static void a_quiet_stream_shows_that_it_is_alive(void **state)
{
	struct stream_client client;
	struct client_event event;

	(void)state;
	follow(&client, "/streams/a");
	assert_int_equal(client_next_id(&client), 0);
	/* Longer than idle-timeout and deadline, and than a stall if heartbeats counted as one. */
	assert_false(client_next(&client, &event, 1500));
	assert_false(client.ended);
	assert_true(client.heartbeats >= 2 && client.heartbeats <= 5);
	client_close(&client);
}

static void a_stream_with_news_needs_no_heartbeat(void **state)
{
	struct stream_client client;
	struct timespec pause = {.tv_nsec = 50 * NS_PER_MS};

	(void)state;
	follow(&client, "/streams/a");
	assert_int_equal(client_next_id(&client), 0);
	for (int i = 0; i < 20; i++) {
		stream_fixture_change(&fixture, "a", 0);
		client_next_id(&client);
		nanosleep(&pause, NULL);
	}
	assert_int_equal(client.heartbeats, 0);
	client_close(&client);
}

static void a_client_that_leaves_is_forgotten(void **state)
{
	struct stream_client client;

	(void)state;
	follow(&client, "/streams/a");
	assert_int_equal(client_next_id(&client), 0);
	assert_true(hub_wants(fixture.hub, slice_of("a")));
	client_close(&client);
	wait_for_metric("quipu_http_connections", 0);
	assert_false(hub_wants(fixture.hub, slice_of("a")));
	assert_int_equal(stream_fixture_metric(&fixture, "quipu_http_streams"), 0);

	follow(&client, "/streams/a");
	client_vanish(&client);
	wait_for_metric("quipu_http_connections", 0);
	assert_false(hub_wants(fixture.hub, slice_of("a")));
	stream_fixture_change(&fixture, "a", 0);
}

static void a_client_that_leaves_during_the_first_look_up_is_forgotten(void **state)
{
	struct stream_client client;

	(void)state;
	connect_to_fixture(&client);
	stream_fixture_hold_reads(&fixture);
	client_send(&client, "GET /streams/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
	stream_fixture_wait_read(&fixture, 1);
	client_vanish(&client);
	stream_fixture_release_reads(&fixture);
	wait_for_metric("quipu_http_connections", 0);
	wait_for_metric("quipu_http_requests_in_flight", 0);
	assert_false(hub_wants(fixture.hub, slice_of("a")));
}

static void a_client_that_closes_its_side_gets_the_value_and_the_end(void **state)
{
	struct stream_client client;
	struct client_event event;

	(void)state;
	connect_to_fixture(&client);
	client_send(&client, "GET /streams/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
	shutdown(client.fd, SHUT_WR);
	client_read_head(&client);
	assert_true(client_next(&client, &event, 5000));
	assert_true(client_wait_end(&client, 5000));
	wait_for_metric("quipu_http_connections", 0);
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
	wait_for_metric("quipu_http_connections", 0);
	assert_int_equal(atomic_load(&fixture.owners_told), 1);
}

static void a_service_can_end_a_stream(void **state)
{
	struct stream_client client;
	struct client_event event;

	(void)state;
	follow(&client, "/owned?close");
	assert_false(client_next(&client, &event, 5000));
	assert_true(client.ended);
	assert_true(client.retry_ms >= 0);
	assert_int_equal(atomic_load(&fixture.owners_told), 1);
	client_close(&client);
	wait_for_metric("quipu_http_connections", 0);
	assert_int_equal(atomic_load(&fixture.owners_told), 1);
}

static void a_drain_ends_streams_at_once_with_their_newest_value(void **state)
{
	struct stream_client clients[20], asleep;
	int64_t start_ns, last;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(clients); i++) {
		follow(&clients[i], "/streams/a");
		assert_int_equal(client_next_id(&clients[i]), 0);
	}
	client_connect(&asleep, stream_fixture_port(&fixture), 4096);
	client_get(&asleep, "/streams/b", "");
	overfill("b", 1000);
	last = stream_fixture_change(&fixture, "a", 0);
	start_ns = clock_steady_ns(&clock_system);
	assert_true(stream_fixture_drain(&fixture, 10000));
	assert_true(clock_steady_ns(&clock_system) - start_ns < NS_PER_S);
	for (size_t i = 0; i < COUNT_OF(clients); i++) {
		assert_int_equal(client_next_id(&clients[i]), last);
		assert_true(client_wait_end(&clients[i], 5000));
		client_close(&clients[i]);
	}
	assert_true(client_wait_end(&asleep, 5000));
	client_close(&asleep);
	assert_false(hub_wants(fixture.hub, slice_of("a")));
}

static void a_stream_that_begins_in_a_drain_gives_its_value_and_ends(void **state)
{
	struct stream_client client;

	(void)state;
	connect_to_fixture(&client);
	stream_fixture_hold_reads(&fixture);
	client_send(&client, "GET /streams/a HTTP/1.1\r\nHost: localhost\r\n\r\n");
	stream_fixture_wait_read(&fixture, 1);
	assert_false(stream_fixture_drain(&fixture, 50));
	stream_fixture_change(&fixture, "a", 0);
	stream_fixture_release_reads(&fixture);
	client_read_head(&client);
	assert_int_equal(client_next_id(&client), 1);
	assert_true(client_wait_end(&client, 5000));
	client_close(&client);
	assert_true(stream_fixture_drain(&fixture, 10000));
}

#define with_server(test) cmocka_unit_test_setup_teardown(test, start, stop)
#define with_nervous_server(test) cmocka_unit_test_setup_teardown(test, start_nervous, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_event_is_its_id_and_its_lines),
		cmocka_unit_test(an_event_lives_until_it_is_dropped_by_all),
		with_server(the_head_says_that_it_goes_on),
		with_server(the_current_value_comes_at_once_and_then_every_change),
		with_server(a_change_during_the_first_look_up_is_not_missed),
		with_server(what_the_client_has_is_not_sent_again),
		with_server(a_last_event_id_that_is_none_of_ours_says_nothing),
		with_server(a_value_of_several_lines_arrives_whole),
		with_server(a_client_of_http_1_0_is_served),
		with_server(head_gets_the_head_and_the_connection_goes_on),
		with_server(a_stream_can_still_be_refused),
		with_server(admission_applies),
		with_server(what_was_asked_before_is_answered_before),
		with_server(a_stream_behind_a_change_waits_for_it),
		with_server(what_the_client_goes_on_sending_is_ignored_up_to_a_bound),
		with_server(a_slow_reader_skips_values_and_gets_the_newest),
		with_nervous_server(a_reader_that_stops_is_given_up_and_others_are_not),
		with_nervous_server(a_quiet_stream_shows_that_it_is_alive),
		with_nervous_server(a_stream_with_news_needs_no_heartbeat),
		with_server(a_client_that_leaves_is_forgotten),
		with_server(a_client_that_leaves_during_the_first_look_up_is_forgotten),
		with_server(a_client_that_closes_its_side_gets_the_value_and_the_end),
		with_server(the_owner_is_told_once),
		with_server(a_service_can_end_a_stream),
		with_server(a_drain_ends_streams_at_once_with_their_newest_value),
		with_server(a_stream_that_begins_in_a_drain_gives_its_value_and_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
