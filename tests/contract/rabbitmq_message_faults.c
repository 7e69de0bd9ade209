/*
 * Messages as other programs send and see them, messages that cannot be sent or used, and which
 * messages a group and each of its members get. On a real broker, looked at with an independent
 * client (see rabbitmq_server.h). Logins and URLs are in rabbitmq_login_faults.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "rabbitmq_fixture.h"
#include "rabbitmq_server.h"
#include "waiting.h"

/* The value of a header; fails where there is none. */
static struct slice header(const struct bus_delivery *delivery, const char *name)
{
	for (size_t i = 0; i < delivery->header_count; i++) {
		if (slice_is(delivery->headers[i].name, name))
			return delivery->headers[i].value;
	}
	fail_msg("there is no header %s", name);
	return slice_make(NULL, 0);
}

/* One message, taken off a queue by the independent client, as JSON. */
static const char *take(const char *queue)
{
	return rabbitmq_server_tell("get %s", queue);
}

static void assert_has(const char *json, const char *part)
{
	if (!json || !strstr(json, part))
		fail_msg("there is no %s in %s", part, json ? json : "nothing");
}

static void assert_has_not(const char *json, const char *part)
{
	if (json && strstr(json, part))
		fail_msg("there is %s in %s", part, json);
}

static enum bus_fate publish(struct rabbitmq_fixture *fixture, struct bus_message *message)
{
	struct producer *producer = fixture->base.producer;

	assert_int_equal(producer->ops->publish(producer, message, 1, in_ms(HANG_MS)), STATUS_OK);
	return message->fate;
}

/* ---- what others see --------------------------------------------------------------------- */

static void others_see_properties_headers_and_routing_key(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus_message *message = bus_fixture_make(&fixture->base, 1);
	const char *json;

	message->subject = slice_of("read");
	message->key = slice_of("user-7");
	message->headers[0] = (struct bus_header){
		slice_of("content-type"), slice_of("application/vnd.masstransit+json")};
	message->headers[1] = (struct bus_header){slice_of("traceparent"), slice_of("00-ab")};
	message->header_count = 2;
	assert_int_equal(publish(fixture, message), BUS_CONFIRMED);
	for (int group = ALL; group <= READS; group++) {
		json = take(fixture->groups[group].name);
		assert_has(json, "\"message_id\": \"0\"");
		assert_has(json, "\"delivery_mode\": 2");
		assert_has(json, "\"content_type\": \"application/vnd.masstransit+json\"");
		assert_has(json, "\"headers\": {\"traceparent\": \"00-ab\", \"key\": \"user-7\"}");
		assert_has(json, "\"routing_key\": \"read\"");
		assert_has(json, "\"body\": \"0\"");
	}
}

static void a_channel_without_a_group_keeps_its_messages(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus_message message = {.id = slice_of("x"), .value = slice_of("kept")};

	message.channel = slice_of(fixture->names[PLAIN]);
	assert_int_equal(publish(fixture, &message), BUS_CONFIRMED);
	assert_has(take(fixture->names[PLAIN]), "\"body\": \"kept\"");
}

/* ---- what others send -------------------------------------------------------------------- */

static void a_message_may_be_nothing_but_a_body(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus_delivery deliveries[2];

	rabbitmq_server_tell("publish %s message.new bare", fixture->names[EVENTS]);
	rabbitmq_server_tell("publish - %s direct", fixture->groups[ALL].name);
	bus_fixture_fetch_all(rabbitmq_fixture_consumer(fixture), deliveries, 2);
	assert_slice(deliveries[0].value, "bare");
	assert_slice(deliveries[0].subject, "message.new");
	assert_slice(deliveries[1].value, "direct");
	assert_slice(deliveries[1].subject, fixture->groups[ALL].name);
	for (size_t i = 0; i < 2; i++) {
		assert_slice(deliveries[i].id, "");
		assert_slice(deliveries[i].key, "");
		assert_int_equal(deliveries[i].header_count, 0);
		assert_false(deliveries[i].is_exhausted);
	}
	assert_false(slice_equal(deliveries[0].position, deliveries[1].position));
	bus_fixture_ack(rabbitmq_fixture_consumer(fixture), 2);
	bus_fixture_fetch_nothing(rabbitmq_fixture_consumer(fixture), 100);
}

