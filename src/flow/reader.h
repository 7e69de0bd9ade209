/*
 * A reader takes whatever waits in its lane and looks it all up at once, outside any transaction.
 */
#ifndef QUIPU_FLOW_READER_H
#define QUIPU_FLOW_READER_H

#include "base/clock.h"
#include "ports/store.h"
#include "runtime/lane.h"

/* A look at something. */
struct read {
	struct command command; /* its answer is what is wanted */

	/* Sets the answer, or returns what the session returned. NULL: the service looks it up,
	 * together with others. */
	enum status (*look_up)(struct read *read, struct session *session, struct arena *arena);
};

/* Returns the read that `command` is part of. Aborts if it is not a read. */
struct read *read_of(struct command *command);

/* What is looked up together. */
struct read_batch {
	struct read **reads;
	size_t count;
	struct arena *arena; /* for this try only */
};

struct reader_config {
	struct lane *lane;       /* not owned */
	struct session *session; /* owned */
	size_t batch_max;
	const struct clock *clock;

	/* Sets the answer of every read, or returns what the session returned. May be called again
	 * for the same reads. NULL: every read looks for itself. */
	enum status (*look_up)(
		void *service, struct session *session, const struct read_batch *batch);
	void *service;
};

struct reader;

struct reader *reader_new(const struct reader_config *config);

/* Runs it on a thread of its own until the lane is closed and empty. */
void reader_start(struct reader *reader);

/* Waits for the thread, if one was started. The lane must be closed. */
void reader_join(struct reader *reader);

/* Frees it, after reader_join(). */
void reader_free(struct reader *reader);

/* One round without a thread, for tests. false: the lane is closed and empty. */
bool reader_step(struct reader *reader);

#endif
