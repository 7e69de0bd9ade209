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

#endif
