/*
 * Recognises the same request under an Idempotency-Key by what it asks, not by how it was typed:
 * a client that retries may serialize its members in another order. On the loop.
 */
#ifndef QUIPU_INBOUND_FINGERPRINT_H
#define QUIPU_INBOUND_FINGERPRINT_H

#include "inbound/input.h"
#include "ports/store.h"

/*
 * Sets the record's `fingerprint` and `typed`. The fingerprint covers the method, the template of
 * the route, the decoded parameters of path and query, and the body: JSON by its meaning (see
 * base/json_digest.h), anything else byte by byte. An absent body differs from every other. Call it
 * before input_refuse().
 */
void fingerprint_request(const struct input *input, struct idempotency_record *record);

/* A request that another one stands for, such as a change of a batch for the request that would
 * make this change alone. */
struct asked {
	const char *method;
	const char *path;   /* the template of the route */
	struct slice param; /* of the path, or empty */
	json_t *body;       /* NULL if it is absent */
};

/* Sets the record's `fingerprint` as for the request itself. `typed` stays empty: no version before
 * had such requests. */
void fingerprint_asked(
	const struct asked *asked, struct arena *arena, struct idempotency_record *record);

#endif
