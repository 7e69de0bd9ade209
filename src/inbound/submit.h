/* Submits the command of a request to its lane. This is the last step of every route that uses one
 * lane. Called on a loop's thread. */
#ifndef QUIPU_INBOUND_SUBMIT_H
#define QUIPU_INBOUND_SUBMIT_H

#include "flow/lane_set.h"
#include "inbound/fingerprint.h"
#include "inbound/input.h"

/*
 * If reading the request found errors, refuses the request. Otherwise submits `write` to its lane,
 * with the Idempotency-Key of the request if there is one. `write` must be allocated from the
 * request's arena, and its command's key must be set.
 */
void submit_write(struct input *input, struct lane_set *lanes, struct write *write);

/* Like submit_write(), except that the Idempotency-Key is valid only for the user `user_id`:
 * requests of different users may have the same key. */
void submit_write_of(
	struct input *input, struct lane_set *lanes, struct write *write, struct slice user_id);

/* Like submit_write(), except that the write goes to the lane of the key `near`, not to the lane of
 * its own key. */
void submit_write_near(
	struct input *input, struct lane_set *lanes, struct write *write, struct slice near);

/* Sets the Idempotency-Key of a write that is one part of the request. The key has the scope and
 * fingerprint that it would have if the client had sent only this part, as the request `asked`. */
void submit_key_as(
	struct request *request, struct write *write, struct slice key, const struct asked *asked);

/* If reading the request found errors, refuses the request. Otherwise submits `read` to the read
 * lane. */
void submit_read(struct input *input, struct lane_set *lanes, struct read *read);

/* Like submit_read(), except that the command's answer does not become the request's answer.
 * Instead, `answered` is called with the command; see request_submit_then(). */
void submit_read_then(struct input *input, struct lane_set *lanes, struct read *read,
	void (*answered)(struct request *request, struct command *command));

#endif
