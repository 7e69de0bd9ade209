/*
 * A NATS server that stops, crashes, hangs, forgets and refuses, as publishing sees it; and URLs.
 * What consuming sees is in nats_delivery_faults.c.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "adapters/nats/nats_bus.h"
#include "base/arena.h"
#include "base/log.h"
#include "captured_log.h"
#include "nats_fixture.h"

#define SKIPPED 77

/* Without a round trip; on a busy machine still below any timeout. */
#define AT_ONCE_MS 300

/* What a publish may take longer than told; the half second is the adapter's, the rest is for a
 * busy machine. */
#define LATE_MS 1500

/* While no bus is open. */
static void capture_log(void)
{
	captured_log_begin();
	log_configure(LOG_DEBUG, LOG_TEXT);
}

/* ---- a server that is away --------------------------------------------------------------- */

static void refuse_at_once(struct nats_fixture *fixture)
{
	struct bus_message *messages = nats_fixture_make(fixture, 10);
	int64_t began_ms = nats_fixture_now_ms();

	messages[0].fate = BUS_CONFIRMED;
	assert_int_equal(
		nats_fixture_publish(fixture, messages, 10, 15000), STATUS_BUS_UNAVAILABLE);
	assert_true(nats_fixture_now_ms() - began_ms < AT_ONCE_MS);
	for (size_t i = 0; i < 10; i++)
		assert_int_equal(messages[i].fate, BUS_NOT_PERSISTED);
}

static void a_bus_without_a_server_refuses_at_once_and_comes_back(void **state)
{
	struct nats_fixture *fixture = *state;

	nats_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	for (int round = 0; round < 4; round++) {
		int64_t began_ms = nats_fixture_now_ms();

		if (round % 2)
			nats_server_kill();
		else
			nats_server_stop();
		nats_fixture_wait_until(fixture, false);
		assert_true(nats_fixture_now_ms() - began_ms < 1000);
		refuse_at_once(fixture);
		nats_fixture_nap_ms(round < 2 ? 0 : 500);
		refuse_at_once(fixture);
		nats_server_start();
		nats_fixture_wait_until(fixture, true);
		nats_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	}
	nats_fixture_assert_fates(fixture);
}

static void a_bus_may_start_before_its_server(void **state)
{
	struct nats_fixture *fixture = *state;

	nats_fixture_close(fixture);
	nats_server_stop();
	nats_fixture_open(fixture, NULL);
	nats_fixture_nap_ms(300);
	assert_false(fixture->bus->ops->is_up(fixture->bus));
	refuse_at_once(fixture);
	nats_server_start();
	nats_fixture_wait_until(fixture, true);
	nats_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	nats_fixture_assert_fates(fixture);
}

static void a_bus_may_end_while_its_server_is_away_or_hangs(void **state)
{
	struct nats_fixture *fixture = *state;
	int64_t began_ms;

	nats_server_freeze();
	began_ms = nats_fixture_now_ms();
	nats_fixture_close(fixture);
	nats_fixture_open(fixture, NULL);
	nats_fixture_nap_ms(100);
	nats_fixture_close(fixture);
	assert_true(nats_fixture_now_ms() - began_ms < 8000);
	nats_server_kill();
	nats_fixture_open(fixture, NULL);
	nats_fixture_nap_ms(100);
	began_ms = nats_fixture_now_ms();
	nats_fixture_close(fixture);
	assert_true(nats_fixture_now_ms() - began_ms < 1000);
}

struct load {
	struct nats_fixture *fixture;
	_Atomic bool stop;
	int64_t longest_ms;
};

static void *publish_on_and_on(void *context)
{
	struct load *load = context;

	while (!atomic_load(&load->stop) && load->fixture->sent_count + 50 <= MESSAGES_MAX) {
		struct bus_message *messages = nats_fixture_make(load->fixture, 50);
		int64_t began_ms = nats_fixture_now_ms();
		enum status status = nats_fixture_publish(load->fixture, messages, 50, 150);
		int64_t took_ms = nats_fixture_now_ms() - began_ms;

		if (took_ms > load->longest_ms)
			load->longest_ms = took_ms;
		nats_fixture_nap_ms(status == STATUS_OK ? 2 : 20);
	}
	return NULL;
}