static void headers_of_any_kind_become_text(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus_delivery delivery;

	rabbitmq_server_tell("odd %s message.new body", fixture->names[EVENTS]);
	bus_fixture_fetch_one(rabbitmq_fixture_consumer(fixture), &delivery);
	assert_slice(delivery.id, "odd-1");
	assert_slice(delivery.subject, "message.new");
	assert_slice(header(&delivery, "text"), "äöü");
	assert_slice(header(&delivery, "number"), "-5");
	assert_slice(header(&delivery, "big"), "1099511627776");
	assert_slice(header(&delivery, "yes"), "true");
	assert_slice(header(&delivery, "none"), "");
	assert_int_equal(header(&delivery, "bytes").len, 2);
	assert_slice(header(&delivery, "MT-Reason"), "an older one");
	assert_int_equal(delivery.header_count, BUS_HEADERS_MAX); /* the last did not fit */
}

/* ---- poison ------------------------------------------------------------------------------ */

static const char *error_queue(struct rabbitmq_fixture *fixture)
{
	static char name[64];

	snprintf(name, sizeof(name), "%s_error", fixture->groups[ALL].name);
	return name;
}

static void poison_goes_to_the_queue_of_errors(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus_delivery deliveries[3];
	struct bus_message *message = bus_fixture_make(&fixture->base, 1);
	const char *json;

	bus_fixture_publish_all(&fixture->base, 1, BUS_CONFIRMED);
	message->headers[0] = (struct bus_header){slice_of("traceparent"), slice_of("00-ab")};
	message->header_count = 1;
	assert_int_equal(publish(fixture, message), BUS_CONFIRMED);
	bus_fixture_publish_all(&fixture->base, 1, BUS_CONFIRMED);
	bus_fixture_fetch_all(rabbitmq_fixture_consumer(fixture), deliveries, 3);
	consumer_poison(rabbitmq_fixture_consumer(fixture), 1, "it is not JSON");
	bus_fixture_ack(rabbitmq_fixture_consumer(fixture), 3);
	bus_fixture_fetch_nothing(rabbitmq_fixture_consumer(fixture), 100);
	assert_string_equal(rabbitmq_server_tell("count %s", error_queue(fixture)), "1");
	json = take(error_queue(fixture));
	assert_has(json, "\"MT-Reason\": \"fault\"");
	assert_has(json, "\"MT-Fault-ExceptionType\": \"Quipu.UnusableMessage\"");
	assert_has(json, "\"MT-Fault-Message\": \"it is not JSON\"");
	assert_has(json, "\"MT-Fault-Timestamp\": \"20");
	assert_has(json, "\"traceparent\": \"00-ab\"");
	assert_has(json, "\"message_id\": \"0\"");
	assert_has(json, "\"delivery_mode\": 2");
	assert_has(json, "\"body\": \"0\"");
}

/* A copy keeps all but what would expire it, send it elsewhere, or have it refused. */
static void poison_keeps_the_properties_that_a_copy_can_have(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus_delivery delivery;
	const char *json;

	rabbitmq_server_tell("make-queue elsewhere durable");
	rabbitmq_server_tell("odd %s message.new body", fixture->names[EVENTS]);
	bus_fixture_fetch_one(rabbitmq_fixture_consumer(fixture), &delivery);
	consumer_poison(rabbitmq_fixture_consumer(fixture), 0, "odd");
	bus_fixture_ack(rabbitmq_fixture_consumer(fixture), 1);
	json = take(error_queue(fixture));
	assert_has(json, "\"MT-Reason\": \"fault\"");
	assert_has_not(json, "an older one");
	assert_has(json, "\"text\": \"\\u00e4\\u00f6\\u00fc\"");
	assert_has(json, "\"number\": -5");
	assert_has(json, "\"big\": 1099511627776");
	assert_has(json, "\"yes\": true");
	assert_has(json, "\"list\": [1, \"two\"]");
	assert_has(json, "\"table\": {\"inner\": 1}");
	assert_has(json, "\"when\": \"2024-05-06 07:08:09\"");
	assert_has(json, "\"content_type\": \"application/vnd.masstransit+json\"");
	assert_has(json, "\"content_encoding\": \"utf-8\"");
	assert_has(json, "\"priority\": 3");
	assert_has(json, "\"correlation_id\": \"correlation\"");
	assert_has(json, "\"reply_to\": \"reply\"");
	assert_has(json, "\"message_id\": \"odd-1\"");
	assert_has(json, "\"timestamp\": 1700000000");
	assert_has(json, "\"type\": \"kind\"");
	assert_has(json, "\"app_id\": \"app\"");
	assert_has(json, "\"delivery_mode\": 2");
	assert_has_not(json, "user_id");
	assert_has_not(json, "expiration");
	assert_has_not(json, "\"CC\"");
	assert_string_equal(rabbitmq_server_tell("count elsewhere"), "0");
}

