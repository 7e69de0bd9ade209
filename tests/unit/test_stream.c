/* Event streams on a real server: what is sent, and in which order. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

#include "stream_fixture.h"
#include "stream_life.h"

static struct stream_fixture fixture;

static int start(void **state)
{
	(void)state;
	stream_fixture_start_by_hand(&fixture, 2);
	return 0;
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
	stream_fixture_follow(&fixture, client, target);
}

/* Checks that nothing was sent since the last event: changes the value now, and expects that change
 * next. */
static void assert_quiet(struct stream_client *client, const char *key)
{
	int64_t version = stream_fixture_change(&fixture, key, 0);

	assert_int_equal(client_next_id(client), version);
}

/* Checks that `key` still has `version`. All clients are gone, so nobody will change it. */
static void assert_unchanged(const char *key, int64_t version)
{
	stream_fixture_wait_metric(&fixture, "quipu_http_connections", 0);
	stream_fixture_wait_metric(&fixture, "quipu_http_requests_in_flight", 0);
	assert_int_equal(stream_fixture_change(&fixture, key, 0), version + 1);
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
	client_next(&client, &event);
	assert_int_equal(event.id, 1);
	assert_string_equal(event.data, "{\"key\":\"a\",\"version\":1,\"pad\":\"\"}");
	assert_true(client.retry_ms >= 1000 && client.retry_ms < 3000);
	for (int64_t version = 2; version < 50; version++) {
		stream_fixture_change(&fixture, "a", 0);
		assert_int_equal(client_next_id(&client), version);
	}
	stream_fixture_change(&fixture, "b", 0);
	assert_quiet(&client, "a");
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
	assert_quiet(&client, "a");
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
	assert_quiet(&client, "a");
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
	client_next(&client, &event);
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
	client_wait_end(&client);
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
	assert_int_equal(client_next_id(&client), 1);
	client_close(&client);
	assert_unchanged("a", 1); /* the POST behind it did not run */
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
	client_close(&client);
	assert_unchanged("a", 3);
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
	client_wait_end(&client);
	stream_fixture_wait_metric(&fixture, "quipu_http_connections", 0);
	client_close(&client);
}

#define with_server(test) cmocka_unit_test_setup_teardown(test, start, stop)

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
	};
	int failed = cmocka_run_group_tests_name("streams", tests, NULL, NULL);

	return failed + run_stream_life_tests();
}
