/* The callbacks through which the lanes of the count service run its batches. */
#include "services/counts/count_batch.h"
#include "services/counts/count_lookup.h"
#include "services/counts/counts.h"

static enum status decide(void *context, struct session *session, const struct write_batch *batch)
{
	const struct counts *counts = context;

	return count_batch_decide(counts->repository, session, batch);
}

static bool is_single(void *context, const struct write_batch *batch)
{
	(void)context;
	return count_batch_is_single(batch);
}

static enum status look_up(void *context, struct session *session, const struct read_batch *batch)
{
	const struct counts *counts = context;

	return count_look_up(counts->repository, session, batch);
}

struct lane_service counts_lane_service(struct counts *counts)
{
	return (struct lane_service){
		.name = "counts",
		.context = counts,
		.is_single = is_single,
		.decide = decide,
		.look_up = look_up,
	};
}
