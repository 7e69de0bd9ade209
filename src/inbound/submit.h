/* The last step of every route that uses a lane, the same for all services. On the loop. */
#ifndef QUIPU_INBOUND_SUBMIT_H
#define QUIPU_INBOUND_SUBMIT_H

#include "flow/lane_set.h"
#include "inbound/fingerprint.h"
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

/* The same for a write whose key is its own: it goes to the lane of the key `near`. */
void submit_write_near(
	struct input *input, struct lane_set *lanes, struct write *write, struct slice near);

/* Sets the Idempotency-Key of a write that a part of the request stands for, in the scope of
 * `asked`: the request that would ask for this part alone. */
void submit_key_as(
	struct request *request, struct write *write, struct slice key, const struct asked *asked);

/* Ends the reading of a request that only reads, and submits it. */
void submit_read(struct input *input, struct lane_set *lanes, struct read *read);

#endif
