/*
 * Computes the fingerprint by which a store recognises whether a request with a known
 * Idempotency-Key repeats the first request. The fingerprint depends on the meaning of the request,
 * not on its spelling: a client that retries may write the members in another order. Called on a
 * loop's thread.
 */
#ifndef QUIPU_INBOUND_FINGERPRINT_H
#define QUIPU_INBOUND_FINGERPRINT_H

#include "inbound/input.h"
#include "ports/store.h"

/*
 * Sets the record's `fingerprint` and `typed`. The fingerprint covers the method, the route's
 * template, the decoded parameters of path and query, and the body: JSON by its meaning (see
 * base/json_digest.h), anything else byte by byte. A request without a body never has the same
 * fingerprint as a request with a body. Call this function before input_refuse(), which frees the
 * parsed body.
 */
void fingerprint_request(const struct input *input, struct idempotency_record *record);

/* Describes a request that no client has sent. It asks for only one part of a larger request that a
 * client has sent, such as one change of a batch request. */
struct asked {
	const char *method;
	const char *path;   /* the template of the route */
	struct slice param; /* the parameter of the path, or empty */
	json_t *body;       /* NULL if the request has no body */
};

/* Sets the record's `fingerprint` to the fingerprint of the request that `asked` describes. Leaves
 * the record's `typed` empty, because no client has sent that request, so it has no raw parts.
 * Therefore it never matches a stored fingerprint of version 1. */
void fingerprint_asked(
	const struct asked *asked, struct arena *arena, struct idempotency_record *record);

#endif
