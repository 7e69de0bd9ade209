#include "notifier_fixture.h"

#include <stdio.h>

#include "waiting.h"

struct notifier *notifier_fixture_webhook(
	struct hook_server *server, const struct webhook_limits *limits)
{
	char url[64], why[256];
	struct notifier *notifier;

	snprintf(url, sizeof(url), "http://127.0.0.1:%d/hook?from=quipu", hook_server_port(server));
	notifier = webhook_notifier_new(url, limits, why, sizeof(why));
	assert_non_null(notifier);
	return notifier;
}

void notifier_fixture_send(struct notifier_fixture *fixture, const char *id, uint64_t tag)
{
	struct notice notice = {
		.id = slice_of(id), .body = SLICE("{\"user_id\":\"u\"}"), .tag = tag};

	fixture->notifier->ops->send(fixture->notifier, &notice);
}

size_t notifier_fixture_wait(struct notifier_fixture *fixture, int64_t ms)
{
	size_t count;

	assert_true(fixture->result_count < RESULTS_MAX);
	count = fixture->notifier->ops->wait(fixture->notifier,
		fixture->results + fixture->result_count, RESULTS_MAX - fixture->result_count,
		in_ms(ms));
	fixture->result_count += count;
	return count;
}

void notifier_fixture_gather(struct notifier_fixture *fixture, size_t count)
{
	int64_t deadline_ns = hang_deadline_ns();

	while (fixture->result_count < count) {
		assert_true(clock_steady_ns(&clock_system) < deadline_ns);
		notifier_fixture_wait(fixture, HANG_MS);
	}
	assert_int_equal(fixture->result_count, count);
}

const struct notice_result *notifier_fixture_result(
	const struct notifier_fixture *fixture, uint64_t tag)
{
	const struct notice_result *found = NULL;

	for (size_t i = 0; i < fixture->result_count; i++) {
		if (fixture->results[i].tag != tag)
			continue;
		assert_null(found);
		found = &fixture->results[i];
	}
	assert_non_null(found);
	return found;
}
