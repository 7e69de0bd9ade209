/*
 * A reader takes commands that wait in its lane and looks them up together, as a batch, outside any
 * transaction. The number of commands in a batch is limited, and so is the memory that large
 * answers may take (command->answer_max).
 */
#ifndef QUIPU_FLOW_READER_H
#define QUIPU_FLOW_READER_H

#include "base/clock.h"
#include "ports/store.h"
#include "runtime/lane.h"

/* A command that only reads. Services embed it as the first member of their own lookups. */
struct read {
	struct command command;

	/*
	 * Sets the answer of this read alone, or returns the session's status. NULL if the service
	 * looks this read up together with other reads.
	 */
	enum status (*look_up)(struct read *read, struct session *session, struct arena *arena);
};

/* Returns the read that `command` is part of. Aborts if it is not a read. */
struct read *read_of(struct command *command);

/* Reads that are looked up together. */
struct read_batch {
	struct read **reads;
	size_t count;
	struct arena *arena; /* reset before the next attempt */
};

struct reader_config {
	struct lane *lane;       /* not owned */
	struct session *session; /* owned */
	size_t batch_max;
	const struct clock *clock;

	/*
	 * Sets the answer of every read, or returns the session's status. May be called again for
	 * the same reads. NULL if every read has a look_up of its own.
	 */
	enum status (*look_up)(
		void *service, struct session *session, const struct read_batch *batch);
	void *service;
};

struct reader;

/* Creates a reader without starting it. */
struct reader *reader_new(const struct reader_config *config);

/* Runs the reader on a thread of its own until the lane is closed and empty. */
void reader_start(struct reader *reader);

/* Waits for the thread, if one was started. The lane must be closed. */
void reader_join(struct reader *reader);

/* Frees the reader. Call it after reader_join(). */
void reader_free(struct reader *reader);

/* Looks up the next batch of reads and answers them. Returns false if the lane is closed and empty.
 * The reader's thread calls it in a loop; tests call it without a thread. */
bool reader_step(struct reader *reader);

#endif
