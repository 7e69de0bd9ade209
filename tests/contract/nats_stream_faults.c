/* Streams that are gone, somebody else's, or impossible, and what others put into ours. Part of
 * nats_faults. */
#include "base/log.h"
#include "captured_log.h"
#include "nats_faults.h"
#include "nats_fixture.h"
#include "waiting.h"

/* ---- a server that forgets --------------------------------------------------------------- */

static void wiped_data_is_made_anew(void **state)
{
	struct bus_fixture *fixture = *state;

	bus_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	nats_server_kill();
	bus_fixture_wait_until(fixture, false); /* before it can be up again */
	nats_server_wipe();
	nats_server_start();
	bus_fixture_wait_until(fixture, true);
	fixture->sent_count = 0; /* those are gone */
	bus_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
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
	struct bus_fixture *fixture = *state;

	bus_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	delete_stream("ENTITLEMENTS");
	bus_fixture_publish_all(fixture, 1, BUS_NOT_PERSISTED);
	fixture->sent_count = 0;
	(void)bus_fixture_publish_until_confirmed(fixture, 5000);
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
	struct bus_fixture *fixture = *state;

	bus_fixture_close(fixture);
	delete_stream("ENTITLEMENTS");
	make_stream("ENTITLEMENTS", some, 2);
	nats_fixture_open(fixture, NULL);
	bus_fixture_wait_until(fixture, true);
	assert_stream(4);
	bus_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	bus_fixture_close(fixture);

	delete_stream("ENTITLEMENTS");
	make_stream("ENTITLEMENTS", wide, 1);
	fixture->sent_count = 0;
	nats_fixture_open(fixture, NULL);
	bus_fixture_wait_until(fixture, true);
	assert_stream(1);
	bus_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	nats_fixture_assert_fates(fixture);
}

#define NOT_CREATED "the stream ENTITLEMENTS cannot be created"

static void a_stream_that_cannot_be_made_is_said_once(void **state)
{
	static const char *ours[] = {GRANTED};
	struct bus_fixture *fixture = *state;

	bus_fixture_close(fixture);
	delete_stream("ENTITLEMENTS");
	make_stream("SQUATTER", ours, 1);
	bus_fixture_log_begin();
	nats_fixture_open(fixture, NULL);
	WAIT_UNTIL(captured_log_count(NOT_CREATED) > 0);
	nap_ms(1100); /* it is tried every half second */
	assert_false(bus_fixture_is_up(fixture));
	assert_int_equal(captured_log_count(NOT_CREATED), 1);
	delete_stream("SQUATTER");
	WAIT_UNTIL(captured_log_count("is ready") > 0); /* a moment after it is up */
	assert_true(bus_fixture_is_up(fixture));
	assert_int_equal(captured_log_count("is ready"), 1);
	bus_fixture_log_end();
	bus_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	nats_fixture_assert_fates(fixture);
}

static void a_server_without_jetstream_is_not_up(void **state)
{
	struct bus_fixture *fixture = *state;

	bus_fixture_close(fixture);
	nats_server_stop();
	nats_server_configure("accounts { A { users = [{user: a, password: b}] } }\n"
			      "no_auth_user: a\n");
	nats_server_start();
	bus_fixture_log_begin();
	nats_fixture_open(fixture, NULL);
	WAIT_UNTIL(captured_log_count("is unavailable") > 0);
	bus_fixture_log_end();
	assert_false(bus_fixture_is_up(fixture));
	nats_faults_refuse_at_once(fixture);
}

#define NOT_COMPARED "does not permit this user to compare"

static void a_user_who_may_not_see_consumers_publishes(void **state)
{
	struct bus_fixture *fixture = *state;

	bus_fixture_close(fixture);
	nats_server_stop();
	nats_server_configure(
		"accounts { A { jetstream: enabled, users = [{user: a, password: b, permissions: "
		"{publish: {deny: \"$JS.API.CONSUMER.>\"}}}] } }\nno_auth_user: a\n");
	nats_server_start();
	bus_fixture_log_begin();
	nats_fixture_open(fixture, NULL);
	bus_fixture_wait_until(fixture, true);
	bus_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	assert_int_equal(captured_log_count(NOT_COMPARED), 1);
	bus_fixture_log_end();
}

