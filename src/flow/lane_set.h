/*
 * All the lanes of one service on one store: write lanes with a committer each, chosen by the hash
 * of a command's key so that commands on one key keep their order, and one read lane with a reader.
 */
#ifndef QUIPU_FLOW_LANE_SET_H
#define QUIPU_FLOW_LANE_SET_H

#include "flow/committer.h"
#include "flow/reader.h"

struct lane_settings {
	size_t lanes; /* 0: the store's default */
	size_t depth_max;
	size_t bytes_max;
	size_t batch_max;
	int64_t idempotency_ttl_us;
};

/* What a service brings; see committer.h and reader.h. */
struct lane_service {
	const char *name; /* "counts" */
	void *context;
	struct waiting waiting; /* all zero: the usual */

	/* Optional: what each write lane has for itself, e.g. connections; NULL: the context. */
	void *(*open_lane)(void *context);
	void (*close_lane)(void *lane);

	void (*prepare)(void *lane, struct session *session, const struct write_batch *batch);
	bool (*is_single)(void *lane, const struct write_batch *batch);
	enum status (*decide)(void *lane, struct session *session, const struct write_batch *batch);
	void (*perform)(void *lane, const struct write_batch *batch);
	void (*committed)(void *lane);
	enum status (*settle)(void *lane, struct session *session, const struct write_batch *batch);
	enum status (*look_up)(
		void *context, struct session *session, const struct read_batch *batch);
};

struct lane_set;

/* `store` outlives the set. */
struct lane_set *lane_set_new(const struct lane_service *service, struct store *store,
	const struct lane_settings *settings);

void lane_set_start(struct lane_set *set);

/* The lane for a write on a key with this hash. Any thread. */
struct lane *lane_set_writer(struct lane_set *set, uint64_t hash);
struct lane *lane_set_reader(struct lane_set *set);

/* Accepts nothing more. What waits is still answered. */
void lane_set_close(struct lane_set *set);

/* What waits gets OVERLOADED. */
void lane_set_abort(struct lane_set *set);

/* Waits until everything that was accepted is answered and the threads have ended. The set must be
 * closed. It can still be asked for its metrics, and refuses whatever is submitted. */
void lane_set_join(struct lane_set *set);

/* Frees it, after lane_set_join(), and after the loops that submit to it have ended. */
void lane_set_free(struct lane_set *set);

/* The metrics of all lanes of the program; NULL entries are passed over. */
void lane_sets_collect(struct lane_set *const *sets, size_t count, struct buffer *page);

#endif
