/*
 * A NATS server that stops, crashes, hangs, forgets and refuses, as publishing sees it; and URLs.
 * Streams are in nats_stream_faults.c; what consuming sees is in nats_delivery_faults.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "adapters/bus/nats/nats_bus.h"
#include "base/arena.h"
#include "base/log.h"
#include "captured_log.h"
#include "nats_faults.h"
#include "nats_fixture.h"
#include "waiting.h"

#define SKIPPED 77

/* ---- a server that is away --------------------------------------------------------------- */

void nats_faults_refuse_at_once(struct bus_fixture *fixture)
{
	struct bus_message *messages = bus_fixture_make(fixture, 10);

	messages[0].fate = BUS_CONFIRMED;
	assert_int_equal(
		bus_fixture_publish(fixture, messages, 10, NEVER_MS), STATUS_BUS_UNAVAILABLE);
	for (size_t i = 0; i < 10; i++)
		assert_int_equal(messages[i].fate, BUS_NOT_PERSISTED);
}

static void a_bus_without_a_server_refuses_at_once_and_comes_back(void **state)
{
	struct bus_fixture *fixture = *state;

	bus_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	for (int round = 0; round < 4; round++) {
		if (round % 2)
			nats_server_kill();
		else
			nats_server_stop();
		bus_fixture_wait_until(fixture, false);
		nats_faults_refuse_at_once(fixture);
		nap_ms(round < 2 ? 0 : 300); /* some tries later too */
		nats_faults_refuse_at_once(fixture);
		nats_server_start();
		bus_fixture_wait_until(fixture, true);
		bus_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	}
	nats_fixture_assert_fates(fixture);
}

static void a_bus_may_start_before_its_server(void **state)
{
	struct bus_fixture *fixture = *state;

	bus_fixture_close(fixture);
	nats_server_stop();
	bus_fixture_log_begin();
	nats_fixture_open(fixture, NULL);
	WAIT_UNTIL(captured_log_count("is unavailable") > 0);
	bus_fixture_log_end();
	assert_false(bus_fixture_is_up(fixture));
	nats_faults_refuse_at_once(fixture);
	nats_server_start();
	bus_fixture_wait_until(fixture, true);
	bus_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	nats_fixture_assert_fates(fixture);
}

/* Returns though nobody answers. */
static void a_bus_may_end_while_its_server_is_away_or_hangs(void **state)
{
	struct bus_fixture *fixture = *state;

	nats_server_freeze();
	bus_fixture_close(fixture);
	nats_fixture_open(fixture, NULL);
	nap_ms(100);
	bus_fixture_close(fixture);
	nats_server_kill();
	nats_fixture_open(fixture, NULL);
	nap_ms(100);
	bus_fixture_close(fixture);
}

static void disturb(int round)
{
	if (round % 3 == 2) {
		nats_server_freeze();
		nap_ms(700);
		nats_server_thaw();
		return;
	}
	if (round % 3 == 1)
		nats_server_kill();
	else
		nats_server_stop();
	nap_ms(round % 2 ? 300 : 0);
	nats_server_start();
}

static void servers_that_come_and_go_under_load(void **state)
{
	struct bus_fixture *fixture = *state;
	struct bus_load load = {.fixture = fixture,
		.batch = 50,
		.max = MESSAGES_MAX - 1000, /* room for what is published after it */
		.timeout_ms = 150,
		.pause_ms = 2,
		.refused_pause_ms = 20};

	bus_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	bus_load_start(&load);
	for (int i = 0; i < 6; i++) {
		nap_ms(300);
		disturb(i);
	}
	bus_fixture_wait_until(fixture, true);
	nap_ms(300);
	bus_load_stop(&load);
	bus_fixture_publish_until_confirmed(fixture, HANG_MS);
	nats_fixture_assert_fates(fixture);
	print_message("%zu confirmed, %zu not persisted, %zu unknown\n",
		bus_fixture_count(fixture, BUS_CONFIRMED),
		bus_fixture_count(fixture, BUS_NOT_PERSISTED),
		bus_fixture_count(fixture, BUS_UNKNOWN));
}

/* ---- a server that hangs ----------------------------------------------------------------- */

/*
 * Publishes while the server is frozen. Returns false if the time was too short on this machine:
 * the deadline came before everything was sent, or the bus noticed before there was a publish.
 */
