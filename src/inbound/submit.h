/* The last step of every route that uses a lane, the same for all services. On the loop. */
#ifndef QUIPU_INBOUND_SUBMIT_H
#define QUIPU_INBOUND_SUBMIT_H

#include "flow/lane_set.h"
#include "inbound/input.h"

/*
 * Ends the reading of a request: refuses it if it has errors, or else submits `write` to its lane,
 * with the Idempotency-Key of the request if there is one. `write` is in the request's arena, and
 * its command's key is set.
 */
void submit_write(struct input *input, struct lane_set *lanes, struct write *write);

/* The same for requests of users: each user's Idempotency-Keys are separate. */
void submit_write_of(
	struct input *input, struct lane_set *lanes, struct write *write, struct slice user_id);

/* The same for a request that only reads. */
void submit_read(struct input *input, struct lane_set *lanes, struct read *read);

#endif
