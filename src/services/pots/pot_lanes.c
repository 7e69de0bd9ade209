/* The callbacks through which the lanes of the pot service run its batches. */
#include "base/clock.h"
#include "services/pots/pot_batch.h"

static enum status decide(void *context, struct session *session, const struct write_batch *batch)
{
	return pot_batch_decide(context, session, batch);
}

static enum status look_up(void *context, struct session *session, const struct read_batch *batch)
{
	const struct pots *pots = context;

	return pot_batch_look_up(pots->repository, session, batch);
}

struct lane_service pots_lane_service(struct pots *pots)
{
	return (struct lane_service){
		.name = "pots",
		.context = pots,
		.waiting =
			{
				.retry_ns = pots->lock_wait_us * NS_PER_US,
				.tries_max = (unsigned)pots->lock_retries + 1,
				.give_up = pot_batch_give_up,
			},
		.decide = decide,
		.look_up = look_up,
	};
}
