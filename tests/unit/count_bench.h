/*
 * The count service on a fake store, driven step by step on one thread: submit commands, run the
 * committer by hand, look at the answers.
 */
#ifndef QUIPU_TESTS_COUNT_BENCH_H
#define QUIPU_TESTS_COUNT_BENCH_H

#include "fake_store.h"
#include "flow/committer.h"
#include "services/counts/count_batch.h"

struct count_bench {
	struct fake_store *fake;
	struct lane *lane;
	struct loop *loop;
	struct committer *committer;
	struct clock clock;
	int64_t steady_ns; /* what the committer's clock says */
};

/* One request; belongs to the test. */
struct bench_command {
	struct count_command command; /* first, so that the committer's pointer is ours */
	struct arena arena;
	bool answered;
};

void bench_open(struct count_bench *bench, size_t batch_max);
void bench_open_waiting(struct count_bench *bench, size_t batch_max, const struct waiting *waiting);
void bench_close(struct count_bench *bench);

/* A command on `item_id` (kept, not copied); `key` may be NULL; deadline in 5 s. */
struct bench_command *bench_command_new(struct count_bench *bench, const char *item_id,
	struct count_change change, const char *key, const char *request);
void bench_command_free(struct bench_command *command);

void bench_submit(struct count_bench *bench, struct bench_command *command);

/* Runs the committer once over what waits and takes the answers back. */
void bench_step(struct count_bench *bench);

int bench_status(const struct bench_command *command);
struct slice bench_body(const struct bench_command *command);

#endif
