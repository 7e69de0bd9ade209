/*
 * The count service on a faulty store, driven step by step on one thread: submit commands, run the
 * committer by hand, check the answers.
 */
#ifndef QUIPU_TESTS_COUNT_FIXTURE_H
#define QUIPU_TESTS_COUNT_FIXTURE_H

#include "faulty_store.h"
#include "flow/committer.h"
#include "manual_clock.h"
#include "services/counts/count_batch.h"

struct count_fixture {
	struct faulty_store *store;
	struct lane *lane;
	struct loop *loop;
	struct committer *committer;
	struct manual_clock clock; /* the clock of the committer */
};

/* One request; the test owns it. */
struct count_fixture_command {
	/* first, so that the committer's pointer to it is also ours */
	struct count_command command;
	struct arena arena;
	bool answered;
};

void count_fixture_open(struct count_fixture *fixture, size_t batch_max);
void count_fixture_open_waiting(
	struct count_fixture *fixture, size_t batch_max, const struct waiting *waiting);
void count_fixture_close(struct count_fixture *fixture);

/* Creates a command on `item_id`, which is not copied. `key` may be NULL. The deadline is in 5
 * s. */
struct count_fixture_command *count_fixture_command_new(struct count_fixture *fixture,
	const char *item_id, struct count_change change, const char *key, const char *request);
void count_fixture_command_free(struct count_fixture_command *command);

void count_fixture_submit(struct count_fixture *fixture, struct count_fixture_command *command);

/* Runs the committer once over all waiting commands and takes back the answers. */
void count_fixture_step(struct count_fixture *fixture);

int count_fixture_status(const struct count_fixture_command *command);
struct slice count_fixture_body(const struct count_fixture_command *command);

#endif