static void disturb(int round)
{
	if (round % 3 == 2) {
		nats_server_freeze();
		nats_fixture_nap_ms(700);
		nats_server_thaw();
		return;
	}
	if (round % 3 == 1)
		nats_server_kill();
	else
		nats_server_stop();
	nats_fixture_nap_ms(round % 2 ? 300 : 0);
	nats_server_start();
}

static void servers_that_come_and_go_under_load(void **state)
{
	struct nats_fixture *fixture = *state;
	struct load load = {.fixture = fixture};
	pthread_t thread;

	nats_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	pthread_create(&thread, NULL, publish_on_and_on, &load);
	for (int i = 0; i < 9; i++) {
		nats_fixture_nap_ms(300);
		disturb(i);
	}
	nats_fixture_wait_until(fixture, true);
	nats_fixture_nap_ms(300);
	atomic_store(&load.stop, true);
	pthread_join(thread, NULL);
	nats_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	nats_fixture_assert_fates(fixture);
	print_message("%zu confirmed, %zu not persisted, %zu unknown; the longest of 150 ms took "
		      "%lld ms\n",
		nats_fixture_count(fixture, BUS_CONFIRMED),
		nats_fixture_count(fixture, BUS_NOT_PERSISTED),
		nats_fixture_count(fixture, BUS_UNKNOWN), (long long)load.longest_ms);
	assert_true(load.longest_ms < 150 + LATE_MS);
	assert_true(nats_fixture_count(fixture, BUS_CONFIRMED) > 100);
}

/* ---- a server that hangs ----------------------------------------------------------------- */

static void a_frozen_server_leaves_fates_unknown_at_the_deadline(void **state)
{
	struct nats_fixture *fixture = *state;

	nats_fixture_publish_all(fixture, 100, BUS_CONFIRMED);
	for (int round = 0; round < 3; round++) {
		struct bus_message *messages = nats_fixture_make(fixture, 100);
		int64_t began_ms = nats_fixture_now_ms();

		nats_server_freeze();
		assert_int_equal(nats_fixture_publish(fixture, messages, 100, 300), STATUS_OK);
		assert_in_range(nats_fixture_now_ms() - began_ms, 290, 300 + LATE_MS);
		nats_server_thaw();
		for (size_t i = 0; i < 100; i++)
			assert_int_equal(messages[i].fate, BUS_UNKNOWN);
		nats_fixture_wait_until(fixture, true);
		nats_fixture_publish_all(
			fixture, 100, BUS_CONFIRMED); /* late answers reach nobody */
	}
	nats_fixture_assert_fates(fixture);
}

/* More than the buffers of a socket hold: writing itself has to wait. */
static void a_frozen_server_does_not_hold_up_large_messages(void **state)
{
	struct nats_fixture *fixture = *state;
	struct bus_message *messages = nats_fixture_make(fixture, 40);
	size_t size = 1000 * 1000;
	char *value = qp_calloc(size, 1);
	int64_t began_ms = nats_fixture_now_ms();

	for (size_t i = 0; i < 40; i++)
		messages[i].value = slice_make(value, size);
	nats_server_freeze();
	for (size_t i = 0; i < 40; i++) {
		enum status status = nats_fixture_publish(fixture, &messages[i], 1, 10);

		assert_true(status == STATUS_OK || i > 0);
	}
	assert_true(nats_fixture_now_ms() - began_ms < 40 * 10 + LATE_MS);
	nats_server_thaw();
	nats_fixture_wait_until(fixture, true);
	nats_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	nats_fixture_assert_fates(fixture);
	free(value);
}

static void the_breaker_opens_for_a_server_that_hangs(void **state)
{
	struct nats_fixture *fixture = *state;
	int64_t began_ms = nats_fixture_now_ms();

	nats_server_freeze();
	nats_fixture_wait_until(fixture, false);
	assert_true(nats_fixture_now_ms() - began_ms < 8000);
	refuse_at_once(fixture);
	nats_server_thaw();
	nats_fixture_wait_until(fixture, true);
	nats_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	nats_fixture_assert_fates(fixture);
}

/* ---- a server that forgets --------------------------------------------------------------- */

