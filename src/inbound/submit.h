/* The last step of every route that changes something, the same for all services. On the loop. */
#ifndef QUIPU_INBOUND_SUBMIT_H
#define QUIPU_INBOUND_SUBMIT_H

#include "flow/lane_set.h"
#include "inbound/input.h"

/*
 * Ends the reading of a request: refuses it if anything was wrong, or sends `write`, which lies in
 * the request's arena and has its command's key set, through its lane, with the Idempotency-Key of
 * the request if there is one.
 */
void submit_write(struct input *input, struct lane_set *lanes, struct write *write);

/* The same where requests are made by users, who know nothing of each other's keys. */
void submit_write_of(
	struct input *input, struct lane_set *lanes, struct write *write, struct slice user_id);

/* The same for a request that only looks. */
void submit_read(struct input *input, struct lane_set *lanes, struct read *read);

#endif