static bool all_become_unknown(struct bus_fixture *fixture, int64_t timeout_ms)
{
	struct bus_message *messages = bus_fixture_make(fixture, 100);
	bool published;
	enum status status;
	int64_t until_ns;

	nats_server_freeze();
	until_ns = in_ms(timeout_ms);
	status = bus_fixture_publish(fixture, messages, 100, timeout_ms);
	assert_true(status == STATUS_BUS_UNAVAILABLE || clock_steady_ns(&clock_system) >= until_ns);
	published = status == STATUS_OK;
	nats_server_thaw();
	for (size_t i = 0; i < 100; i++) {
		assert_int_not_equal(messages[i].fate, BUS_CONFIRMED);
		published = published && messages[i].fate == BUS_UNKNOWN;
	}
	bus_fixture_wait_until(fixture, true);
	bus_fixture_publish_until_confirmed(fixture, HANG_MS); /* late answers reach nobody */
	return published;
}

static void a_frozen_server_leaves_fates_unknown_at_the_deadline(void **state)
{
	struct bus_fixture *fixture = *state;

	bus_fixture_publish_all(fixture, 100, BUS_CONFIRMED);
	for (int round = 0; round < 3; round++) {
		int64_t timeout_ms = 300;

		while (!all_become_unknown(fixture, timeout_ms))
			assert_true((timeout_ms *= 2) < HANG_MS);
	}
	nats_fixture_assert_fates(fixture);
}

/* A message that the bus tried to send may be stored, so its fate is unknown. */
static void assert_in_doubt(enum status status, const struct bus_message *message)
{
	assert_true(status != STATUS_OK || message->is_untried || message->fate == BUS_UNKNOWN);
}

/* More than the buffers of a socket hold: writing itself has to wait. */
static void a_frozen_server_does_not_hold_up_large_messages(void **state)
{
	struct bus_fixture *fixture = *state;
	struct bus_message *messages = bus_fixture_make(fixture, 40);
	size_t size = 1000 * 1000;
	char *value = qp_calloc(size, 1);

	for (size_t i = 0; i < 40; i++)
		messages[i].value = slice_make(value, size);
	nats_server_freeze();
	for (size_t i = 0; i < 40; i++) {
		enum status status = bus_fixture_publish(fixture, &messages[i], 1, 10);

		assert_true(status == STATUS_OK || i > 0);
		assert_in_doubt(status, &messages[i]);
	}
	nats_server_thaw();
	bus_fixture_wait_until(fixture, true);
	bus_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	nats_fixture_assert_fates(fixture);
	free(value);
}

static void the_breaker_opens_for_a_server_that_hangs(void **state)
{
	struct bus_fixture *fixture = *state;

	nats_server_freeze();
	bus_fixture_wait_until(fixture, false);
	nats_faults_refuse_at_once(fixture);
	nats_server_thaw();
	bus_fixture_wait_until(fixture, true);
	bus_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	nats_fixture_assert_fates(fixture);
}

/* ---- what is refused --------------------------------------------------------------------- */

static size_t header_size(const struct bus_message *message)
{
	return 12 + strlen("Nats-Msg-Id") + 4 + message->id.len + strlen("key") + 4 +
	       message->key.len;
}

static void a_message_that_is_too_large_is_refused_alone(void **state)
{
	struct bus_fixture *fixture = *state;
	struct bus_message *messages = bus_fixture_make(fixture, 4);
	size_t size = 1024 * 1024; /* what the server takes, headers included */
	char *value = qp_calloc(size + 1, 1);

	messages[0].value = slice_make(value, size - header_size(&messages[0]));
	messages[1].value = slice_make(value, size - header_size(&messages[1]) + 1);
	messages[2].value = slice_make(value, size + 1);
	assert_int_equal(bus_fixture_publish(fixture, messages, 4, HANG_MS), STATUS_OK);
	assert_int_equal(messages[0].fate, BUS_CONFIRMED);
	assert_int_equal(messages[1].fate, BUS_NOT_PERSISTED);
	assert_int_equal(messages[2].fate, BUS_NOT_PERSISTED);
	assert_int_equal(messages[3].fate, BUS_CONFIRMED);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(messages[i].is_unfit, i == 1 || i == 2);
	assert_true(bus_fixture_is_up(fixture));
	free(value);
	nats_fixture_assert_fates(fixture);
}

static const char *const bad_subjects[] = {
	"entitlements.events.granted\r\nPUB x 1",
	"entitlements.events granted",
	"entitlements.events.*",
	"entitlements.events.>",
	"entitlements.events..granted",
	"entitlements.events.",
	".",
	"entitlements.events.unknown",
	"other-events",
	"$JS.API.STREAM.DELETE.ENTITLEMENTS",
};

#define BAD_SUBJECTS (sizeof(bad_subjects) / sizeof(bad_subjects[0]))

