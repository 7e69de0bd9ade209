/* A channel under test and the results it has given so far, whatever is behind it. */
#ifndef QUIPU_TESTS_CHANNEL_BENCH_H
#define QUIPU_TESTS_CHANNEL_BENCH_H

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

/* On a busy machine still far below any time that something waits for. */
#define AT_ONCE_MS 500
#define RESULTS_MAX 1024

struct channel_bench {
	struct channel *channel;
	struct hook_server *server; /* NULL: the channel has none */
	struct notice_result results[RESULTS_MAX];
	size_t result_count;
};

int64_t bench_now_ms(void);

/* A webhook at `server`, with the limits given. */
struct channel *bench_webhook(struct hook_server *server, const struct webhook_limits *limits);

void bench_send(struct channel_bench *bench, const char *id, uint64_t tag);

/* One wait() of at most `ms`, its results appended. Returns how many there were. */
size_t bench_wait(struct channel_bench *bench, int64_t ms);

/* Waits until there are `count` results in all; fails the test after 10 s. */
void bench_gather(struct channel_bench *bench, size_t count);

/* The result with this tag, which must have come exactly once. */
const struct notice_result *bench_result(const struct channel_bench *bench, uint64_t tag);

#endif
