/* A channel under test and the results it has given so far, whatever is behind it. */
#ifndef QUIPU_TESTS_CHANNEL_FIXTURE_H
#define QUIPU_TESTS_CHANNEL_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "adapters/webhook/webhook_channel.h"
#include "base/clock.h"
#include "hook_server.h"
#include "ports/channel.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#define RESULTS_MAX 1024

struct channel_fixture {
	struct channel *channel;
	struct hook_server *server; /* NULL: the channel has none */
	struct notice_result results[RESULTS_MAX];
	size_t result_count;
};

/* A webhook at `server`, with the limits given. */
struct channel *channel_fixture_webhook(
	struct hook_server *server, const struct webhook_limits *limits);

void channel_fixture_send(struct channel_fixture *fixture, const char *id, uint64_t tag);

/* One wait() of at most `ms`, its results appended. Returns how many there were. */
size_t channel_fixture_wait(struct channel_fixture *fixture, int64_t ms);

/* Waits until there are `count` results in all; fails the test if one never comes. */
void channel_fixture_gather(struct channel_fixture *fixture, size_t count);

/* The result with this tag, which must have come exactly once. */
const struct notice_result *channel_fixture_result(
	const struct channel_fixture *fixture, uint64_t tag);

#endif