static void a_subject_that_is_not_the_channels_is_refused(void **state)
{
	struct bus_fixture *fixture = *state;
	struct bus_message *messages = bus_fixture_make(fixture, BAD_SUBJECTS + 3);

	for (size_t i = 0; i < BAD_SUBJECTS; i++)
		messages[i].subject = slice_of(bad_subjects[i]);
	messages[BAD_SUBJECTS].headers[0] = (struct bus_header){slice_of("a\r\nb"), slice_of("c")};
	messages[BAD_SUBJECTS + 1].headers[0] = (struct bus_header){slice_of("a:b"), slice_of("c")};
	messages[BAD_SUBJECTS].header_count = messages[BAD_SUBJECTS + 1].header_count = 1;
	assert_int_equal(
		bus_fixture_publish(fixture, messages, BAD_SUBJECTS + 3, HANG_MS), STATUS_OK);
	for (size_t i = 0; i < BAD_SUBJECTS + 2; i++)
		assert_int_equal(messages[i].fate, BUS_NOT_PERSISTED);
	assert_int_equal(messages[BAD_SUBJECTS + 2].fate, BUS_CONFIRMED);
	nats_fixture_assert_fates(fixture);
}

static void the_same_id_is_confirmed_and_not_stored_twice(void **state)
{
	struct bus_fixture *fixture = *state;
	struct bus_message *messages = bus_fixture_make(fixture, 10);

	for (int i = 0; i < 3; i++) {
		assert_int_equal(bus_fixture_publish(fixture, messages, 10, HANG_MS), STATUS_OK);
		for (size_t k = 0; k < 10; k++)
			assert_int_equal(messages[k].fate, BUS_CONFIRMED);
	}
	nats_fixture_assert_fates(fixture);
}

static void answer_nonsense(
	natsConnection *connection, natsSubscription *subscription, natsMsg *message, void *context)
{
	(void)subscription;
	(void)context;
	for (int i = 0; i < 2; i++)
		natsConnection_PublishString(connection, natsMsg_GetReply(message), "thank you");
	natsMsg_Destroy(message);
}

/* A service that listens to the events and thanks for each. */
static void an_answer_of_somebody_else_is_not_an_ack(void **state)
{
	struct bus_fixture *fixture = *state;
	natsSubscription *subscription = NULL;
	struct nats_admin admin;

	nats_admin_open(&admin);
	assert_int_equal(natsConnection_Subscribe(&subscription, admin.connection, "entitlements.>",
				 answer_nonsense, NULL),
		NATS_OK);
	assert_int_equal(natsConnection_Flush(admin.connection), NATS_OK);
	for (int i = 0; i < 20; i++)
		bus_fixture_publish_all(fixture, 50, BUS_CONFIRMED);
	nats_admin_end(&admin, subscription);
	nats_admin_close(&admin);
	nats_fixture_assert_fates(fixture);
}

/* ---- passwords and the log --------------------------------------------------------------- */

static void a_password_is_used_and_never_said(void **state)
{
	struct bus_fixture *fixture = *state;
	char why[256] = "";
	struct bus *bus;
	char down[64];
	char url[128];

	bus_fixture_close(fixture);
	nats_server_stop();
	nats_server_configure("authorization { user: \"u@v\", password: \"pass:word\" }\n");
	bus_fixture_log_begin();
	nats_server_start();
	nats_fixture_open(fixture, NULL);
	snprintf(url, sizeof(url), "nats://u%%40v:pass%%3Aword@127.0.0.1:%d", nats_server_port());
	snprintf(down, sizeof(down), "secret: NATS at 127.0.0.1:%d is unavailable",
		nats_server_port());
	bus = nats_bus_new("secret", url, NULL, 0);
	assert_true(bus->ops->start(bus, why, sizeof(why)));
	WAIT_UNTIL(bus->ops->is_up(bus));
	WAIT_UNTIL(captured_log_count("Authentication Violation") > 0);
	assert_false(bus_fixture_is_up(fixture));
	nats_server_kill();
	WAIT_UNTIL(captured_log_count(down) > 0);
	bus->ops->free(bus);
	assert_int_equal(captured_log_count("word"), 0);
	assert_int_equal(captured_log_count(down), 1);
	assert_int_equal(captured_log_count("Authentication Violation"), 1);
	bus_fixture_log_end();
}

static void each_change_is_one_line(void **state)
{
	struct bus_fixture *fixture = *state;

	bus_fixture_close(fixture);
	bus_fixture_log_begin();
	nats_fixture_open(fixture, NULL);
	bus_fixture_wait_until(fixture, true);
	for (int i = 0; i < 2; i++) {
		nats_server_kill();
		bus_fixture_wait_until(fixture, false);
		WAIT_UNTIL(captured_log_count("is unavailable") > i);
		nap_ms(i == 0 ? 800 : 0); /* it is tried every 200 ms */
		nats_server_start();
		bus_fixture_wait_until(fixture, true);
	}
	WAIT_UNTIL(captured_log_count("is ready") >= 3);
	assert_int_equal(captured_log_count("is ready"), 3);
	assert_int_equal(captured_log_count("the connection has ended"), 2);
	assert_int_equal(captured_log_count("is unavailable"), 2);
	bus_fixture_log_end();
}

