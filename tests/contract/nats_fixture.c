#include "nats_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "adapters/bus/nats/nats_bus.h"
#include "waiting.h"

static const struct bus_group groups[] = {{.name = DECLARED}};

static const struct bus_channel channels[] = {
	{.name = EVENTS,
		.partitions = 4,
		.groups = groups,
		.group_count = 1,
		.stream = "ENTITLEMENTS",
		.subjects = GRANTED " " REVOKED " " EVENTS},
	{.name = OTHER, .partitions = 1},
};

/* ---- the bus ----------------------------------------------------------------------------- */

void nats_fixture_open(struct bus_fixture *fixture, const char *options)
{
	static char url[256];

	snprintf(url, sizeof(url), "%s?%s", nats_server_url(), options ? options : "");
	bus_fixture_open(fixture, nats_bus_new("faults", url, channels, 2));
}

void nats_fixture_reopen(struct bus_fixture *fixture, const char *options)
{
	bus_fixture_close(fixture);
	nats_fixture_open(fixture, options);
	bus_fixture_wait_until(fixture, true);
}

static void shape(struct bus_message *message, size_t number)
{
	message->subject = slice_of(number % 2 ? GRANTED : REVOKED);
	message->key = message->id;
}

int nats_fixture_setup(void **state)
{
	struct bus_fixture *fixture = qp_calloc(1, sizeof(*fixture));

	fixture->channel = EVENTS;
	fixture->shape = shape;
	bus_fixture_prepare();
	nats_server_start();
	nats_fixture_open(fixture, NULL);
	bus_fixture_wait_until(fixture, true);
	*state = fixture;
	return 0;
}

int nats_fixture_teardown(void **state)
{
	struct bus_fixture *fixture = *state;

	bus_fixture_close(fixture);
	nats_server_remove();
	free(fixture);
	return 0;
}

/* ---- the stream, seen from outside ------------------------------------------------------- */

void nats_admin_open(struct nats_admin *admin)
{
	assert_int_equal(natsConnection_ConnectTo(&admin->connection, nats_server_url()), NATS_OK);
	assert_int_equal(natsConnection_JetStream(&admin->js, admin->connection, NULL), NATS_OK);
}

void nats_admin_close(struct nats_admin *admin)
{
	jsCtx_Destroy(admin->js);
	natsConnection_Destroy(admin->connection);
}

void nats_admin_end(struct nats_admin *admin, natsSubscription *subscription)
{
	natsSubscription_Unsubscribe(subscription);
	assert_int_equal(natsConnection_Flush(admin->connection), NATS_OK);
	natsSubscription_Destroy(subscription);
}

static void count_message(struct bus_fixture *fixture, natsMsg *message)
{
	const char *id = NULL;

	assert_int_equal(natsMsgHeader_Get(message, "Nats-Msg-Id", &id), NATS_OK);
	bus_fixture_note(fixture, slice_of(id));
	natsMsg_Destroy(message);
}

static void read_stream(struct bus_fixture *fixture)
{
	struct nats_admin admin;
	jsStreamInfo *info = NULL;
	natsSubscription *all = NULL;
	jsSubOptions options;
	natsMsg *message = NULL;

	memset(fixture->seen, 0, sizeof(fixture->seen));
	nats_admin_open(&admin);
	assert_int_equal(js_GetStreamInfo(&info, admin.js, "ENTITLEMENTS", NULL, NULL), NATS_OK);
	jsSubOptions_Init(&options);
	options.Ordered = true;
	options.Stream = "ENTITLEMENTS";
	assert_int_equal(js_SubscribeSync(&all, admin.js, ">", NULL, &options, NULL), NATS_OK);
	for (uint64_t i = 0; i < info->State.Msgs; i++) {
		assert_int_equal(natsSubscription_NextMsg(&message, all, HANG_MS), NATS_OK);
		count_message(fixture, message);
	}
	nats_admin_end(&admin, all);
	jsStreamInfo_Destroy(info);
	nats_admin_close(&admin);
}

/* What is still on its way has time to arrive. */
void nats_fixture_assert_fates(struct bus_fixture *fixture)
{
	nap_ms(100);
	read_stream(fixture);
	bus_fixture_check_fates(fixture);
	for (size_t i = 0; i < fixture->sent_count; i++) {
		if (fixture->seen[i] > 1)
			fail_msg("%zu is there twice", i);
	}
}
