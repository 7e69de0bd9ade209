/* What ports/notifier.h promises, on the engine that QUIPU_CONTRACT_CHANNEL names: log, webhook. */
#include "notifier_fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "adapters/notifier/console/console_notifier.h"
#include "base/arena.h"
#include "base/log.h"
#include "waiting.h"

/* The notices themselves are no part of a test's report; tests/unit/test_console_notifier.c reads
 * them. */
static int silence_log(void **state)
{
	(void)state;
	log_configure(LOG_WARN, LOG_TEXT);
	return 0;
}

static int setup(void **state)
{
	struct notifier_fixture *fixture = qp_calloc(1, sizeof(*fixture));
	const char *engine = getenv("QUIPU_CONTRACT_CHANNEL");

	if (engine && strcmp(engine, "webhook") == 0) {
		fixture->server = hook_server_start(false);
		fixture->notifier = notifier_fixture_webhook(fixture->server, NULL);
	} else {
		fixture->notifier = console_notifier_new();
	}
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct notifier_fixture *fixture = *state;

	fixture->notifier->ops->free(fixture->notifier);
	if (fixture->server)
		hook_server_stop(fixture->server);
	free(fixture);
	return 0;
}

static size_t free_slots(const struct notifier_fixture *fixture)
{
	return fixture->notifier->ops->free_slots(fixture->notifier);
}

/* ---- sending ----------------------------------------------------------------------------- */

static void a_new_notifier_has_all_its_slots_free(void **state)
{
	struct notifier_fixture *fixture = *state;

	assert_true(fixture->notifier->slots > 0);
	assert_true(fixture->notifier->longest_ns > 0);
	assert_non_null(fixture->notifier->engine);
	assert_int_equal(free_slots(fixture), fixture->notifier->slots);
}

static void a_notice_is_told_once_with_its_tag(void **state)
{
	struct notifier_fixture *fixture = *state;
	const struct notice_result *result;

	notifier_fixture_send(fixture, "200.a", UINT64_MAX);
	notifier_fixture_gather(fixture, 1);
	result = notifier_fixture_result(fixture, UINT64_MAX);
	assert_int_equal(result->fate, NOTICE_SENT);
	assert_string_equal(result->error, "");
	assert_int_equal(notifier_fixture_wait(fixture, 0), 0);
}

static void a_slot_is_taken_until_its_result_is_given(void **state)
{
	struct notifier_fixture *fixture = *state;

	notifier_fixture_send(fixture, "200.a", 1);
	assert_int_equal(free_slots(fixture), fixture->notifier->slots - 1);
	notifier_fixture_send(fixture, "200.b", 2);
	assert_int_equal(free_slots(fixture), fixture->notifier->slots - 2);
	notifier_fixture_gather(fixture, 2);
	assert_int_equal(free_slots(fixture), fixture->notifier->slots);
}

static void every_slot_can_be_used_again_and_again(void **state)
{
	struct notifier_fixture *fixture = *state;

	for (uint64_t round = 0; round < 3; round++) {
		fixture->result_count = 0;
		for (uint64_t i = 0; i < fixture->notifier->slots; i++)
			notifier_fixture_send(fixture, "200.a", round << 32 | i);
		assert_int_equal(free_slots(fixture), 0);
		notifier_fixture_gather(fixture, fixture->notifier->slots);
		for (uint64_t i = 0; i < fixture->notifier->slots; i++)
			assert_int_equal(notifier_fixture_result(fixture, round << 32 | i)->fate,
				NOTICE_SENT);
		assert_int_equal(free_slots(fixture), fixture->notifier->slots);
	}
}

static void no_more_results_are_given_than_asked_for(void **state)
{
	struct notifier_fixture *fixture = *state;
	struct notifier *notifier = fixture->notifier;
	int64_t deadline_ns = hang_deadline_ns();
	bool seen[10] = {false};
	size_t total = 0;

	for (uint64_t i = 0; i < COUNT_OF(seen); i++)
		notifier_fixture_send(fixture, "200.a", i);
	while (total < COUNT_OF(seen)) {
		struct notice_result results[3];
		size_t count = notifier->ops->wait(notifier, results, 3, deadline_ns);

		assert_in_range(count, 1, 3);
		for (size_t i = 0; i < count; i++) {
			assert_false(seen[results[i].tag]);
			seen[results[i].tag] = true;
		}
		total += count;
		assert_int_equal(free_slots(fixture), notifier->slots - (COUNT_OF(seen) - total));
	}
}

static void what_is_sent_is_copied(void **state)
{
	struct notifier_fixture *fixture = *state;
	char id[] = "200.copied", trace[] = "00-trace-01", body[] = "{\"a\":1}";
	struct notice notice = {
		.id = slice_of(id), .trace = slice_of(trace), .body = slice_of(body), .tag = 1};

	fixture->notifier->ops->send(fixture->notifier, &notice);
	memset(id, 'x', sizeof(id));
	memset(trace, 'x', sizeof(trace));
	memset(body, 'x', sizeof(body));
	notifier_fixture_gather(fixture, 1);
	if (fixture->server) {
		struct hook_request request = hook_server_request(fixture->server, 0);

		assert_string_equal(request.body, "{\"a\":1}");
		assert_non_null(strstr(request.head, "200.copied"));
		assert_non_null(strstr(request.head, "00-trace-01"));
	}
}