/* ---- URLs -------------------------------------------------------------------------------- */

static const char *const bad_urls[] = {
	"nats:/localhost",
	"http://localhost:4222",
	"nats://",
	"nats://:4222",
	"nats://host:0",
	"nats://host:70000",
	"nats://host:secret",
	"nats://user:secret@",
	"nats://secret@host",
	"nats://user:@host",
	"nats://:@host",
	"nats://@host",
	"nats://user:secret/x@host",
	"nats://us%zzer:secret@host",
	"nats://user:secret%2@host",
	"nats://user:secret%00@host",
	"nats://host:4222,,other:4222",
	"nats://host:4222/subject",
	"nats://host:4222?secret",
	"nats://host:4222?password=secret",
	"nats://host:4222?ack-wait=secret",
	"nats://host:4222?ack-wait=1ms",
	"nats://host:4222?ack-wait=2d",
	"nats://host:4222?ack-wait=999999999999999d",
	"nats://host:4222?max-deliver=1",
	"nats://host:4222?max-deliver=",
	"nats://host:4222?max-deliver",
	"nats://host:4222?replicas=0",
	"nats://host:4222?replicas=6",
	"nats://host:4222?creds=",
	"nats://host:4222?creds=/nowhere/secret",
	"nats://host:4222?tls-ca=/etc/ssl/certs",
	"tls://host:4222?tls-ca=/nowhere/secret",
	"tls://host:4222?tls-cert=/nowhere/secret",
	"tls://host:4222?tls-cert=/nowhere/secret&tls-key=/nowhere/secret",
};

/* "secret" may be the name of an option that does not exist, which is repeated. */
static void a_bad_url_is_refused_with_a_sentence(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad_urls) / sizeof(bad_urls[0]); i++) {
		struct bus *bus = nats_bus_new("faults", bad_urls[i], NULL, 0);
		char why[256] = "";
		bool started = bus->ops->start(bus, why, sizeof(why));

		if (started)
			fail_msg("%s was accepted", bad_urls[i]);
		if (strlen(why) < 20 || (strstr(why, "secret") && !strstr(why, "\"secret\"")))
			fail_msg("%s: %s", bad_urls[i], why);
		bus->ops->free(bus);
	}
}

static const char *const good_urls[] = {
	"nats://localhost",
	"nats://127.0.0.1:1/",
	"nats://[::1]:1,127.0.0.1:1?",
	"nats://user:pass%26word@127.0.0.1:1,127.0.0.1:2?ack-wait=1s&max-deliver=3&replicas=3",
	"nats://:token@127.0.0.1:1",
	"tls://127.0.0.1:1",
};

static void a_good_url_is_accepted(void **state)
{
	(void)state;
	log_configure(LOG_ERROR, LOG_TEXT);
	for (size_t i = 0; i < sizeof(good_urls) / sizeof(good_urls[0]); i++) {
		struct bus *bus = nats_bus_new("faults", good_urls[i], NULL, 0);
		char why[256] = "";

		if (!bus->ops->start(bus, why, sizeof(why)))
			fail_msg("%s: %s", good_urls[i], why);
		bus->ops->free(bus);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		NATS_TEST(a_bus_without_a_server_refuses_at_once_and_comes_back),
		NATS_TEST(a_bus_may_start_before_its_server),
		NATS_TEST(a_bus_may_end_while_its_server_is_away_or_hangs),
		NATS_TEST(servers_that_come_and_go_under_load),
		NATS_TEST(a_frozen_server_leaves_fates_unknown_at_the_deadline),
		NATS_TEST(a_frozen_server_does_not_hold_up_large_messages),
		NATS_TEST(the_breaker_opens_for_a_server_that_hangs),
		NATS_TEST(a_message_that_is_too_large_is_refused_alone),
		NATS_TEST(a_subject_that_is_not_the_channels_is_refused),
		NATS_TEST(the_same_id_is_confirmed_and_not_stored_twice),
		NATS_TEST(an_answer_of_somebody_else_is_not_an_ack),
		NATS_TEST(a_password_is_used_and_never_said),
		NATS_TEST(each_change_is_one_line),
		cmocka_unit_test(a_bad_url_is_refused_with_a_sentence),
		cmocka_unit_test(a_good_url_is_accepted),
	};

	if (!nats_server_exists()) {
		fprintf(stderr, "skipped: NATS is not installed (no nats-server)\n");
		return SKIPPED;
	}
	return cmocka_run_group_tests_name("nats faults", tests, NULL, NULL) + nats_stream_tests();
}
