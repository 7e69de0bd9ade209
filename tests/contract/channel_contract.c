/* What ports/channel.h promises, on the engine that QUIPU_CONTRACT_CHANNEL names: log, webhook. */
#include "channel_bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "adapters/console/console_channel.h"
#include "base/arena.h"
#include "base/log.h"

/* The notices themselves are no part of a test's report; tests/unit/test_console_channel.c reads
 * them. */
static int silence_log(void **state)
{
	(void)state;
	log_configure(LOG_WARN, LOG_TEXT);
	return 0;
}

static int setup(void **state)
{
	struct channel_bench *bench = qp_calloc(1, sizeof(*bench));
	const char *engine = getenv("QUIPU_CONTRACT_CHANNEL");

	if (engine && strcmp(engine, "webhook") == 0) {
		bench->server = hook_server_start(false);
		bench->channel = bench_webhook(bench->server, NULL);
	} else {
		bench->channel = console_channel_new();
	}
	*state = bench;
	return 0;
}

static int teardown(void **state)
{
	struct channel_bench *bench = *state;

	bench->channel->ops->free(bench->channel);
	if (bench->server)
		hook_server_stop(bench->server);
	free(bench);
	return 0;
}

static size_t free_slots(const struct channel_bench *bench)
{
	return bench->channel->ops->free_slots(bench->channel);
}

/* ---- sending ----------------------------------------------------------------------------- */

static void a_new_channel_has_all_its_slots_free(void **state)
{
	struct channel_bench *bench = *state;

	assert_true(bench->channel->slots > 0);
	assert_true(bench->channel->longest_ns > 0);
	assert_non_null(bench->channel->engine);
	assert_int_equal(free_slots(bench), bench->channel->slots);
}

static void a_notice_is_told_once_with_its_tag(void **state)
{
	struct channel_bench *bench = *state;
	const struct notice_result *result;

	bench_send(bench, "200.a", UINT64_MAX);
	bench_gather(bench, 1);
	result = bench_result(bench, UINT64_MAX);
	assert_int_equal(result->fate, NOTICE_SENT);
	assert_string_equal(result->error, "");
	assert_int_equal(bench_wait(bench, 0), 0);
}

static void a_slot_is_taken_until_its_result_is_given(void **state)
{
	struct channel_bench *bench = *state;

	bench_send(bench, "200.a", 1);
	assert_int_equal(free_slots(bench), bench->channel->slots - 1);
	bench_send(bench, "200.b", 2);
	assert_int_equal(free_slots(bench), bench->channel->slots - 2);
	bench_gather(bench, 2);
	assert_int_equal(free_slots(bench), bench->channel->slots);
}

static void every_slot_can_be_used_again_and_again(void **state)
{
	struct channel_bench *bench = *state;

	for (uint64_t round = 0; round < 3; round++) {
		bench->result_count = 0;
		for (uint64_t i = 0; i < bench->channel->slots; i++)
			bench_send(bench, "200.a", round << 32 | i);
		assert_int_equal(free_slots(bench), 0);
		bench_gather(bench, bench->channel->slots);
		for (uint64_t i = 0; i < bench->channel->slots; i++)
			assert_int_equal(bench_result(bench, round << 32 | i)->fate, NOTICE_SENT);
		assert_int_equal(free_slots(bench), bench->channel->slots);
	}
}

static void no_more_results_are_given_than_asked_for(void **state)
{
	struct channel_bench *bench = *state;
	struct channel *channel = bench->channel;
	int64_t until_ms = bench_now_ms() + 10000;
	bool seen[10] = {false};
	size_t total = 0;

	for (uint64_t i = 0; i < COUNT_OF(seen); i++)
		bench_send(bench, "200.a", i);
	while (total < COUNT_OF(seen)) {
		struct notice_result results[3];
		size_t count = channel->ops->wait(channel, results, 3, until_ms * NS_PER_MS);

		assert_in_range(count, 1, 3);
		for (size_t i = 0; i < count; i++) {
			assert_false(seen[results[i].tag]);
			seen[results[i].tag] = true;
		}
		total += count;
		assert_int_equal(free_slots(bench), channel->slots - (COUNT_OF(seen) - total));
	}
}

