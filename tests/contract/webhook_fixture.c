#include "webhook_fixture.h"

#include <stdlib.h>

#include "base/arena.h"
#include "waiting.h"

const struct webhook_limits webhook_patient = {.slots = 16, .total_ns = NEVER_MS * NS_PER_MS};

int webhook_setup(void **state)
{
	struct notifier_fixture *fixture = qp_calloc(1, sizeof(*fixture));

	fixture->server = hook_server_start(false);
	fixture->notifier = notifier_fixture_webhook(fixture->server, &webhook_patient);
	*state = fixture;
	return 0;
}

int webhook_teardown(void **state)
{
	struct notifier_fixture *fixture = *state;

	if (fixture->notifier)
		fixture->notifier->ops->free(fixture->notifier);
	hook_server_stop(fixture->server);
	free(fixture);
	return 0;
}

const struct notice_result *webhook_try(struct notifier_fixture *fixture, const char *id)
{
	fixture->result_count = 0;
	notifier_fixture_send(fixture, id, 1);
	notifier_fixture_gather(fixture, 1);
	return notifier_fixture_result(fixture, 1);
}

void webhook_assert_fate(
	struct notifier_fixture *fixture, const char *id, enum notice_fate fate, const char *error)
{
	const struct notice_result *result = webhook_try(fixture, id);

	if (result->fate != fate || strcmp(result->error, error) != 0)
		fail_msg("%s: fate %d, \"%s\"", id, result->fate, result->error);
}

void webhook_limit_to(struct notifier_fixture *fixture, const struct webhook_limits *limits)
{
	fixture->notifier->ops->free(fixture->notifier);
	fixture->notifier = notifier_fixture_webhook(fixture->server, limits);
}

void webhook_go_to(
	struct notifier_fixture *fixture, const char *url, const struct webhook_limits *limits)
{
	char why[256];

	fixture->notifier->ops->free(fixture->notifier);
	fixture->notifier = webhook_notifier_new(url, limits, why, sizeof(why));
	assert_non_null(fixture->notifier);
}

void webhook_assert_header(
	const struct hook_request *request, const char *name, const char *expected)
{
	char value[256] = "";
	bool found = hook_request_header(request, name, value, sizeof(value));

	if (found != (expected != NULL) || (expected && strcmp(value, expected) != 0))
		fail_msg("%s: \"%s\" in\n%s", name, value, request->head);
}
