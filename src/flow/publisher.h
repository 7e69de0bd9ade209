/*
 * A publisher carries out effects that may take long, such as publishing on a bus, on a thread of
 * its own beside the committer of a lane. So a bus that is slow or hangs delays only the writes
 * that need it, and the committer goes on with the other writes.
 *
 * The committer gives it writes whose first transaction has committed. The publisher's thread takes
 * all writes that have gathered as a round, in the order in which they were given, and begins the
 * rounds one after the other; so the effects of one key keep their order. A bus that can have
 * several publishes under way gets the next round before it has confirmed the previous round. A
 * round whose writes have all ended waits for the committer, which takes the writes back, records
 * how they ended and answers them.
 *
 *   who owns a write       committer -> publisher_give() -> publisher -> publisher_take() ->
 *                          committer
 *   who bounds them        the committer, by publisher_room()
 *   who ends them          publish_ops; none is left under way for longer than their deadline
 *
 * Private to flow/, except for struct publish_ops, which services implement.
 */
#ifndef QUIPU_FLOW_PUBLISHER_H
#define QUIPU_FLOW_PUBLISHER_H

#include "flow/write.h"

/* The callbacks of a service. All except wants() and wake() run on the publisher's thread. */
struct publish_ops {
	/* Returns whether the publisher carries out the effect of this write, if the write has one.
	 * Called on the committer's thread, before the write's first transaction. */
	bool (*wants)(const struct write *write);

	/*
	 * Begins the effects of a round. They must end by a deadline that runs from the
	 * `reserved_ns` of each write. May block until they have ended. Memory that it allocates in
	 * the arena of the round stays valid until all writes of the round have ended.
	 */
	void (*publish)(void *service, const struct write_batch *round);

	/* Sets the `effect` of the writes that have ended, and the answer of those that failed.
	 * Called after each publish() and collect(). Does not block. */
	void (*look)(void *service, const struct write_batch *round);

	/* Required if publish() leaves effects under way. Blocks until more of them have ended,
	 * their deadline has passed, or wake() is called. Any thread may call wake(). */
	void (*collect)(void *service);
	void (*wake)(void *service);
};

struct publisher_config {
	const struct publish_ops *ops;
	void *service;
	size_t round_max; /* the most writes in one round */
	/* the most writes between publisher_give() and publisher_take(); see publisher_room() */
	size_t writes_max;

	/* Called on the publisher's thread whenever writes have ended, for publisher_take() to
	 * take. Must not block. */
	void (*ended)(void *context);
	void *context;
};

struct publisher;

/* Creates a publisher without a thread. */
struct publisher *publisher_new(const struct publisher_config *config);

/* Starts the thread. Without a thread, publisher_give() carries out the effects itself; only
 * tests use this. */
void publisher_start(struct publisher *publisher);

/* Ends the thread, if there is one. The publisher must hold no writes. */
void publisher_stop(struct publisher *publisher);

void publisher_free(struct publisher *publisher);

/* The functions below may be called only on the committer's thread. */

/* Return how many writes the publisher has now, and how many more it should get. Parked writes may
 * exceed that number. */
size_t publisher_count(const struct publisher *publisher);
size_t publisher_room(const struct publisher *publisher);

/* Returns whether a round is under way or about to begin. */
bool publisher_is_busy(struct publisher *publisher);

/* Hands over all writes of `list`. Their effect is EFFECT_BEGUN. */
void publisher_give(struct publisher *publisher, struct command_list *list);

/* Appends the writes that have ended to `out`. Never blocks. */
void publisher_take(struct publisher *publisher, struct command_list *out);

#endif
