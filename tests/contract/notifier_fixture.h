/* A notifier under test and the results it has given so far, whatever is behind it. */
#ifndef QUIPU_TESTS_CHANNEL_FIXTURE_H
#define QUIPU_TESTS_CHANNEL_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "adapters/notifier/webhook/webhook_notifier.h"
#include "base/clock.h"
#include "hook_server.h"
#include "ports/notifier.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#define RESULTS_MAX 1024

struct notifier_fixture {
	struct notifier *notifier;
	struct hook_server *server; /* NULL: the notifier has none */
	struct notice_result results[RESULTS_MAX];
	size_t result_count;
};

/* A webhook at `server`, with the limits given. */
struct notifier *notifier_fixture_webhook(
	struct hook_server *server, const struct webhook_limits *limits);

void notifier_fixture_send(struct notifier_fixture *fixture, const char *id, uint64_t tag);

/* One wait() of at most `ms`, its results appended. Returns how many there were. */
size_t notifier_fixture_wait(struct notifier_fixture *fixture, int64_t ms);

/* Waits until there are `count` results in all; fails the test if one never comes. */
void notifier_fixture_gather(struct notifier_fixture *fixture, size_t count);

/* The result with this tag, which must have come exactly once. */
const struct notice_result *notifier_fixture_result(
	const struct notifier_fixture *fixture, uint64_t tag);

#endif