static void wiped_data_is_made_anew(void **state)
{
	struct nats_fixture *fixture = *state;

	nats_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	nats_server_kill();
	nats_server_wipe();
	nats_server_start();
	nats_fixture_wait_until(fixture, false);
	nats_fixture_wait_until(fixture, true);
	fixture->sent_count = 0; /* those are gone */
	nats_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	nats_fixture_assert_fates(fixture);
}

static void delete_stream(const char *name)
{
	struct nats_admin admin;

	nats_admin_open(&admin);
	assert_int_equal(js_DeleteStream(admin.js, name, NULL, NULL), NATS_OK);
	nats_admin_close(&admin);
}

static void a_stream_that_is_deleted_is_made_anew(void **state)
{
	struct nats_fixture *fixture = *state;

	nats_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	delete_stream("ENTITLEMENTS");
	nats_fixture_publish_all(fixture, 1, BUS_NOT_PERSISTED);
	fixture->sent_count = 0;
	nats_fixture_publish_until_confirmed(fixture);
	nats_fixture_assert_fates(fixture);
}

/* ---- streams of others ------------------------------------------------------------------- */

static void make_stream(const char *name, const char **subjects, int count)
{
	struct nats_admin admin;
	jsStreamConfig config;

	nats_admin_open(&admin);
	jsStreamConfig_Init(&config);
	config.Name = name;
	config.Description = "an operator's";
	config.Subjects = subjects;
	config.SubjectsLen = count;
	config.MaxBytes = 123456789;
	config.MaxAge = 3600 * NS_PER_S;
	config.Duplicates = 30 * NS_PER_S;
	assert_int_equal(js_AddStream(NULL, admin.js, &config, NULL, NULL), NATS_OK);
	nats_admin_close(&admin);
}

static void assert_stream(int subjects)
{
	struct nats_admin admin;
	jsStreamInfo *info = NULL;

	nats_admin_open(&admin);
	assert_int_equal(js_GetStreamInfo(&info, admin.js, "ENTITLEMENTS", NULL, NULL), NATS_OK);
	assert_int_equal(info->Config->SubjectsLen, subjects);
	assert_int_equal(info->Config->MaxAge, 7 * 24 * 3600 * NS_PER_S);
	assert_int_equal(info->Config->Duplicates, 600 * NS_PER_S);
	assert_int_equal(info->Config->MaxBytes, 123456789);
	assert_string_equal(info->Config->Description, "an operator's");
	jsStreamInfo_Destroy(info);
	nats_admin_close(&admin);
}

static void a_stream_of_an_operator_is_changed_where_needed(void **state)
{
	static const char *some[] = {"audit.>", GRANTED};
	static const char *wide[] = {"entitlements.>"};
	struct nats_fixture *fixture = *state;

	nats_fixture_close(fixture);
	delete_stream("ENTITLEMENTS");
	make_stream("ENTITLEMENTS", some, 2);
	nats_fixture_open(fixture, NULL);
	nats_fixture_wait_until(fixture, true);
	assert_stream(4);
	nats_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	nats_fixture_close(fixture);

	delete_stream("ENTITLEMENTS");
	make_stream("ENTITLEMENTS", wide, 1);
	fixture->sent_count = 0;
	nats_fixture_open(fixture, NULL);
	nats_fixture_wait_until(fixture, true);
	assert_stream(1);
	nats_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	nats_fixture_assert_fates(fixture);
}

#define UNMADE "the stream ENTITLEMENTS cannot be made"

static void a_stream_that_cannot_be_made_is_said_once(void **state)
{
	static const char *ours[] = {GRANTED};
	struct nats_fixture *fixture = *state;

	nats_fixture_close(fixture);
	delete_stream("ENTITLEMENTS");
	make_stream("SQUATTER", ours, 1);
	capture_log();
	nats_fixture_open(fixture, NULL);
	for (int waited = 0; captured_log_count(UNMADE) == 0; waited += 50) {
		assert_true(waited < 10000);
		nats_fixture_nap_ms(50);
	}
	nats_fixture_nap_ms(1500); /* it is tried every half second */
	assert_false(fixture->bus->ops->is_up(fixture->bus));
	assert_int_equal(captured_log_count(UNMADE), 1);
	delete_stream("SQUATTER");
	nats_fixture_wait_until(fixture, true);
	assert_int_equal(captured_log_count("NATS answers"), 1);
	captured_log_end();
	nats_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	nats_fixture_assert_fates(fixture);
}

