/* The callbacks through which the lanes of counters run lookups and repairs. Every write (a
 * repair, or a step of an erasure) has its own decide(), so the service does not define one. */
#include "services/counters/counter_lookup.h"
#include "services/counters/counter_verify.h"

static void committed(void *context)
{
	struct counters *counters = context;

	if (counters->verifier)
		counter_verify_committed(counters->verifier);
}

static enum status look_up(void *context, struct session *session, const struct read_batch *batch)
{
	return counter_look_up(context, session, batch);
}

struct lane_service counters_lane_service(struct counters *counters)
{
	return (struct lane_service){
		.name = "counters",
		.context = counters,
		.committed = committed,
		.look_up = look_up,
	};
}
