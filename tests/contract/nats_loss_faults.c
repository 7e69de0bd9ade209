/*
 * A stream that has lost its end while the connection stays, as in a cluster. Part of
 * nats_delivery_faults.
 *
 * One nats-server cannot do that, so here the test itself is JetStream: it answers the requests of
 * the bus on a server without JetStream, and decides which sequences messages get.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/bus/nats/nats_bus.h"
#include "nats_faults.h"
#include "nats_fixture.h"
#include "waiting.h"

#define GROUPS 2
#define LAST 10 /* before the loss */
#define KEPT 5  /* after the loss */

static const struct bus_group groups[GROUPS] = {{.name = "first"}, {.name = "second"}};

static const struct bus_channel channels[] = {
	{.name = EVENTS,
		.partitions = 1,
		.groups = groups,
		.group_count = GROUPS,
		.stream = "ENTITLEMENTS",
		.subjects = GRANTED " " REVOKED " " EVENTS},
};

/* A stream and its durables. What is below the lock is guarded by it. */
struct jetstream {
	struct nats_admin admin;
	natsSubscription *requests;
	natsSubscription *messages;

	pthread_mutex_t lock;
	int last;
	int delivered[GROUPS];
	bool deleted[GROUPS];
	bool grows;     /* another process publishes as soon as a durable is deleted */
	bool duplicate; /* the server has had the next messages before */
};

static struct jetstream jetstream = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- JetStream's replies ----------------------------------------------------------------- */

static void reply(natsMsg *request, const char *text)
{
	assert_int_equal(natsConnection_PublishString(
				 jetstream.admin.connection, natsMsg_GetReply(request), text),
		NATS_OK);
}

static int group_of(const char *subject)
{
	return strstr(subject, ".second") ? 1 : 0;
}

static void describe_stream(natsMsg *request)
{
	char text[320];

	snprintf(text, sizeof(text),
		"{\"config\":{\"name\":\"ENTITLEMENTS\",\"subjects\":[\"entitlements.>\"],"
		"\"max_age\":604800000000000,\"duplicate_window\":600000000000},"
		"\"state\":{\"last_seq\":%d}}",
		jetstream.last);
	reply(request, text);
}

static void describe_durable(natsMsg *request, int group)
{
	char text[320];

	snprintf(text, sizeof(text),
		"{\"config\":{\"ack_policy\":\"explicit\",\"ack_wait\":30000000000,"
		"\"max_deliver\":20},\"delivered\":{\"stream_seq\":%d}}",
		jetstream.delivered[group]);
	reply(request, text);
}

static void delete_durable(natsMsg *request, int group)
{
	jetstream.deleted[group] = true;
	jetstream.delivered[group] = 0;
	if (jetstream.grows)
		jetstream.last = LAST;
	reply(request, "{\"success\":true}");
}

static void answer_request(
	natsConnection *connection, natsSubscription *subscription, natsMsg *request, void *context)
{
	const char *subject = natsMsg_GetSubject(request);

	(void)connection, (void)subscription, (void)context;
	pthread_mutex_lock(&jetstream.lock);
	if (strstr(subject, "STREAM.INFO"))
		describe_stream(request);
	else if (strstr(subject, "CONSUMER.INFO"))
		describe_durable(request, group_of(subject));
	else if (strstr(subject, "CONSUMER.DELETE"))
		delete_durable(request, group_of(subject));
	pthread_mutex_unlock(&jetstream.lock);
	natsMsg_Destroy(request);
}

static void store_message(
	natsConnection *connection, natsSubscription *subscription, natsMsg *message, void *context)
{
	char text[96];

	(void)connection, (void)subscription, (void)context;
	pthread_mutex_lock(&jetstream.lock);
	snprintf(text, sizeof(text), "{\"stream\":\"ENTITLEMENTS\",\"seq\":%d%s}",
		jetstream.duplicate ? jetstream.last : ++jetstream.last,
		jetstream.duplicate ? ",\"duplicate\":true" : "");
	reply(message, text);
	pthread_mutex_unlock(&jetstream.lock);
	natsMsg_Destroy(message);
}

/* ---- before and after the loss ----------------------------------------------------------- */

static void set_stream(int last, int first, int second)
{
	pthread_mutex_lock(&jetstream.lock);
	jetstream.last = last;
	jetstream.delivered[0] = first;
	jetstream.delivered[1] = second;
	pthread_mutex_unlock(&jetstream.lock);
}

static bool is_deleted(int group)
{
	bool deleted;

	pthread_mutex_lock(&jetstream.lock);
	deleted = jetstream.deleted[group];
	pthread_mutex_unlock(&jetstream.lock);
	return deleted;
}

static void open_bus(struct bus_fixture *fixture)
{
	static char url[128];

	snprintf(url, sizeof(url), "%s", nats_server_url());
	bus_fixture_open(fixture, nats_bus_new("faults", url, channels, 1));
	bus_fixture_wait_until(fixture, true);
}