static void a_server_without_jetstream_is_not_up(void **state)
{
	struct nats_fixture *fixture = *state;

	nats_fixture_close(fixture);
	nats_server_stop();
	nats_server_configure("accounts { A { users = [{user: a, password: b}] } }\n"
			      "no_auth_user: a\n");
	nats_server_start();
	nats_fixture_open(fixture, NULL);
	nats_fixture_nap_ms(500);
	assert_false(fixture->bus->ops->is_up(fixture->bus));
	refuse_at_once(fixture);
}

/* ---- what is refused --------------------------------------------------------------------- */

static size_t header_size(const struct bus_message *message)
{
	return 12 + strlen("Nats-Msg-Id") + 4 + message->id.len + strlen("key") + 4 +
	       message->key.len;
}

static void a_message_that_is_too_large_is_refused_alone(void **state)
{
	struct nats_fixture *fixture = *state;
	struct bus_message *messages = nats_fixture_make(fixture, 4);
	size_t size = 1024 * 1024; /* what the server takes, headers included */
	char *value = qp_calloc(size + 1, 1);

	messages[0].value = slice_make(value, size - header_size(&messages[0]));
	messages[1].value = slice_make(value, size - header_size(&messages[1]) + 1);
	messages[2].value = slice_make(value, size + 1);
	assert_int_equal(nats_fixture_publish(fixture, messages, 4, 10000), STATUS_OK);
	assert_int_equal(messages[0].fate, BUS_CONFIRMED);
	assert_int_equal(messages[1].fate, BUS_NOT_PERSISTED);
	assert_int_equal(messages[2].fate, BUS_NOT_PERSISTED);
	assert_int_equal(messages[3].fate, BUS_CONFIRMED);
	assert_true(fixture->bus->ops->is_up(fixture->bus));
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
	struct nats_fixture *fixture = *state;
	struct bus_message *messages = nats_fixture_make(fixture, BAD_SUBJECTS + 3);

	for (size_t i = 0; i < BAD_SUBJECTS; i++)
		messages[i].subject = slice_of(bad_subjects[i]);
	messages[BAD_SUBJECTS].headers[0] = (struct bus_header){slice_of("a\r\nb"), slice_of("c")};
	messages[BAD_SUBJECTS + 1].headers[0] = (struct bus_header){slice_of("a:b"), slice_of("c")};
	messages[BAD_SUBJECTS].header_count = messages[BAD_SUBJECTS + 1].header_count = 1;
	assert_int_equal(
		nats_fixture_publish(fixture, messages, BAD_SUBJECTS + 3, 10000), STATUS_OK);
	for (size_t i = 0; i < BAD_SUBJECTS + 2; i++)
		assert_int_equal(messages[i].fate, BUS_NOT_PERSISTED);
	assert_int_equal(messages[BAD_SUBJECTS + 2].fate, BUS_CONFIRMED);
	nats_fixture_assert_fates(fixture);
}