/* The size of a header that, with the longest properties and the headers about the fault, about
 * fills a frame of 128 KiB. */
#define FILLING_SIZE 128852

/* Sizes on both sides of the largest that leaves the headers about the fault room in a frame. */
static void poison_that_fills_a_frame_goes_to_the_queue_of_errors(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct consumer *consumer = rabbitmq_fixture_consumer(fixture);
	struct bus_delivery delivery;
	int kept = 0, count = 0;

	for (int size = FILLING_SIZE - 64; size <= FILLING_SIZE + 64; size += 16) {
		rabbitmq_server_tell("wide %s message.new %d", fixture->names[EVENTS], size);
		bus_fixture_fetch_one(consumer, &delivery);
		consumer_poison(consumer, 0, "x");
		bus_fixture_ack(consumer, 1);
		kept += strstr(take(error_queue(fixture)), "\"pad\"") != NULL;
		count++;
	}
	assert_in_range(kept, 1, count - 1);
}

static void a_bare_message_can_be_poison(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus_delivery delivery;

	rabbitmq_server_tell("publish %s message.new bare", fixture->names[EVENTS]);
	bus_fixture_fetch_one(rabbitmq_fixture_consumer(fixture), &delivery);
	consumer_poison(rabbitmq_fixture_consumer(fixture), 0, "it says nothing");
	bus_fixture_ack(rabbitmq_fixture_consumer(fixture), 1);
	assert_has(take(error_queue(fixture)), "\"body\": \"bare\"");
}

/* The queue of errors may be deleted at any time. What is not in it is not acknowledged. */
static void poison_is_not_lost_with_its_queue(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct consumer *consumer = rabbitmq_fixture_consumer(fixture);
	int64_t deadline_ns = hang_deadline_ns();
	struct bus_delivery delivery;
	enum status status = STATUS_OK;

	for (int i = 0; i < 2; i++) {
		bus_fixture_publish_all(&fixture->base, 1, BUS_CONFIRMED);
		do {
			assert_true(clock_steady_ns(&clock_system) < deadline_ns);
			bus_fixture_fetch_one(rabbitmq_fixture_consumer(fixture), &delivery);
			consumer_poison(consumer, 0, "again and again");
			status = consumer->ops->ack(consumer, 1);
		} while (status != STATUS_OK);
		assert_string_equal(rabbitmq_server_tell("count %s", error_queue(fixture)), "1");
		rabbitmq_server_tell("delete-queue %s", error_queue(fixture));
	}
	bus_fixture_fetch_nothing(rabbitmq_fixture_consumer(fixture), 100);
}

static void poison_waits_where_it_cannot_be_put_aside(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus_delivery delivery;

	bus_fixture_publish_all(&fixture->base, 1, BUS_CONFIRMED);
	bus_fixture_fetch_one(rabbitmq_fixture_consumer(fixture), &delivery);
	assert_true(rabbitmq_server_try("alarm on"));
	consumer_poison(rabbitmq_fixture_consumer(fixture), 0, "there is no room for it");
	assert_int_equal(
		rabbitmq_fixture_consumer(fixture)->ops->ack(rabbitmq_fixture_consumer(fixture), 1),
		STATUS_BUS_UNAVAILABLE);
	rabbitmq_server_tell("alarm off");
	bus_fixture_wait_until(&fixture->base, true);
	rabbitmq_fixture_assert_fates(fixture); /* it comes again */
}

/* ---- messages that cannot be sent --------------------------------------------------------- */

static void a_message_that_nobody_wants_is_refused_alone(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus_message messages[60];

	for (size_t i = 0; i < 60; i++) {
		messages[i] = (struct bus_message){.value = slice_of("v")};
		messages[i].channel = slice_of(fixture->names[PICKY]);
		messages[i].subject = slice_of(i % 3 == 1 ? "unread" : "read");
	}
	assert_int_equal(bus_fixture_publish(&fixture->base, messages, 60, HANG_MS), STATUS_OK);
	for (size_t i = 0; i < 60; i++) {
		assert_int_equal(messages[i].fate, i % 3 == 1 ? BUS_NOT_PERSISTED : BUS_CONFIRMED);
		assert_false(messages[i].is_unfit); /* somebody may want it later */
	}
	assert_string_equal(rabbitmq_server_tell("count %s", fixture->groups[PICKS].name), "40");
}

