/*
 * A lane set has the lanes of one service on one store: write lanes, each with a committer, and one
 * read lane with a reader. The hash of a command's key chooses the write lane, so commands on one
 * key keep their order.
 */
#ifndef QUIPU_FLOW_LANE_SET_H
#define QUIPU_FLOW_LANE_SET_H

#include "flow/committer.h"
#include "flow/reader.h"

struct lane_settings {
	size_t lanes; /* write lanes; 0 for the store's default */
	size_t depth_max;
	size_t bytes_max;
	size_t batch_max;
	int64_t idempotency_ttl_us;
};

/* The callbacks of a service. committer.h and reader.h say when each one runs. */
struct lane_service {
	const char *name; /* e.g. "counts" */
	void *context;
	struct waiting waiting; /* all zero for the defaults */

	/*
	 * Optional. open_lane() creates the private state of one write lane, such as its
	 * connections, and close_lane() frees it. The callbacks below get that state as `lane`;
	 * without open_lane they get `context` instead.
	 */
	void *(*open_lane)(void *context);
	void (*close_lane)(void *lane);

	void (*prepare)(void *lane, struct session *session, const struct write_batch *batch);
	bool (*is_single)(void *lane, const struct write_batch *batch);
	enum status (*decide)(void *lane, struct session *session, const struct write_batch *batch);
	void (*perform)(void *lane, const struct write_batch *batch);
	const struct publish_ops *publishing;
	void (*failed)(void *lane, const struct command_list *writes);
	void (*committed)(void *lane);
	enum status (*settle)(void *lane, struct session *session, const struct write_batch *batch);
	enum status (*look_up)(
		void *context, struct session *session, const struct read_batch *batch);
};

struct lane_set;

/* Opens the sessions and creates the lanes without starting threads. `store` must outlive the
 * set. */
struct lane_set *lane_set_new(const struct lane_service *service, struct store *store,
	const struct lane_settings *settings);

/* Starts the threads. */
void lane_set_start(struct lane_set *set);

/* Returns the lane for writes on a key with this hash. Thread-safe. */
struct lane *lane_set_writer(struct lane_set *set, uint64_t hash);

/* Returns the lane for reads. Thread-safe. */
struct lane *lane_set_reader(struct lane_set *set);

/* From now on the lanes refuse commands. Commands that already wait are still answered. */
void lane_set_close(struct lane_set *set);

/* Answers 503 to all writes that still wait. Thread-safe. */
void lane_set_abort(struct lane_set *set);

/*
 * Waits until every accepted command is answered and the threads have ended. The set must be
 * closed. Afterwards its metrics can still be read, and it refuses every command.
 */
void lane_set_join(struct lane_set *set);

/* Frees the set. Call it after lane_set_join() and after the loops that submit to it have ended. */
void lane_set_free(struct lane_set *set);

/* Writes the metrics of all sets together. Skips entries that are NULL. */
void lane_sets_collect(struct lane_set *const *sets, size_t count, struct buffer *page);

#endif