static void the_same_id_is_confirmed_and_not_stored_twice(void **state)
{
	struct nats_fixture *fixture = *state;
	struct bus_message *messages = nats_fixture_make(fixture, 10);

	for (int i = 0; i < 3; i++) {
		assert_int_equal(nats_fixture_publish(fixture, messages, 10, 10000), STATUS_OK);
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
	struct nats_fixture *fixture = *state;
	natsSubscription *subscription = NULL;
	struct nats_admin admin;

	nats_admin_open(&admin);
	assert_int_equal(natsConnection_Subscribe(&subscription, admin.connection, "entitlements.>",
				 answer_nonsense, NULL),
		NATS_OK);
	assert_int_equal(natsConnection_Flush(admin.connection), NATS_OK);
	for (int i = 0; i < 20; i++)
		nats_fixture_publish_all(fixture, 50, BUS_CONFIRMED);
	nats_admin_end(&admin, subscription);
	nats_admin_close(&admin);
	nats_fixture_assert_fates(fixture);
}

/* ---- passwords and the log --------------------------------------------------------------- */

static void a_password_is_used_and_never_said(void **state)
{
	struct nats_fixture *fixture = *state;
	char why[256] = "";
	struct bus *bus;
	char url[128];

	nats_fixture_close(fixture);
	nats_server_stop();
	nats_server_configure("authorization { user: \"u@v\", password: \"pass:word\" }\n");
	capture_log();
	nats_server_start();
	nats_fixture_open(fixture, NULL);
	snprintf(url, sizeof(url), "nats://u%%40v:pass%%3Aword@127.0.0.1:%d", nats_server_port());
	bus = nats_bus_new("secret", url, NULL, 0);
	assert_true(bus->ops->start(bus, why, sizeof(why)));
	for (int i = 0; i < 2000 && !bus->ops->is_up(bus); i++)
		nats_fixture_nap_ms(5);
	assert_true(bus->ops->is_up(bus));
	assert_false(fixture->bus->ops->is_up(fixture->bus));
	nats_server_kill();
	nats_fixture_nap_ms(500);
	bus->ops->free(bus);
	assert_int_equal(captured_log_count("word"), 0);
	assert_int_equal(captured_log_count("secret: NATS cannot be used"), 1);
	assert_int_equal(captured_log_count("Authentication Violation"), 1);
	captured_log_end();
}

static void each_change_is_one_line(void **state)
{
	struct nats_fixture *fixture = *state;

	nats_fixture_close(fixture);
	capture_log();
	nats_fixture_open(fixture, NULL);
	nats_fixture_wait_until(fixture, true);
	nats_fixture_nap_ms(200);
	for (int i = 0; i < 2; i++) {
		nats_server_kill();
		nats_fixture_wait_until(fixture, false);
		nats_fixture_nap_ms(1500);
		nats_server_start();
		nats_fixture_wait_until(fixture, true);
		nats_fixture_nap_ms(200);
	}
	assert_int_equal(captured_log_count("NATS answers"), 3);
	assert_int_equal(captured_log_count("the connection has ended"), 2);
	assert_int_equal(captured_log_count("NATS cannot be used"), 2);
	captured_log_end();
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

/* ---- speed ------------------------------------------------------------------------------- */

static void speed_of_batches(void **state)
{
	struct nats_fixture *fixture = *state;
	static const size_t sizes[] = {1, 10, 100, 1000};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int64_t began_ns = clock_steady_ns(&clock_system);
		int rounds = sizes[i] == 1000 ? 10 : 50;

		for (int k = 0; k < rounds; k++)
			nats_fixture_publish_all(fixture, sizes[i], BUS_CONFIRMED);
		began_ns = clock_steady_ns(&clock_system) - began_ns;
		print_message("batches of %4zu: %7.0f messages/s, %.2f ms a batch\n", sizes[i],
			(double)sizes[i] * rounds * NS_PER_S / (double)began_ns,
			(double)began_ns / rounds / NS_PER_MS);
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
		NATS_TEST(wiped_data_is_made_anew),
		NATS_TEST(a_stream_that_is_deleted_is_made_anew),
		NATS_TEST(a_stream_of_an_operator_is_changed_where_needed),
		NATS_TEST(a_stream_that_cannot_be_made_is_said_once),
		NATS_TEST(a_server_without_jetstream_is_not_up),
		NATS_TEST(a_message_that_is_too_large_is_refused_alone),
		NATS_TEST(a_subject_that_is_not_the_channels_is_refused),
		NATS_TEST(the_same_id_is_confirmed_and_not_stored_twice),
		NATS_TEST(an_answer_of_somebody_else_is_not_an_ack),
		NATS_TEST(a_password_is_used_and_never_said),
		NATS_TEST(each_change_is_one_line),
		NATS_TEST(speed_of_batches),
		cmocka_unit_test(a_bad_url_is_refused_with_a_sentence),
		cmocka_unit_test(a_good_url_is_accepted),
	};

	if (!nats_server_exists()) {
		fprintf(stderr, "skipped: NATS is not installed (no nats-server)\n");
		return SKIPPED;
	}
	return cmocka_run_group_tests_name("nats faults", tests, NULL, NULL);
}