static size_t count_fates(const struct bus_message *messages, size_t count, enum bus_fate fate)
{
	size_t found = 0;

	for (size_t i = 0; i < count; i++)
		found += messages[i].fate == fate;
	return found;
}

/* A nack does not prove that no queue has the message: another one may have taken it, or the same
 * one, if its node died meanwhile. */
static void what_a_full_queue_refuses_is_unknown(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus_message *messages = bus_fixture_make(&fixture->base, 20);
	size_t kept;

	rabbitmq_server_tell("limit %s 5", fixture->groups[PICKS].name);
	rabbitmq_server_tell("limit %s 5", fixture->groups[READS].name);
	for (size_t i = 0; i < 20; i++) {
		messages[i].subject = slice_of("read");
		messages[i].channel = slice_of(fixture->names[PICKY]);
	}
	assert_int_equal(bus_fixture_publish(&fixture->base, messages, 20, HANG_MS), STATUS_OK);
	kept = (size_t)atol(rabbitmq_server_tell("count %s", fixture->groups[PICKS].name));
	assert_in_range(kept, 5, 10);
	assert_int_equal(count_fates(messages, 20, BUS_CONFIRMED), kept);
	assert_int_equal(count_fates(messages, 20, BUS_UNKNOWN), 20 - kept);
	for (size_t i = 0; i < 20; i++)
		messages[i].channel = slice_of(fixture->names[EVENTS]);
	assert_int_equal(bus_fixture_publish(&fixture->base, messages, 20, HANG_MS), STATUS_OK);
	kept = (size_t)atol(rabbitmq_server_tell("count %s", fixture->groups[READS].name));
	assert_int_equal(count_fates(messages, 20, BUS_CONFIRMED), kept);
	assert_int_equal(count_fates(messages, 20, BUS_UNKNOWN), 20 - kept);
	/* A message that one queue has refused may be on its way to the other still. */
	WAIT_UNTIL(!strcmp(rabbitmq_server_tell("count %s", fixture->groups[ALL].name), "20"));
}

#define LONG_MAX_BYTES (70u * 1024 * 1024)

static void a_message_that_amqp_cannot_hold_is_refused_alone(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	char *bytes = qp_calloc(1, LONG_MAX_BYTES);
	struct bus_message *messages = bus_fixture_make(&fixture->base, 8);

	memset(bytes, 'x', 256 * 1024);
	messages[0].subject = slice_make(bytes, 256);
	messages[1].id = slice_make(bytes, 256);
	messages[2].headers[0].name = slice_make(bytes, 256);
	messages[3].headers[0].value = slice_make(bytes, 128 * 1024);
	messages[4].headers[0] =
		(struct bus_header){slice_of("content-type"), slice_make(bytes, 256)};
	messages[5].key = slice_make(bytes, 200 * 1024);
	messages[6].value = slice_make(bytes, LONG_MAX_BYTES);
	messages[2].header_count = messages[3].header_count = messages[4].header_count = 1;
	assert_int_equal(bus_fixture_publish(&fixture->base, messages, 8, HANG_MS), STATUS_OK);
	for (size_t i = 0; i < 7; i++) {
		assert_int_equal(messages[i].fate, BUS_NOT_PERSISTED);
		assert_true(messages[i].is_unfit);
	}
	assert_int_equal(messages[7].fate, BUS_CONFIRMED);
	assert_false(messages[7].is_unfit);
	messages = bus_fixture_make(&fixture->base, 2);
	messages[0].subject = slice_make(bytes, 255);
	messages[1].headers[0] =
		(struct bus_header){slice_make(bytes, 255), slice_make(bytes, 120 * 1024)};
	messages[1].header_count = 1;
	assert_int_equal(bus_fixture_publish(&fixture->base, messages, 2, HANG_MS), STATUS_OK);
	assert_int_equal(messages[0].fate, BUS_CONFIRMED);
	assert_int_equal(messages[1].fate, BUS_CONFIRMED);
	free(bytes);
	rabbitmq_fixture_assert_fates(fixture);
}

/* ---- groups ------------------------------------------------------------------------------ */

