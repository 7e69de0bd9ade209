/*
 * Carries out one request as many separate writes. Each write goes to the lane of its key, joins
 * the next transaction there, and has its own Idempotency-Key. The request is answered when all
 * writes are answered. The writes are independent, except that writes on one key run in the order
 * of the request. Called on a loop's thread; never blocks.
 */
#ifndef QUIPU_INBOUND_FAN_OUT_H
#define QUIPU_INBOUND_FAN_OUT_H

#include "flow/lane_set.h"
#include "inbound/input.h"

/*
 * If reading the request found errors, refuses the request. Otherwise submits the writes to their
 * lanes; a write whose lane is full is answered with OVERLOADED. The writes must be allocated from
 * the request's arena, and the keys of their commands must be set.
 *
 * When all writes are answered, calls `render`, which must return the answer of the request,
 * allocated from `arena`. If the client is gone, does not call `render`. In both cases, frees the
 * answers of the writes afterwards.
 */
void fan_out(struct input *input, struct lane_set *lanes, struct write **writes, size_t count,
	struct answer (*render)(struct arena *arena, struct write *const *writes, size_t count));

#endif
