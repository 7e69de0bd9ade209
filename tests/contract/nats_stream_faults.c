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
	nats_server_wipe();
	nats_server_start();
	bus_fixture_wait_until(fixture, false);
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
	bus_fixture_wait_until(fixture, true);
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

int nats_stream_tests(void)
{
	const struct CMUnitTest tests[] = {
		NATS_TEST(wiped_data_is_made_anew),
		NATS_TEST(a_stream_that_is_deleted_is_made_anew),
		NATS_TEST(a_stream_of_an_operator_is_changed_where_needed),
		NATS_TEST(a_stream_that_cannot_be_made_is_said_once),
		NATS_TEST(a_server_without_jetstream_is_not_up),
	};

	return cmocka_run_group_tests_name("nats streams", tests, NULL, NULL);
}
