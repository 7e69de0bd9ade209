/* Computes digests of JSON that depend on its meaning, not on how it was typed. Thread-safe. */
#ifndef QUIPU_BASE_JSON_DIGEST_H
#define QUIPU_BASE_JSON_DIGEST_H

#include <jansson.h>

#include "base/arena.h"
#include "base/digest.h"

/*
 * Adds `value` to `digest`. The order of members, white space, escapes and the spelling of numbers
 * (5, 5.0, 5e0) make no difference. An integer and a real always differ, however, if their absolute
 * values are 2^53 or more. A number always differs from a string, and a member that is null always
 * differs from an absent member. `scratch` holds the sorted names of members.
 */
void json_digest(struct digest *digest, json_t *value, struct arena *scratch);

#endif