static void a_group_that_nobody_named_gets_what_comes_from_now_on(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	char name[64];
	struct bus_delivery delivery;
	size_t count = 0;

	bus_fixture_publish_all(&fixture->base, 5, BUS_CONFIRMED);
	snprintf(name, sizeof(name), "%s-more", fixture->groups[ALL].name);
	(void)bus_fixture_consumer(&fixture->base, name);
	while (count == 0) {
		bus_fixture_publish_all(&fixture->base, 1, BUS_CONFIRMED);
		count = bus_fixture_fetch(rabbitmq_fixture_consumer(fixture), &delivery, 1, 100);
	}
	assert_true(strtol(delivery.id.data, NULL, 10) >= 5);
	bus_fixture_ack(rabbitmq_fixture_consumer(fixture), 1);
}

/* Notes and acknowledges the first `count` deliveries. */
static void take_deliveries(struct rabbitmq_fixture *fixture, struct consumer *consumer,
	const struct bus_delivery *deliveries, size_t count)
{
	for (size_t i = 0; i < count; i++)
		bus_fixture_note(&fixture->base, deliveries[i].id);
	assert_int_equal(consumer->ops->ack(consumer, count), STATUS_OK);
}

/* Publishes until both have got something, so that both are connected. */
static void wait_for_both(struct rabbitmq_fixture *fixture, struct consumer *const members[2])
{
	int64_t deadline_ns = hang_deadline_ns();
	struct bus_delivery deliveries[10];
	size_t got[2] = {0};

	while (got[0] == 0 || got[1] == 0) {
		bus_fixture_publish_all(&fixture->base, 2, BUS_CONFIRMED);
		for (int i = 0; i < 2; i++) {
			size_t count = 0;

			assert_int_equal(members[i]->ops->fetch(
						 members[i], deliveries, 10, &count, in_ms(50)),
				STATUS_OK);
			take_deliveries(fixture, members[i], deliveries, count);
			got[i] += count;
		}
		wait_on(deadline_ns, "both members get something");
	}
}

static void members_share_and_the_rest_goes_to_who_is_left(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus *bus = fixture->base.bus;
	struct consumer *other =
		bus->ops->open_consumer(bus, fixture->names[EVENTS], fixture->groups[ALL].name);
	struct consumer *const members[2] = {rabbitmq_fixture_consumer(fixture), other};
	struct bus_delivery deliveries[200];
	int64_t deadline_ns = hang_deadline_ns();
	size_t count = 0;

	wait_for_both(fixture, members);
	bus_fixture_publish_all(&fixture->base, 400, BUS_CONFIRMED);
	while (count <= 100) { /* each fetch gives those of the last again, and more */
		assert_true(clock_steady_ns(&clock_system) < deadline_ns);
		assert_int_equal(other->ops->fetch(other, deliveries, 200, &count, in_ms(HANG_MS)),
			STATUS_OK);
	}
	take_deliveries(fixture, other, deliveries, count / 2);
	other->ops->close(other); /* with the other half in hand */
	rabbitmq_fixture_assert_fates(fixture);
	for (size_t i = 0; i < fixture->base.sent_count; i++)
		assert_int_equal(fixture->base.seen[i], 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(others_see_properties_headers_and_routing_key),
		FIXTURE_TEST(a_channel_without_a_group_keeps_its_messages),
		FIXTURE_TEST(a_message_may_be_nothing_but_a_body),
		FIXTURE_TEST(headers_of_any_kind_become_text),
		FIXTURE_TEST(poison_goes_to_the_queue_of_errors),
		FIXTURE_TEST(poison_keeps_the_properties_that_a_copy_can_have),
		FIXTURE_TEST(poison_that_fills_a_frame_goes_to_the_queue_of_errors),
		FIXTURE_TEST(a_bare_message_can_be_poison),
		FIXTURE_TEST(poison_is_not_lost_with_its_queue),
		FIXTURE_TEST(poison_waits_where_it_cannot_be_put_aside),
		FIXTURE_TEST(a_message_that_nobody_wants_is_refused_alone),
		FIXTURE_TEST(what_a_full_queue_refuses_is_unknown),
		FIXTURE_TEST(a_message_that_amqp_cannot_hold_is_refused_alone),
		FIXTURE_TEST(a_group_that_nobody_named_gets_what_comes_from_now_on),
		FIXTURE_TEST(members_share_and_the_rest_goes_to_who_is_left),
	};
	int failed;

	rabbitmq_server_start();
	failed = cmocka_run_group_tests_name("rabbitmq message faults", tests, NULL, NULL);
	rabbitmq_server_end();
	return failed;
}