static void what_is_sent_is_copied(void **state)
{
	struct channel_bench *bench = *state;
	char id[] = "200.copied", trace[] = "00-trace-01", body[] = "{\"a\":1}";
	struct notice notice = {
		.id = slice_of(id), .trace = slice_of(trace), .body = slice_of(body), .tag = 1};

	bench->channel->ops->send(bench->channel, &notice);
	memset(id, 'x', sizeof(id));
	memset(trace, 'x', sizeof(trace));
	memset(body, 'x', sizeof(body));
	bench_gather(bench, 1);
	if (bench->server) {
		struct hook_request request = hook_server_request(bench->server, 0);

		assert_string_equal(request.body, "{\"a\":1}");
		assert_non_null(strstr(request.head, "200.copied"));
		assert_non_null(strstr(request.head, "00-trace-01"));
	}
}

static void bodies_of_any_kind_are_sent(void **state)
{
	struct channel_bench *bench = *state;
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
		bench->channel->ops->send(bench->channel, &notices[i]);
	bench_gather(bench, COUNT_OF(notices));
	for (uint64_t tag = 1; tag <= COUNT_OF(notices); tag++)
		assert_int_equal(bench_result(bench, tag)->fate, NOTICE_SENT);
}

/* ---- waiting ----------------------------------------------------------------------------- */

static void a_wait_for_nothing_ends_at_its_time(void **state)
{
	struct channel_bench *bench = *state;
	int64_t began_ms = bench_now_ms();

	assert_int_equal(bench_wait(bench, 200), 0);
	assert_in_range(bench_now_ms() - began_ms, 199, 200 + AT_ONCE_MS);
	began_ms = bench_now_ms();
	assert_int_equal(bench->channel->ops->wait(bench->channel, bench->results, 1, 0), 0);
	assert_in_range(bench_now_ms() - began_ms, 0, AT_ONCE_MS);
}

static void a_wake_ends_the_next_wait_and_no_other(void **state)
{
	struct channel_bench *bench = *state;
	int64_t began_ms = bench_now_ms();

	bench->channel->ops->wake(bench->channel);
	bench->channel->ops->wake(bench->channel);
	assert_int_equal(bench_wait(bench, 10000), 0);
	assert_in_range(bench_now_ms() - began_ms, 0, AT_ONCE_MS);
	began_ms = bench_now_ms();
	assert_int_equal(bench_wait(bench, 100), 0);
	assert_in_range(bench_now_ms() - began_ms, 99, 100 + AT_ONCE_MS);
}

static void *wake_later(void *channel)
{
	struct timespec pause = {.tv_nsec = 100 * NS_PER_MS};

	nanosleep(&pause, NULL);
	((struct channel *)channel)->ops->wake(channel);
	return NULL;
}

static void a_wake_from_another_thread_ends_a_wait(void **state)
{
	struct channel_bench *bench = *state;
	int64_t began_ms = bench_now_ms();
	pthread_t thread;

	pthread_create(&thread, NULL, wake_later, bench->channel);
	assert_int_equal(bench_wait(bench, 10000), 0);
	assert_in_range(bench_now_ms() - began_ms, 99, 100 + AT_ONCE_MS);
	pthread_join(thread, NULL);
}

static void *wake_often(void *channel)
{
	for (int i = 0; i < 1000; i++)
		((struct channel *)channel)->ops->wake(channel);
	return NULL;
}

static void wakes_lose_no_results(void **state)
{
	struct channel_bench *bench = *state;
	size_t count = bench->channel->slots;
	pthread_t thread;

	pthread_create(&thread, NULL, wake_often, bench->channel);
	for (uint64_t i = 0; i < count; i++)
		bench_send(bench, "200.a", i);
	bench_gather(bench, count);
	pthread_join(thread, NULL);
	for (uint64_t i = 0; i < count; i++)
		assert_int_equal(bench_result(bench, i)->fate, NOTICE_SENT);
}

/* ---- the end ----------------------------------------------------------------------------- */

/* What is left behind, ASan tells. */
static void a_channel_can_be_freed_with_notices_in_it(void **state)
{
	struct channel_bench *bench = *state;
	struct notice_result result;

	for (uint64_t i = 0; i < 10; i++)
		bench_send(bench, "200.a", i);
	assert_int_equal(bench->channel->ops->wait(bench->channel, &result, 1, INT64_MAX), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(a_new_channel_has_all_its_slots_free),
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
		TEST(a_channel_can_be_freed_with_notices_in_it),
	};

	return cmocka_run_group_tests(tests, silence_log, NULL);
}