/* From now on, published messages get the next sequences of `jetstream`. */
static void store_messages(void)
{
	assert_int_equal(natsConnection_Subscribe(&jetstream.messages, jetstream.admin.connection,
				 "entitlements.>", store_message, NULL),
		NATS_OK);
	assert_int_equal(natsConnection_Flush(jetstream.admin.connection), NATS_OK);
}

static int setup(void **state)
{
	assert_int_equal(nats_fixture_setup(state), 0);
	bus_fixture_close(*state);
	nats_server_stop();
	nats_server_use_jetstream(false);
	nats_server_start();
	nats_server_use_jetstream(true);
	memset(jetstream.deleted, 0, sizeof(jetstream.deleted));
	jetstream.grows = jetstream.duplicate = false;
	set_stream(0, 0, 0);
	assert_int_equal(
		natsConnection_ConnectTo(&jetstream.admin.connection, nats_server_url()), NATS_OK);
	assert_int_equal(natsConnection_Subscribe(&jetstream.requests, jetstream.admin.connection,
				 "$JS.API.>", answer_request, NULL),
		NATS_OK);
	store_messages();
	return 0;
}

static int teardown(void **state)
{
	bus_fixture_close(*state);
	natsConnection_Close(jetstream.admin.connection);
	natsSubscription_Destroy(jetstream.requests);
	natsSubscription_Destroy(jetstream.messages);
	natsConnection_Destroy(jetstream.admin.connection);
	return nats_fixture_teardown(state);
}

/* ---- the tests --------------------------------------------------------------------------- */

/* Another process is the first to publish after the loss, so its message grows the stream, while
 * the first group is repaired, to where the second group already is. */
static void groups_are_compared_before_the_stream_can_grow_again(void **state)
{
	struct bus_fixture *fixture = *state;

	set_stream(KEPT, LAST, LAST);
	jetstream.grows = true;
	open_bus(fixture);
	assert_true(is_deleted(0));
	assert_true(is_deleted(1));
}

static void only_a_group_that_has_read_lost_messages_starts_again(void **state)
{
	struct bus_fixture *fixture = *state;

	set_stream(KEPT, KEPT, LAST);
	open_bus(fixture);
	assert_false(is_deleted(0));
	assert_true(is_deleted(1));
}

/* The real stream no longer has our subjects, so that the test can reply instead. */
static void take_subjects_from_stream(void)
{
	static const char *others[] = {"nobody.publishes.here"};
	jsStreamConfig config;

	jsStreamConfig_Init(&config);
	config.Name = "ENTITLEMENTS";
	config.Subjects = others;
	config.SubjectsLen = 1;
	assert_int_equal(js_UpdateStream(NULL, jetstream.admin.js, &config, NULL, NULL), NATS_OK);
}

/* This process knows the messages of another process only because it has consumed them. Consumed on
 * a real JetStream, because nobody else can deliver a message. */
static void a_reused_sequence_of_a_consumed_message_is_noticed(void **state)
{
	struct bus_fixture *fixture = *state;
	struct consumer *consumer = bus_fixture_consumer(fixture, DECLARED);

	for (int i = 0; i < LAST; i++)
		nats_server_publish(EVENTS, NULL, 0, "x", 1);
	bus_fixture_consume(consumer, LAST);
	nats_admin_open(&jetstream.admin);
	take_subjects_from_stream();
	jetstream.duplicate = false;
	set_stream(LAST - 1, 0, 0);
	store_messages();
	bus_fixture_publish_all(fixture, 1, BUS_CONFIRMED); /* becomes LAST again */
	bus_fixture_consume(consumer, LAST);
	bus_fixture_close_consumer(fixture, consumer);
	nats_admin_end(&jetstream.admin, jetstream.messages);
	nats_admin_close(&jetstream.admin);
}

static void a_reused_sequence_of_a_duplicate_is_noticed(void **state)
{
	struct bus_fixture *fixture = *state;

	open_bus(fixture);
	set_stream(LAST, LAST, 0);
	jetstream.duplicate = true;
	bus_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	jetstream.duplicate = false;
	set_stream(LAST - 1, LAST, 0);
	bus_fixture_publish_all(fixture, 1, BUS_CONFIRMED); /* becomes LAST again */
	WAIT_UNTIL(is_deleted(0));
	assert_false(is_deleted(1));
}

#define LOSS_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int nats_loss_tests(void)
{
	const struct CMUnitTest tests[] = {
		LOSS_TEST(groups_are_compared_before_the_stream_can_grow_again),
		LOSS_TEST(only_a_group_that_has_read_lost_messages_starts_again),
		NATS_TEST(a_reused_sequence_of_a_consumed_message_is_noticed),
		LOSS_TEST(a_reused_sequence_of_a_duplicate_is_noticed),
	};

	return cmocka_run_group_tests_name("nats loss", tests, NULL, NULL);
}
