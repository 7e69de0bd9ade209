#include "channel_bench.h"

#include <stdio.h>

int64_t bench_now_ms(void)
{
	return clock_steady_ns(&clock_system) / NS_PER_MS;
}

struct channel *bench_webhook(struct hook_server *server, const struct webhook_limits *limits)
{
	char url[64], why[256];
	struct channel *channel;

	snprintf(url, sizeof(url), "http://127.0.0.1:%d/hook?from=quipu", hook_server_port(server));
	channel = webhook_channel_new(url, limits, why, sizeof(why));
	assert_non_null(channel);
	return channel;
}

void bench_send(struct channel_bench *bench, const char *id, uint64_t tag)
{
	struct notice notice = {
		.id = slice_of(id), .body = SLICE("{\"user_id\":\"u\"}"), .tag = tag};

	bench->channel->ops->send(bench->channel, &notice);
}

size_t bench_wait(struct channel_bench *bench, int64_t ms)
{
	size_t count;

	assert_true(bench->result_count < RESULTS_MAX);
	count = bench->channel->ops->wait(bench->channel, bench->results + bench->result_count,
		RESULTS_MAX - bench->result_count, clock_steady_ns(&clock_system) + ms * NS_PER_MS);
	bench->result_count += count;
	return count;
}

void bench_gather(struct channel_bench *bench, size_t count)
{
	int64_t until_ms = bench_now_ms() + 10000;

	while (bench->result_count < count) {
		assert_true(bench_now_ms() < until_ms);
		bench_wait(bench, until_ms - bench_now_ms());
	}
	assert_int_equal(bench->result_count, count);
}

const struct notice_result *bench_result(const struct channel_bench *bench, uint64_t tag)
{
	const struct notice_result *found = NULL;

	for (size_t i = 0; i < bench->result_count; i++) {
		if (bench->results[i].tag != tag)
			continue;
		assert_null(found);
		found = &bench->results[i];
	}
	assert_non_null(found);
	return found;
}