/* ---- what others send -------------------------------------------------------------------- */

static void assert_text(struct slice got, const char *text)
{
	assert_int_equal(got.len, strlen(text));
	assert_memory_equal(got.data, text, got.len);
}

static const struct {
	const char *headers; /* NULL: none */
	const char *id;
	const char *key;
	size_t header_count;
} foreign[] = {
	{NULL, "", "", 0},
	{"NATS/1.0\r\n\r\n", "", "", 0},
	{"NATS/1.0\r\nevent-id: e-1\r\nkey: k\r\na: b\r\n\r\n", "e-1", "k", 1},
	{"NATS/1.0\r\nNats-Msg-Id: n-1\r\nevent-id: e-1\r\n\r\n", "n-1", "", 1},
	{"NATS/1.0\r\nname*: UTF-8''%00%zz%4\r\nother*: x\r\n\r\n", "", "", 2},
	{"NATS/1.0\r\n1:a\r\n2:a\r\n3:a\r\n4:a\r\n5:a\r\n6:a\r\n7:a\r\n8:a\r\n9:a\r\nkey:k\r\n"
	 "event-id:e-2\r\n\r\n",
		"e-2", "k", 8},
	{"NATS/1.0\r\nno colon\r\n\r\n", "", "", 0},
	{"NATS/1.0\r\n: no name\r\n\r\n", "", "", 0},
	{"NATS/1.0\r\na: no end", "", "", 0},
	{"NATS/1.0", "", "", 0},
	{"garbage: x\r\n\r\n", "", "", 0},
	{"\xff\xfe\x01", "", "", 0},
	{"NATS/1.0\r\n a: folded\r\n\r\n", "", "", 0},
	{"NATS/1.0 503\r\n\r\n", "", "", 1},
};

#define FOREIGN (sizeof(foreign) / sizeof(foreign[0]))

static void what_others_send_comes_whatever_its_headers(void **state)
{
	struct bus_fixture *fixture = *state;
	struct consumer *consumer = bus_fixture_consumer(fixture, "g");

	for (size_t i = 0; i < FOREIGN; i++) {
		const char *headers = foreign[i].headers;
		struct bus_delivery delivery;

		nats_server_publish(
			EVENTS, headers, headers ? strlen(headers) : 0, "x:y\r\nz: 1\r\n", 11);
		bus_fixture_fetch_one(consumer, &delivery);
		assert_int_equal(delivery.subject.len, 0); /* it is the channel's name */
		assert_int_equal(delivery.value.len, 11);
		assert_memory_equal(delivery.value.data, "x:y\r\nz: 1\r\n", 11);
		assert_text(delivery.id, foreign[i].id);
		assert_text(delivery.key, foreign[i].key);
		assert_int_equal(delivery.header_count, foreign[i].header_count);
		bus_fixture_ack(consumer, 1);
	}
	bus_fixture_close_consumer(fixture, consumer);
}

int nats_stream_tests(void)
{
	const struct CMUnitTest tests[] = {
		NATS_TEST(wiped_data_is_made_anew),
		NATS_TEST(a_stream_that_is_deleted_is_made_anew),
		NATS_TEST(a_user_who_may_not_see_consumers_publishes),
		NATS_TEST(a_stream_of_an_operator_is_changed_where_needed),
		NATS_TEST(a_stream_that_cannot_be_made_is_said_once),
		NATS_TEST(a_server_without_jetstream_is_not_up),
		NATS_TEST(what_others_send_comes_whatever_its_headers),
	};

	return cmocka_run_group_tests_name("nats streams", tests, NULL, NULL);
}
