/*
 * Carries a request out with many writes, each of which goes its own way: to the lane of its key,
 * into whatever transaction is next there, with an Idempotency-Key of its own. The request is
 * answered when all of them are. Nothing holds between the writes except that those of one key run
 * in their order. On the loop; never blocks.
 */
#ifndef QUIPU_INBOUND_FAN_OUT_H
#define QUIPU_INBOUND_FAN_OUT_H

#include "flow/lane_set.h"
#include "inbound/input.h"

/*
 * Ends the reading of a request: refuses it if it has errors, or else submits the writes to their
 * lanes. The writes are in the request's arena, and the keys of their commands are set. When all
 * are back, `render` returns the answer, in memory of `arena`; the answers of the writes are gone
 * afterwards. A write whose lane is full is answered with OVERLOADED.
 */
void fan_out(struct input *input, struct lane_set *lanes, struct write **writes, size_t count,
	struct answer (*render)(struct arena *arena, struct write *const *writes, size_t count));

#endif
