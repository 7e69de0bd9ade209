/*
 * A publisher carries out effects that may take long, such as publishing on a bus, on a thread of
 * its own beside the committer of a lane. So a bus that is slow or hangs delays only the writes
 * that need it, and the committer goes on with the other writes.
 *
 * The committer passes a write to the publisher when the first transaction of the write has
 * committed. The publisher's thread combines the waiting writes into a round, in the order in
 * which they arrived, and begins the rounds one after the other. So the effects of one key keep
 * their order. A bus that can have several publishes under way gets the next round before it has
 * confirmed the previous round. When all effects of a round have ended, the committer takes the
 * writes back, records how the effects ended and answers the writes.
 *
 *   who owns a write            committer -> publisher_give() -> publisher -> publisher_take() ->
 *                               committer
 *   who limits the writes       the committer, by publisher_room()
 *   who ends an effect          publish_ops; no effect stays under way past its deadline
 *
 * Private to flow/, except for struct publish_ops, which services implement.
 */
#ifndef QUIPU_FLOW_PUBLISHER_H
#define QUIPU_FLOW_PUBLISHER_H

#include "flow/write.h"

/* The callbacks of a service. All except wants() and wake() run on the publisher's thread. */
struct publish_ops {
	/* Returns whether the publisher would carry out the effect of this write. Called on the
	 * committer's thread, before the write's first transaction decides whether the write has an
	 * effect. */
	bool (*wants)(const struct write *write);

	/*
	 * Begins the effects of a round. Each effect must end by a deadline that is counted from
	 * the `reserved_ns` of its write. May block until the effects have ended. Memory that
	 * publish() allocates from the arena of the round stays valid until all effects of the
	 * round have ended.
	 */
	void (*publish)(void *service, const struct write_batch *round);

	/* Sets the `effect` of the writes whose effects have ended and, unless the effect is DONE,
	 * the answer. Called after each publish() and collect(). Does not block. */
	void (*look)(void *service, const struct write_batch *round);

	/* collect() and wake() are required if publish() leaves effects under way. collect() blocks
	 * until more effects have ended, the deadline of an effect has passed, or wake() is called.
	 * Any thread may call wake(). */
	void (*collect)(void *service);
	void (*wake)(void *service);
};

struct publisher_config {
	const struct publish_ops *ops;
	void *service;
	size_t round_max; /* the most writes in one round */
	/* how many writes the publisher should have at most; see publisher_room() */
	size_t writes_max;

	/* Called on the publisher's thread whenever effects have ended and publisher_take() can
	 * take their writes. Must not block. */
	void (*ended)(void *context);
	void *context;
};

struct publisher;

/* Creates a publisher without a thread. */
struct publisher *publisher_new(const struct publisher_config *config);

/* Starts the thread. Tests may use a publisher without a thread; publisher_give() then carries out
 * the effects itself. */
void publisher_start(struct publisher *publisher);

/* Ends the thread, if there is one. The publisher must hold no writes. */
void publisher_stop(struct publisher *publisher);

void publisher_free(struct publisher *publisher);

/* The functions below may be called only on the committer's thread. */

/* publisher_count() returns how many writes the publisher has now, and publisher_room() returns how
 * many more it should get before it has `writes_max`. The publisher may get more than `writes_max`
 * writes, because parked writes run again whatever publisher_room() returns. */
size_t publisher_count(const struct publisher *publisher);
size_t publisher_room(const struct publisher *publisher);

/* Returns whether a round is under way or about to begin. */
bool publisher_is_busy(struct publisher *publisher);

/* Moves all writes of `list` to the publisher. Their `effect` must be EFFECT_BEGUN. */
void publisher_give(struct publisher *publisher, struct command_list *list);

/* Moves to `out` the writes of the rounds that have ended. Never blocks. */
void publisher_take(struct publisher *publisher, struct command_list *out);

#endif