static void bodies_of_any_kind_are_sent(void **state)
{
	struct notifier_fixture *fixture = *state;
	static char large[64 * 1024];
	struct notice notices[] = {
		{.id = SLICE("200.a"), .tag = 1},
		{.id = SLICE("200.b"),
			.body = SLICE("{\"text\":\"a\\nb \x1b[31m\xc3\xa4\"}"),
			.tag = 2},
		{.id = SLICE("200.c"), .body = slice_make(large, sizeof(large)), .tag = 3},
	};

	memset(large, 'a', sizeof(large));
	for (size_t i = 0; i < COUNT_OF(notices); i++)
		fixture->notifier->ops->send(fixture->notifier, &notices[i]);
	notifier_fixture_gather(fixture, COUNT_OF(notices));
	for (uint64_t tag = 1; tag <= COUNT_OF(notices); tag++)
		assert_int_equal(notifier_fixture_result(fixture, tag)->fate, NOTICE_SENT);
}

/* ---- waiting ----------------------------------------------------------------------------- */

static void assert_waits_ms(struct notifier_fixture *fixture, int64_t ms)
{
	int64_t until_ns = in_ms(ms);

	assert_int_equal(notifier_fixture_wait(fixture, ms), 0);
	assert_true(clock_steady_ns(&clock_system) >= until_ns - NS_PER_MS);
}

static void a_wait_for_nothing_ends_at_its_time(void **state)
{
	struct notifier_fixture *fixture = *state;

	assert_waits_ms(fixture, 100);
	assert_int_equal(
		fixture->notifier->ops->wait(fixture->notifier, fixture->results, 1, 0), 0);
}

static void a_wake_ends_the_next_wait_and_no_other(void **state)
{
	struct notifier_fixture *fixture = *state;

	fixture->notifier->ops->wake(fixture->notifier);
	fixture->notifier->ops->wake(fixture->notifier);
	assert_int_equal(notifier_fixture_wait(fixture, NEVER_MS), 0);
	assert_waits_ms(fixture, 100);
}

static void *wake_later(void *notifier)
{
	nap_ms(20); /* most often the other thread waits by then */
	((struct notifier *)notifier)->ops->wake(notifier);
	return NULL;
}

static void a_wake_from_another_thread_ends_a_wait(void **state)
{
	struct notifier_fixture *fixture = *state;
	pthread_t thread;

	pthread_create(&thread, NULL, wake_later, fixture->notifier);
	assert_int_equal(notifier_fixture_wait(fixture, NEVER_MS), 0);
	pthread_join(thread, NULL);
}

static void *wake_often(void *notifier)
{
	for (int i = 0; i < 1000; i++)
		((struct notifier *)notifier)->ops->wake(notifier);
	return NULL;
}

static void wakes_lose_no_results(void **state)
{
	struct notifier_fixture *fixture = *state;
	size_t count = fixture->notifier->slots;
	pthread_t thread;

	pthread_create(&thread, NULL, wake_often, fixture->notifier);
	for (uint64_t i = 0; i < count; i++)
		notifier_fixture_send(fixture, "200.a", i);
	notifier_fixture_gather(fixture, count);
	pthread_join(thread, NULL);
	for (uint64_t i = 0; i < count; i++)
		assert_int_equal(notifier_fixture_result(fixture, i)->fate, NOTICE_SENT);
}

/* ---- the end ----------------------------------------------------------------------------- */

/* What is left behind, ASan tells. */
static void a_notifier_can_be_freed_with_notices_in_it(void **state)
{
	struct notifier_fixture *fixture = *state;
	struct notice_result result;

	for (uint64_t i = 0; i < 10; i++)
		notifier_fixture_send(fixture, "200.a", i);
	assert_int_equal(fixture->notifier->ops->wait(fixture->notifier, &result, 1, INT64_MAX), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(a_new_notifier_has_all_its_slots_free),
		TEST(a_notice_is_told_once_with_its_tag),
		TEST(a_slot_is_taken_until_its_result_is_given),
		TEST(every_slot_can_be_used_again_and_again),
		TEST(no_more_results_are_given_than_asked_for),
		TEST(what_is_sent_is_copied),
		TEST(bodies_of_any_kind_are_sent),
		TEST(a_wait_for_nothing_ends_at_its_time),
		TEST(a_wake_ends_the_next_wait_and_no_other),
		TEST(a_wake_from_another_thread_ends_a_wait),
		TEST(wakes_lose_no_results),
		TEST(a_notifier_can_be_freed_with_notices_in_it),
	};

	return cmocka_run_group_tests(tests, silence_log, NULL);
}
